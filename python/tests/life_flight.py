"""Programs that end, drop things or are interrupted while an operation is in flight or memory is registered;
life_programs.py runs them."""

import atexit
import gc
import os
import signal
import sys
import time
import warnings

import poison

import shunt
from life_marks import LONG, await_mark, mark, read, same, tell
from shunt import _work


def peer_of(what, comm):
    """Rank 1's part in what rank 0 leaves in flight."""
    if what == "all_reduce":
        same(comm.all_reduce(poison.numbers(LONG, 2)), 3)
    elif what == "broadcast":
        same(comm.broadcast(poison.numbers(LONG, 2), 1), 2)
    elif what == "send":
        same(comm.recv(poison.numbers(LONG), 0), 1)
    elif what == "recv":
        comm.send(poison.numbers(LONG, 2), 0)
    elif what == "all_gather":
        out = poison.numbers(2 * LONG)
        comm.all_gather(poison.numbers(LONG, 2), out)
        assert (out[0], out[-1]) == (1, 2)


STARTED = {
    "all_reduce": lambda comm: comm.start("all_reduce", poison.numbers(LONG, 1)),
    "broadcast": lambda comm: comm.start("broadcast", poison.numbers(LONG, 1), 1),
    "send": lambda comm: comm.start("send", poison.doubles(LONG, 1), 1),
    "recv": lambda comm: comm.start("recv", poison.doubles(LONG, 1), 1),
    "all_gather": lambda comm: comm.start("all_gather", poison.doubles(LONG, 1), poison.numbers(2 * LONG)),
}


def dropped(what):
    """Everything is dropped and collected before the peer comes; what was in flight is
    free once it has ended."""
    comm = shunt.init()
    if comm.rank == 1:
        await_mark("dropped")
        peer_of(what, comm)
        mark("done")
        await_mark("freed")
        comm.close()
        return
    STARTED[what](comm)
    del comm
    gc.collect()
    assert not poison.freed, "arrays of an operation in flight were freed"
    mark("dropped")
    await_mark("done")
    deadline = time.monotonic() + 20
    while not poison.freed:
        assert time.monotonic() < deadline, "arrays are kept after the operation's end"
        shunt.init(0, 1).close()
        gc.collect()
    mark("freed")


ENDS = {
    "return": lambda: None,
    "exit": lambda: sys.exit(0),
    "exception": lambda: 1 / 0,
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
    "os._exit": lambda: os._exit(0),
    "atexit": lambda: atexit.register(gc.collect),
    "sigterm": lambda: os.kill(os.getpid(), signal.SIGTERM),
}


def left(what, how):
    """The program ends while an operation is in flight that runs until the
    interpreter has forgotten all modules."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    comm = shunt.init()
    if comm.rank == 1:
        await_mark("left")
        try:
            peer_of(what, comm)
            mark("done")
            comm.close()
        except shunt.ShuntError:
            mark("done")
            assert how in ("os._exit", "sigterm"), how
        return

    def end(mark=mark, await_mark=await_mark):
        mark("left")
        await_mark("done")

    poison.AtTheEnd(end)
    STARTED[what](comm)
    if how in ("os._exit", "sigterm"):
        mark("left")
    ENDS[how]()


def left_for_good():
    """The program ends while an operation is in flight that does not end. If its array is freed, the status is 3."""
    comm = shunt.init()
    if comm.rank == 1:
        sys.stdin.read()  # until rank 0 has ended
        comm.close()
        return

    class Canary:
        def __del__(self, leave=os._exit):
            leave(3)

    array = poison.doubles(LONG, 1)
    array.canary = Canary()
    comm.start("recv", array, 1)


def interrupted_start():
    """Ctrl-C at any moment of start loses no array of what the library has begun."""
    comm = shunt.init()
    if comm.rank == 1:
        await_mark("count")
        for _ in range(int(read("count"))):
            comm.all_reduce(poison.doubles(LONG // 16, 1))
    else:
        armed = False

        def interrupt(*_):
            if armed:  # a signal may come a moment after its timer was stopped
                raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        tries, delay, begun = 300, 20e-6, 0
        for _ in range(tries):
            array = poison.doubles(LONG // 16, 1)
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, delay)
                comm.start("all_reduce", array)
            except KeyboardInterrupt:
                pass
            finally:
                armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            # Towards the moment of beginning, however fast the machine: both sides of it are met.
            delay *= 0.8 if len(_work._in_flight) > begun else 1.25
            begun = len(_work._in_flight)
        del array
        gc.collect()
        kept = len(_work._in_flight)
        assert 0 < kept < tries and kept + len(poison.freed) == tries, (kept, len(poison.freed))
        tell("count", kept)
    comm.barrier()  # no rank has begun more
    comm.close()
    gc.collect()
    assert comm.rank == 1 or len(poison.freed) == tries


def interrupted_call():
    """After a Ctrl-C nothing touches the buffer any more, and it may be freed."""
    comm = shunt.init()
    if comm.rank == 1:
        await_mark("freed")
        try:
            comm.broadcast(poison.doubles(LONG, 1), 1)
            comm.barrier()
        except shunt.AbortedError:
            comm.close()
            return
        raise AssertionError("not aborted")
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        comm.broadcast(poison.doubles(LONG, 1), 1)
        raise AssertionError("not interrupted")
    except KeyboardInterrupt:
        pass
    gc.collect()
    assert len(poison.freed) == 1
    mark("freed")
    comm.close()


def raised_with_work():
    """An exception leaves a with block in which an operation is in flight."""
    try:
        with shunt.init() as comm:
            if comm.rank == 1:
                await_mark("left")
                comm.all_reduce(poison.doubles(LONG, 1))
                comm.barrier()
            else:
                comm.start("all_reduce", poison.doubles(LONG, 1))
                mark("left")
                raise ZeroDivisionError
    except (ZeroDivisionError, shunt.AbortedError):
        pass
    gc.collect()
    assert len(poison.freed) == 1, poison.freed


def registered(until):
    """Memory that peers may reach stays until its registration or communicator is
    closed, whatever the program drops."""
    comm = shunt.init(0, 1)
    kept = comm.register(poison.doubles(LONG, 1))
    comm.register(poison.numbers(LONG, 1))
    gc.collect()
    assert not poison.freed, "registered memory was freed"
    if until == "the end":
        def end(freed=poison.freed, leave=os._exit):
            if freed:
                leave(3)

        poison.AtTheEnd(end)
        return
    if until == "closed":
        kept.close()
        kept.close()
        gc.collect()
        assert len(poison.freed) == 1
    if until == "dropped":
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            del comm, kept
            gc.collect()
        assert [w.category for w in found] == [ResourceWarning], found
        assert not poison.freed, "memory that peers may reach was freed with the communicator"
        return
    comm.close()
    gc.collect()
    assert len(poison.freed) == (1 if until == "communicator closed" else 2)  # this still has one
    kept.close()
    gc.collect()
    assert len(poison.freed) == 2
