"""What makes the package feel at home in Python: objects, numbers, numpy's other types, types for checkers, names."""

import builtins
import pathlib
import subprocess
import sys
import threading

import pytest

import shunt

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("program", ["objects", "long_objects", "numbers", "moves", "deadlines"])
def test_ranks(world, program, size):
    world.program = "home_programs.py"
    for status, _, errors in world.finish(world.start(size, program)):
        assert status == 0, errors


def test_star_shadows_no_builtin():
    names = {}
    exec("from shunt import *", names)
    assert not {name for name in shunt.__all__ if hasattr(builtins, name)}
    assert names["Communicator"] is shunt.Communicator and names["__builtins__"]["TimeoutError"] is TimeoutError
    assert issubclass(shunt.TimeoutError, shunt.ShuntError) and issubclass(shunt.SystemError, shunt.ShuntError)


def test_types():
    """A type checker refuses what is no buffer, and knows the type of what a call returns."""
    pytest.importorskip("mypy", reason="mypy, of requirements-dev.txt, is not installed")
    done = subprocess.run([sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-error-summary",
                           "--cache-dir=/dev/null",
                           "--no-incremental", "tests/typed.py"], cwd=HERE.parent, capture_output=True,
                          text=True)  # fmt: skip
    found = {}
    for line in done.stdout.splitlines():
        if ": error: " in line:
            place, text = line.split(": error: ", 1)
            found[int(place.split(":")[1])] = text
    lines = (HERE / "typed.py").read_text().splitlines()
    wanted = {i: line.split("# E: ")[1]
              for i, line in enumerate(lines, 1) if "# E: " in line and not line.startswith("#")}
    assert found.keys() == wanted.keys(), done.stdout + done.stderr
    for i, text in wanted.items():
        assert text in found[i], found[i]


def test_objects_take_the_shortest_way(comm, monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("the full path, which takes several times as long")

    monkeypatch.setattr(shunt._running.Running, "_run", refuse)
    assert comm.broadcast_object({"a": 1}) == {"a": 1}
    assert comm.all_gather_object([2]) == [[2]] == comm.gather_object([2])


def test_objects_while_another_thread_has_a_group(comm):
    entered, leave = threading.Event(), threading.Event()

    def grouped():
        with comm.group():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=grouped)
    thread.start()
    try:
        entered.wait()
        assert comm.broadcast_object({"a": 1}) == {"a": 1}
        assert comm.all_gather_object([2]) == [[2]] == comm.gather_object([2]) and comm.scatter_object([3]) == 3
    finally:
        leave.set()
        thread.join()


@pytest.mark.parametrize("root", [1, -1, "0", None, 0.0])
def test_a_root_of_objects_that_is_no_rank(comm, root):
    for call in (lambda: comm.broadcast_object(1, root), lambda: comm.gather_object(1, root),
                 lambda: comm.scatter_object([1], root), lambda: comm.send_object(1, root),
                 lambda: comm.recv_object(root)):
        with pytest.raises(shunt.InvalidArgumentError, match="rank"):
            call()


@pytest.mark.parametrize("limit", [None, "1G", 2.5])
def test_a_limit_of_objects_that_is_no_number(comm, limit):
    for call in (lambda: comm.broadcast_object(1, limit=limit), lambda: comm.all_gather_object(1, limit=limit),
                 lambda: comm.gather_object(1, limit=limit), lambda: comm.scatter_object([1], limit=limit),
                 lambda: comm.send_object(1, 0, limit=limit), lambda: comm.recv_object(0, limit=limit)):
        with pytest.raises(shunt.InvalidArgumentError, match="_object on rank 0: limit is .*, want a whole number"):
            call()


@pytest.mark.parametrize("transports", [3, ["shm", 3], [None], [b"shm"]])
def test_transports_that_are_no_texts(transports):
    with pytest.raises(shunt.InvalidArgumentError, match="init: transports is .*, want a text or a sequence of texts"):
        shunt.init(0, 1, transports=transports)
