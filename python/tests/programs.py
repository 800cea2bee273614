"""Programs that the tests run as ranks: programs.py NAME [arguments]."""

import array
import io
import json
import os
import pathlib
import signal
import sys
import threading
import time

import numpy as np

import way  # noqa: F401

import shunt


def value(rank, n, dtype="float32", start=0):
    """Small whole numbers, whose sums are exact in every dtype."""
    return ((rank * 3 + np.arange(start, start + n)) % 5).astype(dtype)


def total(world, n, dtype="float32", start=0):
    return sum(value(r, n, "int64", start) for r in range(world)).astype(dtype)


def same(a, b):
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


DTYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def collectives():
    with shunt.init() as comm:
        rank, world = comm.rank, comm.world
        for n in (0, 1, 7, 5001):
            for dtype in DTYPES:
                reductions(comm, rank, world, n, dtype)
            copies(comm, rank, world, n)
            point_to_point(comm, rank, world, n)
        varying(comm, rank, world)
        memories(comm, rank, world)
        started(comm, rank, world)
        sub_groups(comm, rank, world)
        windows(comm, rank, world)
        assert "shm" in comm.explain("all_reduce", 1000)
        comm.barrier()
    assert comm.closed
    comm.close()


def reductions(comm, rank, world, n, dtype):
    mine = value(rank, n, dtype)
    out = np.zeros(n, dtype)
    assert comm.all_reduce(mine, out) is out
    same(out, total(world, n, dtype))
    stack = np.stack([value(r, n, "int64") for r in range(world)])
    for op, want in ((shunt.Op.MAX, stack.max(0)), ("min", stack.min(0)), ("sum", stack.sum(0))):
        comm.all_reduce(mine, out, op)
        same(out, want.astype(dtype))
    if world <= 3:
        same(comm.all_reduce(mine, out, "prod"), stack.prod(0).astype(dtype))
    if np.issubdtype(dtype, np.floating):
        same(comm.all_reduce(mine, out, "premul_sum", scalar=rank + 1), sum((r + 1) * stack[r] for r in range(world)))
    for root in range(world):
        result = comm.reduce(mine, out if rank == root else None, root)
        if rank == root:
            same(result, total(world, n, dtype))
        else:
            assert result is None
    block = np.zeros(n, dtype)
    same(comm.reduce_scatter(value(rank, n * world, dtype), block), total(world, n, dtype, rank * n))
    copy = mine.copy()
    assert comm.all_reduce(copy) is copy
    same(copy, total(world, n, dtype))


def copies(comm, rank, world, n):
    for root in range(world):
        buffer = value(rank, n).reshape(1, n, 1)
        comm.broadcast(buffer, root)
        same(buffer.ravel(), value(root, n))
    everyone = np.concatenate([value(r, n) for r in range(world)])
    out = np.zeros(n * world, "float32")
    same(comm.all_gather(value(rank, n), out), everyone)
    in_place = np.zeros((world, n), "float32")
    in_place[rank] = value(rank, n)
    same(comm.all_gather(in_place[rank], in_place).ravel(), everyone)
    mine = value(rank, n * world)
    same(comm.all_to_all(mine, out), np.concatenate([value(r, n, start=rank * n) for r in range(world)]))
    for root in range(world):
        result = comm.gather(value(rank, n), out if rank == root else None, root)
        if rank == root:
            same(result, everyone)
        part = np.zeros(n, "float32")
        comm.scatter(mine if rank == root else None, part, root)
        same(part, value(root, n, start=rank * n))


def point_to_point(comm, rank, world, n):
    right, left = (rank + 1) % world, (rank - 1) % world
    received = np.zeros(n, "float32")
    with comm.group():
        comm.send(value(rank, n), right)  # a temporary: the group keeps it
        with comm.group():
            comm.recv(received, left)
    same(received, value(left, n))
    if world > 1:
        if rank == 0:
            comm.send(value(0, n), 1)
        elif rank == 1:
            same(comm.recv(received, 0), value(0, n))


def varying(comm, rank, world):
    counts = [2 * r + 1 for r in range(world)]
    displs = [sum(counts[:r]) + r for r in range(world)]
    out = np.full(displs[-1] + counts[-1], -1, "float32")
    comm.all_gather_v(value(rank, counts[rank]), out, counts, displs)
    for r in range(world):
        same(out[displs[r]:displs[r] + counts[r]], value(r, counts[r]))
        if r + 1 < world:
            assert out[displs[r] + counts[r]] == -1
    block = np.zeros(counts[rank], "float32")
    comm.reduce_scatter_v(value(rank, sum(counts)), block, counts)
    same(block, total(world, counts[rank], start=sum(counts[:rank])))
    for root in range(world):
        is_root = rank == root
        packed = np.zeros(sum(counts), "float32") if is_root else None
        comm.gather_v(value(rank, counts[rank]), packed, counts if is_root else None, root=root)
        if is_root:
            same(packed, np.concatenate([value(r, counts[r]) for r in range(world)]))
        comm.scatter_v(value(rank, sum(counts)) if is_root else None, block, counts if is_root else None, root=root)
        same(block, value(root, counts[rank], start=sum(counts[:root * 0 + rank])))
    to = [rank + 2 * r for r in range(world)]
    come = [r + 2 * rank for r in range(world)]
    send = np.concatenate([np.full(to[r], 100 * rank + r, "int32") for r in range(world)])
    recv = np.zeros(sum(come), "int32")
    comm.all_to_all_v(send, to, recv, come)
    same(recv, np.concatenate([np.full(come[r], 100 * r + rank, "int32") for r in range(world)]))
    rows, theirs = np.repeat(send, 3).astype("complex128"), np.zeros(3 * sum(come) + 3, "complex128")
    comm.all_to_all_v(rows, to, theirs, come, recv_displs=[1 + sum(come[:r]) for r in range(world)], row=3)
    same(theirs, np.concatenate([[0, 0, 0], np.repeat(recv, 3)]).astype("complex128"))


class Lent:
    """An array that can only be had through DLPack, as torch tensors."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def memories(comm, rank, world):
    """Everything that is no numpy array, and types that numpy lacks."""
    a = array.array("d", [rank, 1.0])
    comm.all_reduce(a)
    assert list(a) == [sum(range(world)), world]
    b = bytearray([rank, 1])
    comm.all_reduce(b, op="max")
    assert list(b) == [world - 1, 1]
    gathered = bytearray(2 * world)
    comm.all_gather(bytes([rank, 7]), gathered)  # read-only send
    assert gathered == b"".join(bytes([r, 7]) for r in range(world))
    lent = Lent(np.arange(6, dtype="float32").reshape(2, 3))
    comm.all_reduce(lent)
    same(lent.array, np.arange(6).reshape(2, 3) * world)
    frozen = np.arange(3, dtype="int32")
    frozen.flags.writeable = False
    same(comm.all_reduce(frozen, np.zeros(3, "int32")), np.arange(3) * world)
    raw = np.full(4, 0x3F80, "uint16")  # 1.0 in bfloat16
    comm.all_reduce(raw, dtype="bfloat16")
    same(raw.astype("uint32") << 16, np.full(4, world, "float32").view("uint32"))
    try:
        import ml_dtypes
    except ImportError:
        print("ml_dtypes is absent: bfloat16 and float8 arrays are not run")
    else:
        for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            ones = np.ones(5, dtype)
            comm.all_reduce(ones)
            same(ones.astype("float32"), np.full(5, world))


def started(comm, rank, world):
    outs = [np.zeros(100, "float32") for _ in range(10)]
    works = [comm.start("all_reduce", value(rank, 100) * k, out) for k, out in enumerate(outs)]
    for k, work in enumerate(works):
        assert work.wait() is outs[k]
        assert work.done() and work.wait() is outs[k]
        same(outs[k], total(world, 100) * k)
    for _ in range(50):
        comm.start("all_gather", value(rank, 1000), np.zeros(1000 * world, "float32"))  # dropped at once
    comm.barrier()
    comm.start("barrier").wait(timeout=30)


def sub_groups(comm, rank, world):
    with comm.split(rank % 2, key=-rank) as half:
        assert half.world == (world + 1 - rank % 2) // 2
        assert half.rank == half.world - 1 - rank // 2
        x = np.ones(1)
        assert half.all_reduce(x)[0] == half.world
    alone = comm.split(3 if rank == 0 else None)
    assert (alone is None) == (rank != 0)
    if alone is not None:
        alone.close()


def windows(comm, rank, world):
    right, left = (rank + 1) % world, (rank - 1) % world
    with comm.window(400) as window:
        comm.barrier()
        window.put(value(rank, 50), right, offset=40)
        window.signal(right)
        window.wait(left)
        same(np.frombuffer(bytes(window.memory[40:240]), "float32"), value(left, 50))
        comm.barrier()
        same(window.get(np.zeros(50, "float32"), right, 40), value(rank, 50))
        comm.barrier()
        for part in range(3):  # one wait for three signals
            time.sleep(0.01 * rank * part)
            window.put(value(rank + part, 10), right, offset=40 * part)
            window.signal(right)
        window.wait(left, 3)
        got = np.frombuffer(bytes(window.memory[:120]), "float32")
        same(got, np.concatenate([value(left + part, 10) for part in range(3)]))
        comm.barrier()


def dies(victim):
    """Rank victim kills itself; the errors of the others must name it."""
    comm = shunt.init()
    x = np.zeros(1000)
    calls = 0
    try:
        while True:
            comm.all_reduce(x)
            calls += 1
            if calls == 20 and comm.rank == int(victim):
                os.kill(os.getpid(), signal.SIGKILL)
    except shunt.PeerDiedError as err:
        assert f"rank {victim}" in str(err), err
    rest = comm.shrink()
    assert rest.world == comm.world - 1
    assert rest.all_reduce(np.ones(1))[0] == rest.world
    rest.close()
    comm.close()


def stays_away():
    """Rank 1 never calls: rank 0 gets an error that names it, in time."""
    comm = shunt.init(timeout=4)  # of joining too
    if comm.rank == 1:
        sys.stdin.read()  # ends when rank 0 has ended
        return
    begin = time.monotonic()
    try:
        comm.barrier()
    except shunt.TimeoutError as err:
        assert "rank 1" in str(err), err
        assert 3 < time.monotonic() - begin < 10
        comm.close()
    else:
        raise AssertionError("barrier returned without rank 1")


def refuses(call):
    """Rank 1 gives arguments that are refused before the library sees them, and stays. Each rank prints its error."""
    comm = shunt.init(timeout=3)
    x, y = np.zeros(6, "float32"), np.zeros(12, "float32")
    right = {"all_reduce": (x, x.copy()), "broadcast": (x, 0), "all_gather_v": (x, y, [6, 6]), "reduce": (x, None, 0),
             "send": (x, 1), "number": (1,), "window": (8,), "split": (0,), "register": (x,),
             "stream": (x,), "started": ()}
    wrong = {"all_reduce": (x, y), "broadcast": (x[::2], 0), "all_gather_v": (x, y, [6]), "reduce": (x, None, "zero"),
             "send": (["text"], 0), "number": (1 << 70,), "window": ("x",), "split": (1 << 40,), "register": (x[:0],),
             "stream": (x,), "started": ("barrier",)}
    comm.barrier()
    name, awaits = {"number": ("all_reduce", "all_reduce"), "send": ("send", "recv"),
                    "stream": ("all_reduce", "all_reduce"), "started": ("start", "barrier")}.get(call, (call, call))
    how = {"symmetric": True} if call == "register" else {}
    if comm.rank == 1 and call in ("stream", "started"):
        how["stream"] = 7
    try:
        if comm.rank == 1:
            getattr(comm, name)(*wrong[call], **how)
        else:
            getattr(comm, awaits)(*right[call], **how)
    except (shunt.ShuntError, TypeError, ValueError) as error:
        print(error)
    if comm.rank == 1:
        sys.stdin.read()  # ends when rank 0 has ended
    comm.close()


def aborts():
    """A thread aborts the call that blocks the main thread, on every rank."""
    comm = shunt.init()
    if comm.rank == 0:
        entered = threading.Event()

        def abort():
            entered.wait()
            comm.abort("changed my mind")

        thread = threading.Thread(target=abort)
        thread.start()
        entered.set()
    try:
        while True:
            comm.recv(np.zeros(4), (comm.rank + 1) % comm.world)  # no rank sends
    except shunt.AbortedError as err:
        assert "changed my mind" in str(err), err
    comm.close()


def closes_during_a_call():
    """The call that another thread's close waits for says itself how it ended."""
    with shunt.init() as side:
        comm = side.split(0)
        if comm.rank == 1:
            side.barrier()
            comm.abort("nobody comes")
            side.barrier()
            return
        waits, told = threading.Event(), []
        settle = comm._settle

        def settled(*arguments):
            waits.set()
            return settle(*arguments)

        def call():
            try:
                comm.all_reduce(np.ones(4, "float32"))
            except shunt.ShuntError as err:
                told.append(err)

        comm._settle = settled
        threads = [threading.Thread(target=call), threading.Thread(target=comm.close)]
        threads[0].start()
        assert waits.wait(20)
        threads[1].start()
        while not comm.closed:
            time.sleep(0.001)
        side.barrier()  # rank 1 may end it
        for thread in threads:
            thread.join()
        side.barrier()
        error, = told
        assert isinstance(error, shunt.AbortedError)
        assert "all_reduce on rank 0: rank 1 aborted: nobody comes" in str(error), error
        try:
            comm.barrier()
            raise AssertionError("a closed communicator is of use")
        except shunt.ClosedError:
            pass


def asks():
    """One thread reads the error and the records all the time, while the main
    thread is inside a call that never completes; a third aborts."""
    comm = shunt.init()
    assert comm.error is None  # behind the call rank 0 may have aborted
    comm.all_reduce(np.zeros(10))
    entered, told = threading.Event(), []

    def ask():
        failure = None
        while failure is None:
            failure = comm.error
            operations = comm.records()
            if operations[-1]["collective"] == "recv" and operations[-1]["state"] == "running":
                entered.set()
        told.append(failure)

    def abort():
        assert entered.wait(30)
        comm.abort("changed my mind")

    threads = [threading.Thread(target=ask)] + [threading.Thread(target=abort)] * (comm.rank == 0)
    for thread in threads:
        thread.start()
    try:
        comm.recv(np.zeros(4), (comm.rank + 1) % comm.world)  # no rank sends
    except shunt.AbortedError as err:
        raised = err
    for thread in threads:
        thread.join()
    assert "rank 0 aborted: changed my mind" in str(raised)
    assert len(told) == 1 and type(told[0]) is shunt.AbortedError, told
    assert f"communicator world on rank {comm.rank} has failed: rank 0 aborted: changed my mind" in str(told[0])
    assert comm.error is not told[0] and str(comm.error) == str(told[0])
    ran = [(o["number"], o["collective"], o["state"]) for o in comm.records()]
    want = [(1, "all_reduce", "ended"), (2, "recv", "failed")]
    assert ran == want or comm.rank != 0 and ran == want[:1], ran  # others may have heard of it before they called
    text = io.StringIO()
    comm.write_records(text)
    report = json.loads(text.getvalue())
    assert text.getvalue().endswith("}\n") and text.getvalue().count("\n") == 1
    assert [(o["number"], o["collective"], o["state"]) for o in report.pop("operations")] == ran
    last = {"number": 1, "collective": "recv", "state": "called", "peer": (comm.rank + 1) % comm.world}
    before = {"number": 1, "collective": "all_reduce", "state": "ended"}
    assert report["last"] == last or len(ran) == 1 and report["last"] == before, report
    assert report.pop("last") and len(report.pop("job")) == 32
    assert report.pop("pid") == os.getpid() and report.pop("host")
    assert report == {
        "communicator": "world", "rank": comm.rank, "world": comm.world, "code": "aborted",
        "failure": "rank 0 aborted: changed my mind",
    }
    comm.close()


def watches(program, directory):
    """The guide's watchdog: it ends without a word where nothing fails, and writes
    the records where something does."""
    import runpy

    os.chdir(directory)
    watch = runpy.run_path(program)["watch"]
    for fails in (False, True):
        comm, done = shunt.init() if fails else shunt.init(0, 1), threading.Event()
        thread = threading.Thread(target=watch, args=(comm, done))
        thread.start()
        try:
            comm.barrier()
        except shunt.AbortedError:  # the other rank has seen its end before
            assert comm.rank == 0 and fails
        if not fails:
            done.set()
        elif comm.rank == 1:
            comm.abort("for the test")
        thread.join()
        assert (comm.error is not None) == fails
        comm.close()


def keeps(number):
    """The recorder keeps as many operations as was set."""
    with shunt.init() as comm:
        for _ in range(9):
            comm.barrier()
        assert [r["number"] for r in comm.records()] == list(range(10 - int(number), 10))


def plugin_dies(told):
    """The plugin's process is killed: that is raised once, by the first call that meets it."""
    comm = shunt.init()
    window = comm.window(64)
    comm.barrier()
    children = pathlib.Path("/proc/self/task").glob("*/children")
    (plugin,) = [int(pid) for file in children for pid in file.read_text().split()]
    os.kill(plugin, signal.SIGKILL)
    try:
        if told == "call":
            while True:
                comm.barrier()
        elif told == "error":
            while comm.error is None:
                pass
            raise comm.error
        elif told == "window":
            window.close()
            raise AssertionError("the window was closed as if nothing had happened")
        comm.close()
    except shunt.PluginDiedError as err:
        assert "signal 9" in str(err)
    else:
        raise AssertionError("nobody was told")
    assert comm.closed == (told == "close")
    comm.close()
    assert comm.closed and "closed" in repr(window)


def raises():
    """An exception in a with block aborts, so that no rank waits for this one."""
    try:
        with shunt.init() as comm:
            if comm.rank == 0:
                raise ValueError("of the program")
            comm.barrier()
    except ValueError:
        assert comm.rank == 0
    except shunt.AbortedError as err:
        assert comm.rank != 0 and "of the program" in str(err), err


def example(path, fault, *arguments):
    """Runs an example as its users do, or with one wrong element on rank 1."""
    import runpy

    if fault == "flip" and os.environ["SHUNT_RANK"] == "1":
        from shunt import Communicator, Work

        wait, all_to_all_v = Work.wait, Communicator.all_to_all_v
        flipped = []

        def flip(array):
            if len(flipped) == 0 and array.size > 5:
                array.flat[5] += 0.25
                flipped.append(True)
            return array

        Work.wait = lambda self, timeout=None: flip(wait(self, timeout))
        Communicator.all_to_all_v = lambda self, *a, **k: flip(all_to_all_v(self, *a, **k))
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
