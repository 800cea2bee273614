"""Programs whose objects, threads and interpreter end while the library is at work:
life_programs.py NAME [arguments]. They need nothing but the package.

Rank 0 is the one that ends things; rank 1 is its peer, which takes part later and
must see right results or a named error.
"""

import atexit
import gc
import os
import signal
import sys
import threading
import time
import warnings

import poison

import way  # noqa: F401

import shunt
from shunt import _work

#: More bytes than what ranks exchange by words or copies that return early.
LONG = 1 << 18


MARKS = os.environ.get("SHUNT_ID", "").removeprefix("file://") + "-"


# Both work where no module is left.
def mark(name, open=os.open, close=os.close, marks=MARKS, flags=os.O_CREAT | os.O_WRONLY):
    close(open(marks + name, flags))


def await_mark(name, stat=os.stat, sleep=time.sleep, marks=MARKS):
    while True:
        try:
            return stat(marks + name)
        except FileNotFoundError:
            sleep(0.001)


def say(text, write=os.write):
    write(1, text.encode())


def same(array, value):
    assert array[0] == value and array[-1] == value, (array[0], array[-1], value)


# ---- what is in flight, and what is left of it ----


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
    """The program ends while an operation is in flight that goes on until the
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
    """Calls what it was told to call when it goes."""

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
    inside = threading.Event()

    def run():
        array = poison.numbers(LONG, 1)
        inside.set()
        comm.recv(array, 1)

    threading.Thread(target=run, daemon=True).start()
    inside.wait()

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


# ---- interrupts and errors ----


def interrupted_start():
    """Ctrl-C at any moment of start loses no array of what the library has begun."""
    comm = shunt.init()
    if comm.rank == 1:
        await_mark("count")
        for _ in range(int(read("count"))):
            comm.all_reduce(poison.doubles(LONG // 16, 1))
    else:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        tries = 0
        # Until some have begun and some have not, which takes longer on a busy machine.
        while tries < 300 or (not 0 < len(_work._in_flight) < tries and tries < 5000):
            tries, i = tries + 1, tries
            array = poison.doubles(LONG // 16, 1)
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-6 * (i % 50 + 1))
                try:
                    comm.start("all_reduce", array)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
        del array
        gc.collect()
        kept = len(_work._in_flight)
        assert 0 < kept < tries and kept + len(poison.freed) == tries, (kept, len(poison.freed))
        tell("count", kept)
    comm.barrier()  # no rank has begun more
    comm.close()
    gc.collect()
    assert comm.rank == 1 or len(poison.freed) == tries


def tell(name, number):
    with open(MARKS + "new", "w") as file:
        file.write(str(number))
    os.rename(MARKS + "new", MARKS + name)


def read(name):
    with open(MARKS + name) as file:
        return file.read()


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


def subinterpreter():
    """The package in another interpreter of the process works or is refused, and ends."""
    try:
        import concurrent.interpreters as interpreters  # 3.14
    except ImportError:
        print("no concurrent.interpreters")
        with shunt.init() as comm:
            comm.barrier()
        return
    interpreter = interpreters.create()
    try:
        interpreter.exec("import shunt\nwith shunt.init() as comm:\n    assert comm.all_reduce((__import__('ctypes').c_double * 2)(1, 1))[0] == 2\n")
        print("works")
    except interpreters.ExecutionFailed as error:
        print(f"refused: {error}")
    interpreter.close()
    gc.collect()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
