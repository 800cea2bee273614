"""Fixtures: starting worlds of ranks as processes."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent
NO_CALLS = "this interpreter has no shunt._calls (make python-calls builds it, for CPython from 3.11 on)"


def pytest_addoption(parser):
    parser.addoption("--every-python", action="store_true",
                     help="a program's life under every Python of this machine, not under half of them in turns")


def pytest_collection_modifyitems(config, items):
    """Of cases that run under several Pythons, lets half of them run: neighbours under different ones."""
    if config.getoption("--every-python"):
        return
    cases, pythons, kept, left_out = {}, {}, [], []
    for item in items:
        if "life" not in getattr(item, "fixturenames", ()):
            kept.append(item)
            continue
        others = {name: value for name, value in item.callspec.params.items() if name != "life"}
        case = cases.setdefault((item.originalname, str(others)), len(cases))
        python = pythons.setdefault(item.callspec.params["life"], len(pythons))
        (left_out if (case + python) % 2 else kept).append(item)
    if len(pythons) > 2:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


class World:
    """Starts ranks of programs.py, or of another file, and waits for all of them."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.count = 0
        self.program = "programs.py"
        self.interpreter = [sys.executable]

    def start(self, size: int, program: str, *arguments: str, **env: str) -> list[subprocess.Popen]:
        self.count += 1
        meeting = self.directory / f"meeting-{self.count}"
        ranks = []
        for rank in range(size):
            ranks.append(subprocess.Popen(
                [*self.interpreter, str(HERE / self.program), program, *arguments],
                env={**os.environ, "PYTHONPATH": str(PACKAGE), "SHUNT_RANK": str(rank), "SHUNT_WORLD": str(size),
                     "SHUNT_ID": f"file://{meeting}", **env},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ))
        return ranks

    def finish(self, ranks: list[subprocess.Popen], timeout: float = 60) -> list[tuple[int, str, str]]:
        """Every rank's exit status, output and errors. A rank's input ends when
        the ranks before it have ended."""
        outputs, late = [], []
        for rank, process in enumerate(ranks):
            try:
                outputs.append(process.communicate(timeout=timeout))
            except subprocess.TimeoutExpired:
                process.kill()
                outputs.append(process.communicate())
                late.append(rank)
                timeout = 0  # for the ranks that are left
        told = "".join(f"rank {rank} ({process.returncode}):\n{err}"
                       for rank, (process, (_, err)) in enumerate(zip(ranks, outputs)))
        assert not late, f"ranks {late} had not ended in time:\n{told}"
        return [(rank.returncode, out, err) for rank, (out, err) in zip(ranks, outputs)]

    def run(self, size: int, program: str, *arguments: str, **env: str) -> list[str]:
        """Runs a program that must succeed on every rank; returns the outputs."""
        results = self.finish(self.start(size, program, *arguments, **env))
        for rank, (status, _, err) in enumerate(results):
            assert status == 0, f"rank {rank} of {size} ended with {status}:\n{err}"
        return [out for _, out, _ in results]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def python():
    """Runs code in a fresh interpreter; returns its output. One that is late says where its threads are."""
    def run(code, timeout=60, **env):
        process = subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)], text=True,
                                   env={**os.environ, "PYTHONPATH": str(PACKAGE), **env},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            out, err = process.communicate()
            raise AssertionError(f"the program had not ended after {timeout} s:\n{out}{err}") from None
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture(params=["quick", "full"])
def way(request, monkeypatch):
    """Calls with and without the quick path of shunt._quick: for communicators made here, and for programs."""
    import numpy

    from shunt import _buffers, _device, _library, _quick

    if request.param == "full":
        monkeypatch.setenv("WAY", "full")
        monkeypatch.setattr(_quick, "_calls", None)
    elif _quick._calls is None:
        pytest.skip(NO_CALLS)
    monkeypatch.setattr(_library, "_loaded", None)
    described, quick = _quick.arrays(numpy.ndarray, _buffers._numpy_dtypes)
    for module, name, value in ((_buffers, "_ndarray", numpy.ndarray), (_buffers, "described", described),
                                (_buffers, "quick", quick), (_buffers, "_tensor", None),
                                (_device, "_torch", None), (_device, "described", _quick.nothing),
                                (_device, "quick", _quick.nothing)):
        monkeypatch.setattr(module, name, value)
    return request.param


@pytest.fixture
def pair():
    """Two ranks in this process: what rank 0 receives, a test sends when it likes."""
    import shunt

    identity, made = shunt.unique_id(), {}

    def make(rank):
        made[rank] = shunt.init(rank, 2, identity)

    other = threading.Thread(target=make, args=(1,))
    other.start()
    make(0)
    other.join()
    yield made[0], made[1]
    for comm in made.values():
        if comm.error is None:
            comm.abort("the test has ended")
        comm.close()


@pytest.fixture
def comm(way):
    """A communicator of one rank, in this process."""
    import shunt

    with shunt.init(0, 1) as comm:
        yield comm
