"""Programs whose objects, threads and interpreter end while the library is at work:
life_programs.py NAME [arguments]. They need nothing but the package.

Rank 0 is the one that ends things; rank 1 is its peer, which takes part later and
must see right results or a named error.
"""

import atexit
import gc
import os
import sys
import threading
import time

import poison

import way  # noqa: F401

import shunt
from life_flight import ENDS, STARTED, dropped, interrupted_call, interrupted_start, left  # noqa: F401
from life_flight import left_for_good, raised_with_work, registered  # noqa: F401
from life_marks import LONG, await_mark, mark, same, say

# ---- calls of objects that go ----


def make_closed(comm):
    comm.close()


def make_split(comm):
    part = comm.split(0)
    assert part.world == 2
    part.close()
    comm.close()


def make_window(comm):
    with comm.window(64) as window:
        window.signal(1 - comm.rank)
        window.wait(1 - comm.rank)
    comm.close()


def make_shrunk(comm):
    comm.abort("to be shrunk")
    small = comm.shrink()
    assert small.world == 2
    small.close()
    comm.close()


def make_init(comm):
    comm.close()
    with shunt.init(id=os.environ["SHUNT_ID"] + "-again") as again:
        same(again.all_reduce(poison.doubles(4, again.rank)), 1)


def make_call(comm):
    same(comm.all_reduce(poison.doubles(LONG, comm.rank)), 1)
    comm.close()


def make_start(comm):
    same(comm.start("all_reduce", poison.doubles(LONG, comm.rank)).wait(), 1)
    comm.close()


CALLS = {name.removeprefix("make_"): function for name, function in globals().items() if name.startswith("make_")}


class Owner:
    """Calls the given function when it is destroyed."""

    def __init__(self, call, comm):
        self.call, self.comm = call, comm

    def __del__(self):
        try:
            CALLS[self.call](self.comm)
            say("called\n")
        except BaseException as error:
            say(f"{type(error).__name__}: {error}\n")


owner = None


def when(call, moment):
    """Both ranks call as the object goes."""
    global owner
    owner = Owner(call, shunt.init())
    if moment == "del":
        owner = None
    elif moment == "collected":
        owner.itself, owner = owner, None
        gc.collect()
    elif moment == "atexit":
        def end():
            global owner
            owner = None

        atexit.register(end)
    elif moment == "thread":
        def run():
            global owner
            owner = None

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    elif moment == "thread-local":
        local = threading.local()

        def keep():
            global owner
            local.owner, owner = owner, None

        thread = threading.Thread(target=keep)
        thread.start()
        thread.join()
        assert threading.enumerate() == [threading.main_thread()]
    elif moment == "generator":
        def generate(owned):
            try:
                yield owned
            finally:
                del owned

        owner = generate(owner)
        next(owner)
    else:
        assert moment == "exit"


def with_block_of_generator():
    """A generator that is suspended in a with block is closed by the interpreter's end."""
    def generate():
        with shunt.init() as comm:
            yield comm

    global owner
    owner = generate()
    same(next(owner).all_reduce(poison.numbers(4, 1)), 2)


def not_closed(drop):
    """A program that forgets close ends all the same."""
    global owner
    owner = shunt.init()
    same(owner.all_reduce(poison.numbers(4, 1)), 2)
    if drop == "dropped":
        owner = None
        gc.collect()


# ---- threads ----


def daemon(how):
    """A daemon thread is inside a call at the interpreter's end."""
    comm = shunt.init()
    if comm.rank == 1:
        await_mark("left")
        comm.send(poison.numbers(LONG, 2), 0)
        mark("done")
        try:
            comm.close()
        except shunt.ShuntError:
            pass
        return
    threading.Thread(target=lambda: comm.recv(poison.numbers(LONG, 1), 1), daemon=True).start()
    while not comm.records():  # a thread that is only about to call ends with the interpreter
        time.sleep(0.001)

    def end(mark=mark, await_mark=await_mark):
        mark("left")
        await_mark("done")

    poison.AtTheEnd(end)
    ENDS[how]()


def threads():
    """Threads that start and wait while the collector runs all the time."""
    gc.set_threshold(1)
    comms = []
    for i in range(3):
        comms.append(shunt.init(id=f"{os.environ['SHUNT_ID']}-{i}"))

    def run(comm):
        for n in range(1, 40):
            work = comm.start("all_reduce", poison.numbers(n * 7, comm.rank))
            if n % 3:
                same(work.wait(), 1)
            same(comm.broadcast(poison.doubles(n, comm.rank), n % 2), n % 2)
            loop = [work]
            loop.append(loop)

    running = [threading.Thread(target=run, args=(comm,)) for comm in comms]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    for comm in comms:
        comm.close()
    assert len(poison.freed) > 100


def collected_meanwhile():
    """The collector runs in one thread while another takes outcomes."""
    with shunt.init() as comm:
        stop = threading.Event()

        def collect():
            while not stop.is_set():
                gc.collect()

        thread = threading.Thread(target=collect)
        thread.start()
        for n in range(300):
            work = comm.start("all_reduce", poison.doubles(3, comm.rank))
            if n % 2:
                same(work.wait(), 1)
        stop.set()
        thread.join()
        same(comm.all_reduce(poison.doubles(1, comm.rank)), 1)


# ---- windows ----


def window_alive(what):
    """A program ends while arrays of a window live."""
    if what == "module":
        global owner
        comm = shunt.init()
        window = comm.window(64)
        owner = memoryview(window.memory)
        owner[:1] = b"x"
        return
    with shunt.init() as comm, comm.window(64) as window:
        owner = memoryview(window.memory) if what == "view" else window_array(window)
        owner[:1] = b"x" if what == "view" else 1
        window.signal(1 - comm.rank)
        window.wait(1 - comm.rank)
    # The memory is still there for those that look at it.
    owner[:1] = b"y" if what == "view" else 2
    assert owner[0] == (ord("y") if what == "view" else 2)


def window_array(window):
    import numpy

    return numpy.asarray(window)


# ---- interpreters ----


def in_another_interpreter(code, **how):
    """Runs code in another interpreter of the process; returns what it raises there as text, or None."""
    try:
        import concurrent.interpreters as interpreters  # 3.14
    except ImportError:
        return in_another_old_interpreter(code, **how)
    interpreter = interpreters.create()
    try:
        interpreter.exec(code)
    except interpreters.ExecutionFailed as error:
        return str(error)
    finally:
        interpreter.close()
    return None


def in_another_old_interpreter(code, isolated):
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters

        interpreter, run = interpreters.create("isolated" if isolated else "legacy"), interpreters.exec
    else:
        import _xxsubinterpreters as interpreters

        interpreter, run = interpreters.create(isolated=isolated), interpreters.run_string
    try:
        failure = run(interpreter, code)
    except interpreters.RunFailedError as error:  # before 3.13
        return str(error)
    finally:
        interpreters.destroy(interpreter)
    return failure and failure.formatted


def subinterpreter(kind):
    """The package in another interpreter of the process works or is refused, and ends. Modules come from where those
    of this one do."""
    failure = in_another_interpreter(f"""
import sys
sys.path[:] = {sys.path!r}
import ctypes
import shunt
with shunt.init() as comm:
    numbers = (ctypes.c_double * 2)(1, 1)
    assert comm.all_reduce(numbers)[0] == 2
    assert comm.start("all_reduce", numbers).wait()[0] == 4
    try:
        shunt.log_to()
    except shunt.UnsupportedError as error:
        assert "not the main interpreter" in str(error)
    else:
        raise AssertionError("log_to has set a handler that the library would call in the main interpreter")
""", isolated=kind == "isolated")
    # ctypes of 3.12 is for interpreters that share the GIL.
    assert failure is None or (kind == "isolated" and "_ctypes does not support" in failure), failure
    gc.collect()
    with shunt.init(id=os.environ["SHUNT_ID"] + "-main") as comm:
        comm.barrier()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
