"""Signal handlers at moments that hardly ever come about: each is made to come."""

import ctypes
import itertools
import os
import signal
import sys
import textwrap
import threading

import numpy as np
import pytest

import shunt
from moments import At, Interrupt, interrupted_everywhere
from shunt import _communicator, _interruptible, _library


@pytest.fixture
def comm():
    with shunt.init(0, 1) as made:
        yield made


def call_until(gone, seconds=20):
    """A call that ends well once it is given up."""
    return lambda: "made" if gone.wait(seconds) else None


def test_interrupted_while_its_thread_starts(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    gone, undone = threading.Event(), []
    with pytest.raises(KeyboardInterrupt):
        _interruptible.interruptible(call_until(gone), lambda reason: gone.set(), undone.append)
    assert undone == ["made"]


def test_interrupted_again_while_it_is_given_up(monkeypatch):
    def interrupted(call):
        raise KeyboardInterrupt

    monkeypatch.setattr(_interruptible._Call, "wait", interrupted)
    gone, undone = threading.Event(), threading.Event()

    def give_up(reason):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        _interruptible.interruptible(call_until(gone), give_up, lambda outcome: undone.set())
    gone.set()
    assert undone.wait(20)


FULL_STACK = """
    import ctypes, sys, threading
    import way
    import numpy as np
    import shunt

    identity, made = shunt.unique_id(), {}
    def make(rank):
        made[rank] = shunt.init(rank, 2, identity)
    other = threading.Thread(target=make, args=(1,))
    other.start()
    make(0)
    other.join()
    here, there = made[0], made[1]
    with shunt.init(0, 1) as one:
        one.all_reduce(np.ones(4))  # shows what an array is

    def deep(frames, call):
        return deep(frames - 1, call) if frames else call()

    buffer, peer = np.zeros(4), np.ones(4)
    call = {"all_reduce": lambda: here.all_reduce(buffer), "recv": lambda: here.recv(buffer, 1),
            "barrier": here.barrier, "max": lambda: here.all_reduce(buffer, op="max", dtype="float64")}[sys.argv[1]]
    # Ends what the stack has room for.
    threading.Timer(1, there.abort, ("enough",)).start()
    sys.setrecursionlimit(300)
    for frames in range(299, 0, -1):
        try:
            deep(frames, call)
        except (RecursionError, ctypes.ArgumentError, shunt.AbortedError):  # ctypes makes the second of the first
            pass
        assert here._lib.shunt_continue(here._handle) == shunt.Code.INVALID_ARGUMENT, "it was left pending"
        if here.error is not None:
            break
    sys.setrecursionlimit(1000)
    assert "aborted" in str(here.error)
    here.close()
    there.close()
    assert not buffer.any()
"""


@pytest.mark.parametrize("call", ["all_reduce", "recv", "barrier", "max"])
def test_a_call_on_a_full_stack_leaves_nothing_pending(python, way, call):
    """A call begins where the stack has room for it and not for what continues it."""
    done = python(f"import sys; sys.path.append({os.path.dirname(__file__)!r}); sys.argv = ['', {call!r}]\n"
                  + textwrap.dedent(FULL_STACK))
    assert done.returncode == 0, done.stderr


def test_interrupted_before_the_program_has_the_communicator(comm, monkeypatch):
    handles = []

    def interrupted(self, handle, memory):
        handles.append(handle)
        raise KeyboardInterrupt

    monkeypatch.setattr(_communicator.Communicator, "__init__", interrupted)
    for make in (lambda: comm.split(0), lambda: shunt.init(0, 1)):
        with pytest.raises(KeyboardInterrupt):
            make()
    assert len(handles) == 2
    for handle in handles:
        status = comm._lib.shunt_rank(handle, ctypes.byref(ctypes.c_int32()))
        assert status == shunt.Code.INVALID_ARGUMENT, "it is still there"


@pytest.mark.parametrize("handler", ["wait", "done", "close"])
def test_a_handler_comes_while_the_outcome_is_taken(way, handler):
    """Both have it, whoever takes it."""
    moments, seen = itertools.count(), []
    for number in moments:
        x = np.ones(2)
        with shunt.init(0, 1) as comm:
            work = comm.start("all_reduce", x)
            at = At(number, lambda: seen.append({"wait": work.wait, "done": work.done, "close": comm.close}[handler]()))
            with at:
                result = work.wait()
            assert result is x and work.done() and not comm._works
            assert comm.closed == (handler == "close" and at.number < 0)
        if at.number >= 0:
            break
    assert len(seen) == number > 5
    assert handler == "done" or not [found for found in seen if found is False]


@pytest.mark.parametrize("kind", [Interrupt, shunt.TimeoutError])
def test_what_a_handler_raises_is_not_the_outcome(comm, kind):
    works = []

    def make():
        works.append(comm.start("all_reduce", np.ones(2)))
        return works[-1].wait

    for _ in interrupted_everywhere(make, kind):
        assert works[-1].wait() is works[-1]._result and works[-1].done()
        assert not comm._works, "it is still in flight"


@pytest.mark.parametrize("kind", [Interrupt, shunt.InvalidArgumentError])
def test_a_failed_work_says_how_it_failed_to_those_who_come_later(pair, kind):
    works = []

    def make():
        works.append(pair[0].start("recv", np.ones(2), 1))
        return wait

    def wait():
        with pytest.raises(shunt.AbortedError, match="enough"):
            works[-1].wait()

    pair[0].abort("enough")
    for _ in interrupted_everywhere(make, kind):
        wait()


def test_a_handler_closes_the_communicator_while_an_operation_starts(way):
    for number in itertools.count():
        with shunt.init(0, 1) as comm:
            at, x = At(number, comm.close), np.ones(2)
            try:
                with at:
                    work = comm.start("all_reduce", x)
                assert work.wait() is x
            except shunt.ClosedError as error:
                assert "rank 0" in str(error)
            assert not comm._works
        if at.number >= 0:
            break


def test_a_work_that_close_has_not_seen_says_that_it_is_closed():
    with shunt.init(0, 1) as comm:
        work = comm.start("all_reduce", np.ones(1))
        handle, comm._handle = comm._handle, None
        comm._lib.shunt_close(handle)
        with pytest.raises(shunt.ClosedError, match="all_reduce on rank 0: the communicator was closed"):
            work.wait()


@pytest.mark.parametrize("line", range(6))
def test_a_window_is_closed_while_it_is_closed(comm, line):
    """At each line, as by another thread or a handler."""
    window, seen = comm.window(64), []

    def trace(frame, event, argument):
        if frame.f_code is not shunt.Window.close.__code__:
            return None
        if event == "line":
            seen.append(frame.f_lineno)
            if len(seen) == line + 1:
                window.close()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        window.close()
    finally:
        sys.settrace(before)
    assert len(seen) > line and window._handle is None


def test_a_communicator_is_closed_while_its_window_is(monkeypatch):
    comm = shunt.init(0, 1)
    window, free = comm.window(64), comm._lib.shunt_window_free

    def later(handle):
        comm.close()
        return free(handle)

    monkeypatch.setattr(comm._lib, "shunt_window_free", later)
    window.close()
    assert comm.closed


@pytest.mark.parametrize("depth", [1, 2])
def test_no_group_is_left_open_behind_an_exception(comm, depth):
    """What a program calls after it has caught what a handler raised runs at once."""
    with comm.window(8) as window:
        numbers = np.frombuffer(window.memory, "int64")

        def step(within=depth):
            with comm.group():
                if within > 1:
                    step(within - 1)
                else:
                    window.put(np.full(1, -1), 0)

        for number in interrupted_everywhere(lambda: step):
            window.put(np.full(1, number), 0)
            assert numbers[0] == number, "it has only joined the group"



@pytest.mark.parametrize("kind", [Interrupt, shunt.TimeoutError])
def test_an_interrupted_close_is_completed_or_can_be_called_again(way, kind):
    made = []

    def make():
        made.append(shunt.init(0, 1))
        made.append(made[-1]._handle)
        return made[-2].close

    for _ in interrupted_everywhere(make, kind):
        comm, handle = made[-2:]
        comm.close()
        assert comm.closed
        assert comm._lib.shunt_close(handle) == shunt.Code.INVALID_ARGUMENT, "it was not closed"


def test_an_interrupted_close_of_a_window_is_completed_or_can_be_called_again(comm):
    windows = []

    def make():
        windows.append(comm.window(64))
        windows.append(windows[-1]._handle)
        return windows[-2].close

    for _ in interrupted_everywhere(make):
        window, handle = windows[-2:]
        window.close()
        assert "closed" in repr(window)
        assert comm._lib.shunt_window_free(handle) == shunt.Code.INVALID_ARGUMENT, "it was not freed"


def test_a_handler_uses_the_library_while_it_is_loaded_and_logged(monkeypatch):
    monkeypatch.setattr(_library, "_loaded", None)
    monkeypatch.setattr(_library, "_at_load", {})
    shunt.log_to()  # set up when it is loaded
    ran = []

    def handler():
        ran.append(shunt.version())
        shunt.log_to(None)

    def load():
        for number in itertools.count():
            _library._loaded = None
            at = At(number, handler)
            with at:
                shunt.log_to()
                shunt.version()
                shunt.log_to()
            if at.number >= 0:
                break

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "the handler waits for what it has interrupted"
    shunt.log_to(None)
    assert len(ran) > 20 and set(ran) == {shunt.version()}
