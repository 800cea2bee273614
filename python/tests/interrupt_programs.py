"""Programs of ranks that signals interrupt: interrupt_programs.py NAME [arguments]."""

import array
import os
import signal
import sys
import threading
import time

import numpy as np

import way  # noqa: F401

import shunt
from shunt import _interruptible, _running, _work

inside = threading.Event()  # the main thread waits in a call


def noted(method):
    def wrapper(*arguments):
        inside.set()
        return method(*arguments)

    return wrapper


# Where the package is while a call takes longer than its block limit.
_running.Running._settle = noted(_running.Running._settle)
_interruptible._Call.wait = noted(_interruptible._Call.wait)
_work.Work._ends = noted(_work.Work._ends)


def once_inside(number, times=1, handled=None):
    """Sends this process signals once the main thread waits in a call of the
    library; with handled, each as soon as the list says that the one before was."""
    inside.clear()

    def send():
        inside.wait()
        for i in range(times):
            os.kill(os.getpid(), number)
            while handled is not None and len(handled) <= i:
                time.sleep(0.001)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def mark(name=None):
    """Lets the rank continue that waits for the mark, or waits for it."""
    path = os.environ["SHUNT_ID"].removeprefix("file://") + "-mark"
    if name:
        with open(path, "w") as file:
            file.write(name)
        return
    while not os.path.exists(path):
        time.sleep(0.01)


def raises(kind, call):
    begin = time.monotonic()
    try:
        call()
    except kind as error:
        assert time.monotonic() - begin < 20
        return str(error)
    raise AssertionError(f"nothing was raised, want {kind.__name__}")


# What rank 1 waits in, for ranks that do something else.
CALLS = {
    "first call": lambda comm: comm.all_reduce(np.ones(4)),
    "later call": lambda comm: comm.broadcast(np.ones(4)),
    "quickest call": lambda comm: comm.all_reduce(np.ones(1)),
    "large call": lambda comm: comm.broadcast(np.ones(1 << 20)),
    "any buffer": lambda comm: comm.broadcast(array.array("d", [1, 2])),
    "barrier": lambda comm: comm.barrier(),
    "recv": lambda comm: comm.recv(np.ones(4), 2),
    "group": lambda comm: in_group(comm),
    "split": lambda comm: comm.split(0),
    "window": lambda comm: comm.window(100),
}


def in_group(comm):
    with comm.group():
        comm.recv(np.ones(1 << 20), 0)
        comm.recv(np.ones(1 << 20), 2)


def mine(*_):
    raise shunt.TimeoutError("mine")


def blocked(where, error="KeyboardInterrupt"):
    """Rank 1 is interrupted; the others wait for it and get the error. So they do where a handler raises an error of
    the library's, which is not the call's."""
    kind = KeyboardInterrupt
    if error != "KeyboardInterrupt":
        signal.signal(signal.SIGINT, mine)
        kind = shunt.TimeoutError
    with shunt.init() as comm:
        if where != "first call":
            comm.all_reduce(np.ones(1))
            comm.broadcast(np.ones(4), 1)
            comm.barrier()
        if comm.rank != 1:
            text = raises(shunt.AbortedError, lambda: comm.recv(np.ones(3), 1))
        else:
            thread = once_inside(signal.SIGINT)
            raises(kind, lambda: CALLS[where](comm))
            thread.join()
            text = raises(shunt.AbortedError, comm.barrier)
        assert f"rank 1 aborted: interrupted by {error}" in text, text


def window_wait():
    with shunt.init() as comm, comm.window(64) as window:
        if comm.rank == 1:
            once_inside(signal.SIGINT)
            raises(KeyboardInterrupt, lambda: window.wait(0))
            text = raises(shunt.AbortedError, comm.barrier)
        else:
            text = raises(shunt.AbortedError, lambda: window.wait(1))
        assert "rank 1 aborted: interrupted by KeyboardInterrupt" in text, text


def joining():
    """Ranks 0 and 1 wait for rank 2, which never comes; rank 1 is interrupted."""
    rank = int(os.environ["SHUNT_RANK"])
    if rank == 1:
        meeting = os.environ["SHUNT_ID"].removeprefix("file://")
        while not os.path.exists(meeting):
            time.sleep(0.01)
        once_inside(signal.SIGINT)
        raises(KeyboardInterrupt, shunt.init)
    elif rank == 0:
        # Should rank 1 not have reached this one by then, it is missed.
        text = raises(shunt.ShuntError, lambda: shunt.init(timeout=10))
        assert "stopped waiting" in text and "rank 1 " in text or "have not joined" in text, text


def closing(error="KeyboardInterrupt"):
    """Rank 1 is interrupted while it waits, in close, for what it has started."""
    kind = KeyboardInterrupt
    if error != "KeyboardInterrupt":
        signal.signal(signal.SIGINT, mine)
        kind = shunt.TimeoutError
    comm = shunt.init()
    if comm.rank == 1:
        comm.start("recv", np.ones(4), 0)
        once_inside(signal.SIGINT)
        raises(kind, comm.close)
    text = raises(shunt.AbortedError, lambda: comm.recv(np.ones(4), 1 - comm.rank))
    assert f"rank 1 aborted: interrupted by {error}" in text, text
    comm.close()


def handled():
    """Handlers that return run during a call, which then ends well; one of them makes calls of the communicator that
    are refused, another one raises."""
    ran, refusals = [], []

    class Enough(Exception):
        pass

    def handler(number, frame):
        if len(ran) == 2:
            mark("handled")  # the call ends, and the refused ones are behind it
            for call in (comm.all_reduce, comm.all_to_all):
                refusals.append(raises(shunt.InvalidArgumentError, lambda: call(both[:8], both[1:])))
        ran.append(time.monotonic())

    def enough(number, frame):
        raise Enough

    both = np.ones(9)
    with shunt.init() as comm:
        signal.signal(signal.SIGUSR1, handler)
        signal.signal(signal.SIGUSR2, enough)
        ones = np.ones(1000)
        if comm.rank == 1:
            thread = once_inside(signal.SIGUSR1, 3, ran)
            begin = time.monotonic()
            comm.recv(ones, 0)
            thread.join()
            assert len(ran) == 3 and begin < min(ran) and max(ran) < time.monotonic(), ran
            assert len(refusals) == 2, refusals
            assert (ones == 7).all()
            once_inside(signal.SIGUSR2)
            raises(Enough, lambda: comm.recv(ones, 0))
            text = raises(shunt.AbortedError, comm.barrier)
        else:
            mark()  # the other one waits until then
            comm.send(ones * 7, 1)
            text = raises(shunt.AbortedError, lambda: comm.recv(ones, 1))
        assert "rank 1 aborted: interrupted by Enough" in text, text


def work_goes_on():
    """Interrupted, Work.wait lets the operation continue."""
    with shunt.init() as comm:
        ones = np.ones(1000)
        if comm.rank == 1:
            work = comm.start("recv", ones, 0)
            once_inside(signal.SIGINT)
            raises(KeyboardInterrupt, work.wait)
            assert not work.done()
            mark("interrupted")
            comm.start("send", np.ones(1), 0)
            assert (work.wait() == 7).all()
        else:
            mark()
            comm.send(ones * 7, 1)
            comm.recv(np.ones(1), 1)
        comm.barrier()


def storm():
    """Interrupted at any moment, again and again: what is raised is the
    interrupt, or the error of the others; nothing hangs, nothing crashes."""
    with shunt.init() as whole:
        for round in range(12):
            with whole.split(0) as comm:
                try:
                    interrupted_at_any_moment(comm, round) if comm.rank == 1 else comes_late(comm)
                except shunt.AbortedError as error:
                    assert "rank 1 aborted: interrupted by KeyboardInterrupt" in str(error), error
                else:
                    raise AssertionError("nothing was aborted")
            whole.barrier()


def comes_late(comm):
    x = np.ones(100_000)
    while True:
        for _ in range(20):
            comm.all_reduce(x)
            x[:] = 1
        time.sleep(0.15)


def interrupted_at_any_moment(comm, round):
    stop, armed = threading.Event(), []

    def handler(number, frame):
        if armed:  # never while this program handles the one before
            armed.clear()
            raise KeyboardInterrupt

    def send():
        random = np.random.default_rng(round)
        while not stop.wait(random.random() / 50):
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, handler)
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        while True:
            x = np.ones(100_000)
            try:
                armed.append(True)
                while True:
                    comm.all_reduce(x)
                    x[:] = 1
            except KeyboardInterrupt:
                pass
    finally:
        armed.clear()
        stop.set()
        thread.join()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
    globals()[sys.argv[1]](*sys.argv[2:])
