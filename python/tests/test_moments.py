"""Signal handlers at moments that hardly ever come about: each is made to come."""

import ctypes
import os
import signal
import sys
import textwrap
import threading

import numpy as np
import pytest

import shunt
from moments import interrupted_everywhere
from shunt import InvalidArgumentError, _communicator, _interruptible


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
def test_a_handler_comes_while_the_outcome_is_taken(comm, monkeypatch, handler):
    x, seen = np.ones(2), []
    work = comm.start("all_reduce", x)
    take = comm._lib.shunt_request_wait

    def interrupted(request):
        if not seen:
            seen.append(None)
            try:
                seen[0] = {"wait": work.wait, "done": work.done, "close": comm.close}[handler]()
            except shunt.ShuntError as error:
                seen[0] = error
        return take(request)

    monkeypatch.setattr(comm._lib, "shunt_request_wait", interrupted)

    def wait():
        try:
            work.wait()
        except InvalidArgumentError:
            assert handler == "close"

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert work.done()
    if handler == "wait":
        assert isinstance(seen[0], InvalidArgumentError) and work.wait() is x


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

        for number in interrupted_everywhere(step):
            window.put(np.full(1, number), 0)
            assert numbers[0] == number, "it has only joined the group"

