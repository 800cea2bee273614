"""What a communicator says of its failure and of what it ran."""

import ctypes
import gc
import io
import json
import pathlib
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shunt
from shunt import _library, _records

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_records_tell_what_ran(comm):
    assert comm.records() == [] and comm.error is None
    comm.all_reduce(np.zeros((2, 3), "float32"), op="max")
    comm.barrier()
    comm.broadcast(np.zeros(5, "int8"))
    records = comm.records()
    begins = [r.pop("begin_ns") for r in records]
    ends = [r.pop("end_ns") for r in records]
    assert 0 < begins[0] <= ends[0] <= begins[1] <= ends[1] <= begins[2] <= ends[2]
    assert records[0] == {"number": 1, "collective": "all_reduce", "dtype": "float32", "op": "max", "count": 6,
                          "root": 0, "state": "ended"}
    assert [r["collective"] for r in records] == ["all_reduce", "barrier", "broadcast"]
    assert records[2]["dtype"] == "int8" and records[2]["count"] == 5 and "op" not in records[2]


def test_wrong_calls_are_no_failure(comm):
    with pytest.raises(shunt.InvalidArgumentError):
        comm.broadcast(np.zeros(1), root=3)
    assert comm.error is None and comm.records() == []


def test_a_failure_is_returned_until_the_end(comm):
    part = comm.split(0)
    part.abort("tired of \N{SNOWMAN} \"quotes\"")
    for _ in range(2):
        assert type(part.error) is shunt.AbortedError
        assert part.error.code is shunt.Code.ABORTED and "tired of \N{SNOWMAN} \"quotes\"" in str(part.error)
    with pytest.raises(shunt.AbortedError, match="tired"):
        part.barrier()
    text = io.StringIO()
    part.write_records(text)
    report = json.loads(text.getvalue())
    assert report["failure"] == "rank 0 aborted: tired of \N{SNOWMAN} \"quotes\"" and report["operations"] == []
    assert report["communicator"] != "world"
    assert comm.error is None, "the communicator that it was split from works on"
    part.close()


@pytest.mark.parametrize("number", ["0", "1", "5"])
def test_as_many_records_as_asked_for(world, number):
    world.run(1, "keeps", number, SHUNT_FLIGHT_RECORDER_SIZE=number)


def test_text_that_grows_while_it_is_asked_for():
    """Each text is longer than the room for it, and then one fits."""
    lengths = iter([10, 10_000, 100_000, 50])
    rooms = []

    def records(place, room, needed):
        text = b"x" * next(lengths)
        needed._obj.value = len(text) + 1
        rooms.append(room)
        if room and room <= len(text):
            raise shunt.InvalidArgumentError("too small")
        if room:
            ctypes.memmove(place, text, len(text))

    assert _records.text(records) == "x" * 50
    assert rooms[0] == 0 and 11 <= rooms[1] <= 10_000 < rooms[2] <= 100_000 < rooms[3]


def test_other_errors_of_asking_are_raised():
    def records(place, room, needed):
        needed._obj.value = 5
        if room:
            raise shunt.InvalidArgumentError("closed meanwhile")

    with pytest.raises(shunt.InvalidArgumentError, match="closed meanwhile"):
        _records.text(records)


def test_closed_by_another_thread_while_asking(comm):
    part = comm.split(0)
    handle = part._handle

    class Late:  # the library of a thread that has lost the race
        def shunt_get_async_error(self, alive, out):
            lib = _library.library()
            part._handle = None
            assert lib.shunt_close(handle) == 0
            return lib.shunt_get_async_error(alive, out)

    part._lib = Late()
    with pytest.raises(shunt.ClosedError, match="is closed"):
        part.error


@pytest.fixture(scope="session")
def plugin(tmp_path_factory):
    """The transport shm as a program of its own."""
    if shutil.which("go") is None:
        pytest.skip("no Go toolchain to build a plugin with: the command go is not installed")
    path = tmp_path_factory.mktemp("plugin") / "shunt-transport-shm"
    subprocess.run(["go", "build", "-o", str(path), "./transports/shm/process"], cwd=ROOT, check=True)
    return path


def test_variables_set_after_the_import_reach_plugins(monkeypatch, plugin):
    """So does the name of the host count, which no plugin gets."""
    shunt.version()  # the library is loaded
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("SHUNT_HOST_ID", "set late")
    with shunt.init(0, 1, transports=f"process:{plugin}") as comm:
        assert json.loads(comm._record())["host"] == "set late"
        tasks = pathlib.Path("/proc/self/task").glob("*/children")
        children = [pid for task in tasks for pid in task.read_text().split()]
        found = [pathlib.Path("/proc", pid, "environ").read_bytes().split(b"\0") for pid in children]
    (variables,) = [each for each in found if b"SHUNT_PLUGIN_COOKIE=shunt-transport" in each]
    assert b"CUDA_VISIBLE_DEVICES=7" in variables and b"SHUNT_HOST_ID=set late" not in variables


@pytest.mark.parametrize("told", ["call", "error", "window", "close"])
def test_death_of_a_plugin_is_raised_once(world, plugin, told):
    world.run(1, "plugin_dies", told, SHUNT_TRANSPORTS=f"process:{plugin}")


def test_watchdog_of_the_guide(world, tmp_path):
    guide = (ROOT / "docs" / "guide" / "diagnose.md").read_text()
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", guide, re.S) if "def watch(" in b]
    program = tmp_path / "watch.py"
    program.write_text(block)
    world.run(2, "watches", str(program), str(tmp_path))
    for rank in range(2):
        report = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert (report["rank"], report["failure"]) == (rank, "rank 1 aborted: for the test")
        assert [o["collective"] for o in report["operations"]] == ["barrier"]


@pytest.fixture
def parts(pair):
    """A communicator of the pair's, on both ranks, for a test to close."""
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(pair[1].split, 0)
        made = pair[0].split(0), other.result()
    yield made
    for comm in made:
        comm.close()


def test_a_generator_that_is_left_closes(parts):
    def numbers():
        with parts[0] as comm:
            comm.send(np.full(4, 7.0), 1)
            yield 1

    for _ in numbers():
        break
    gc.collect()  # for interpreters that do not count references
    assert parts[0].closed
    assert (parts[1].recv(np.zeros(4), 0) == 7).all()
    with pytest.raises(shunt.ClosedError, match="has closed"):
        parts[1].barrier()


@pytest.mark.parametrize("error, reason", [(KeyboardInterrupt(), "KeyboardInterrupt"),
                                           (ValueError("no"), "ValueError: no")])
def test_an_exception_without_a_text_is_named(parts, error, reason):
    with pytest.raises(type(error)), parts[0]:
        raise error
    with pytest.raises(shunt.AbortedError, match=f"rank 0 aborted: {reason}(;|$)"):
        parts[1].barrier()
