"""Calls of objects, which are several of the library's, that end before the last of them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shunt
from moments import Interrupt, interrupted_everywhere
from shunt import _objects

LONG = {"a": 1, "long": np.zeros(1 << 17)}  # with a buffer that goes by itself

#: What rank 0 calls, and rank 1.
CALLS = {
    "broadcast from it": [lambda comm: comm.broadcast_object(LONG, 0)] * 2,
    "broadcast to it": [lambda comm: comm.broadcast_object(LONG, 1)] * 2,
    "all_gather": [lambda comm: comm.all_gather_object(comm.rank)] * 2,
    "gather to it": [lambda comm: comm.gather_object(comm.rank, 0)] * 2,
    "gather from it": [lambda comm: comm.gather_object(comm.rank, 1)] * 2,
    "scatter from it": [lambda comm: comm.scatter_object([1, 2], 0)] * 2,
    "scatter to it": [lambda comm: comm.scatter_object([1, 2], 1)] * 2,
    "send": [lambda comm: comm.send_object(LONG, 1), lambda comm: comm.recv_object(0)],
    "recv": [lambda comm: comm.recv_object(1), lambda comm: comm.send_object(LONG, 0)],
}


@pytest.fixture
def rank1():
    """Runs what rank 1 does."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.mark.parametrize("call", CALLS)
def test_interrupted_at_any_moment_it_leaves_no_rank_waiting(pair, rank1, call):
    mine, theirs = CALLS[call]
    parts, other = [], None

    def make():
        nonlocal other
        split = rank1.submit(pair[1].split, 0)
        parts[:] = pair[0].split(0), split.result()
        other = rank1.submit(theirs, parts[1])
        return lambda: mine(parts[0])

    def end():
        error = other.exception()
        for part in parts:
            part.close()
        return error

    told = 0
    for _ in interrupted_everywhere(make):
        if not parts[0].records():
            parts[0].abort("it has not begun")
        error = end()
        if error is not None:  # it came after the last message
            assert type(error) is shunt.AbortedError, error
            told += "rank 0 aborted: interrupted by Interrupt" in str(error)
    assert end() is None
    assert told > 3


class Interrupting:
    """Interrupts whoever pickles it."""

    def __reduce__(self):
        raise Interrupt


@pytest.mark.parametrize("mine, theirs", [
    (lambda comm: comm.broadcast_object(Interrupting()), lambda comm: comm.broadcast_object()),
    (lambda comm: comm.all_gather_object(Interrupting()), lambda comm: comm.all_gather_object(1)),
    (lambda comm: comm.gather_object(Interrupting(), 1), lambda comm: comm.gather_object(1, 1)),
    (lambda comm: comm.scatter_object([1, Interrupting()]), lambda comm: comm.scatter_object()),
    (lambda comm: comm.send_object(Interrupting(), 1), lambda comm: comm.recv_object(0)),
])
def test_interrupted_while_the_object_is_pickled(pair, rank1, mine, theirs):
    other = rank1.submit(theirs, pair[1])
    with pytest.raises(Interrupt):
        mine(pair[0])
    with pytest.raises(shunt.AbortedError, match="rank 0 aborted: interrupted by Interrupt"):
        other.result()
    assert "interrupted by Interrupt" in str(pair[0].error)


@pytest.mark.parametrize("call", ["broadcast to it", "all_gather", "gather to it", "scatter to it", "recv"])
def test_without_memory_for_the_objects(pair, rank1, call, monkeypatch):
    class Room(bytearray):
        def __new__(cls, length):
            if threading.current_thread() is threading.main_thread():
                raise MemoryError
            return bytearray.__new__(cls, length)

    monkeypatch.setattr(_objects, "bytearray", Room, raising=False)
    mine, theirs = CALLS[call]
    other = rank1.submit(theirs, pair[1])
    with pytest.raises(MemoryError):
        mine(pair[0])
    try:
        other.result()
    except shunt.AbortedError as error:
        assert "rank 0 aborted: interrupted by MemoryError" in str(error)
    with pytest.raises(shunt.AbortedError, match="interrupted by MemoryError"):
        pair[1].barrier()


@pytest.mark.parametrize("name", ["broadcast_object", "all_gather_object", "gather_object"])
def test_a_smaller_limit_on_one_rank(pair, rank1, name):
    """The rank that goes on is told why the other one does not."""
    pair[1].set_timeout(2)
    root = () if name == "all_gather_object" else (1,)
    other = rank1.submit(getattr(pair[1], name), "x" * 100, *root)
    refusal = "rank 1 has an object of .* limit= is 30"
    with pytest.raises(shunt.InvalidArgumentError, match=f"{name} on rank 0: {refusal}"):
        getattr(pair[0], name)("", *root, limit=30)
    with pytest.raises(shunt.TimeoutError, match=f"rank 0 refused its {name}: {refusal}"):
        other.result()
