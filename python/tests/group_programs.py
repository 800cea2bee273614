"""Ranks of test_groups.py, two of them: group_programs.py NAME."""

import sys
import threading

import numpy as np
import pytest

import shunt
from shunt import ClosedError, InvalidArgumentError


def swap(comm, out):
    """Sends a temporary array of this rank's number, and receives the other's."""
    comm.send(np.full(5000, comm.rank, "f4"), 1 - comm.rank)
    comm.recv(out, 1 - comm.rank)


def others_arrays():
    """Takes memory that has just been freed."""
    return [np.full(5000, -9, "f4") for _ in range(4)]


def entered_again(comm):
    """One object, within itself and again."""
    group, out = comm.group(), np.zeros(5000, "f4")
    for _ in range(2):
        with group:
            with group:
                swap(comm, out)
            kept = others_arrays()
        assert (out == 1 - comm.rank).all() and len(kept) == 4
    assert comm.all_gather_object(comm.rank) == [0, 1]


def of_two_threads(comm):
    """One object; the other thread's group ends in the middle of this one's."""
    group, out, meet = comm.group(), np.zeros(5000, "f4"), threading.Barrier(2)

    def other():
        meet.wait()
        with group:
            pass
        meet.wait()

    thread = threading.Thread(target=other)
    thread.start()
    with group:
        swap(comm, out)
        meet.wait()
        meet.wait()
        kept = others_arrays()
    thread.join()
    assert (out == 1 - comm.rank).all() and len(kept) == 4


def inner_fails(comm):
    """What an inner group took along is not run, and that is said; nothing of it runs by itself."""
    out = np.full(5000, -1, "f4")
    with pytest.raises(InvalidArgumentError, match="none of its operations runs"), comm.group():
        swap(comm, out)
        with pytest.raises(InvalidArgumentError, match="99"), comm.group():
            comm.send(out, 99)
        for late in (lambda: comm.send(out, 1 - comm.rank), lambda: comm.group().__enter__()):
            with pytest.raises(InvalidArgumentError, match="none of its operations runs"):
                late()
    assert (out == -1).all()
    with comm.group():
        swap(comm, out)
    assert (out == 1 - comm.rank).all()


def closed_within(comm):
    part = comm.split(0)
    with pytest.raises(ClosedError), part.group():
        swap(part, np.zeros(5000, "f4"))
        part.close()
    comm.barrier()


def left_by_another_thread(comm):
    group = comm.group()
    group.__enter__()
    found = []

    def leave():
        try:
            group.__exit__(None, None, None)
        except InvalidArgumentError as error:
            found.append(str(error))

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert "in the thread that entered it" in found[0]
    group.__exit__(None, None, None)
    comm.barrier()


def another_threads(comm):
    """What cannot go in a group can go beside one."""
    entered, done = threading.Event(), threading.Event()

    def other():
        with comm.group():
            entered.set()
            done.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    assert comm.all_reduce(1) == 2 and comm.all_gather_object(comm.rank) == [0, 1]
    done.set()
    thread.join()
    for refused in (lambda: comm.all_reduce(1), lambda: comm.all_gather_object(1)):
        with pytest.raises(InvalidArgumentError, match="cannot go in a group"), comm.group():
            refused()


def closed_by_several_threads(comm):
    for _ in range(20):
        part = comm.split(0)
        part.start("all_reduce", np.ones(500_000))
        errors, ready = [], threading.Barrier(3)

        def close(part=part, errors=errors, ready=ready):
            ready.wait()
            try:
                part.close()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=close) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors and part.closed, errors


def long_reason(comm):
    """Aborts, with more than the library takes, and with an exception that cannot be worded."""
    class Wordless(Exception):
        def __str__(self):
            raise RuntimeError

    for part in (comm.split(0), comm.split(0)):
        comm.barrier()
        if comm.rank == 1:
            with pytest.raises(shunt.AbortedError, match="xxxxx|Wordless"):
                part.barrier()
        elif part.rank == 0 and not long_reason.done:
            part.abort("x" * (1 << 17))
        else:
            with pytest.raises(Wordless), part:
                raise Wordless
        long_reason.done = True
        comm.barrier()
        part.close()


long_reason.done = False


class Shapeless:
    """Has a length, but nothing in it."""

    def __len__(self):
        return 2

    def __iter__(self):
        raise AttributeError("nothing")


def miscounted(comm):
    """The error of each rank says what is wrong with the root's values."""
    for values in ([1], 5, np.zeros(5), Shapeless(), {0: 1, 1: 2}, {1, 2}, frozenset([1, 2])):
        told = "rank 0 has not one value for each"
        if comm.rank == 0:
            told = "the root has [15] values|the root gave a (int|Shapeless|dict|set|frozenset)"
        with pytest.raises(InvalidArgumentError, match=told):
            comm.scatter_object(values if comm.rank == 0 else None)


with shunt.init(timeout=20) as made:
    globals()[sys.argv[1]](made)
