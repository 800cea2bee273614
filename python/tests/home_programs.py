"""Ranks of test_home.py: home_programs.py NAME."""

import array
import sys
import time
import tracemalloc

import numpy as np
import pytest

import shunt
from shunt import InvalidArgumentError, Op


class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("not this one")


def objects(comm):
    mine = {"rank": comm.rank, "x": np.arange(comm.rank + 1)}
    everyone = comm.all_gather_object(mine)
    assert [e["rank"] for e in everyone] == list(range(comm.size)) and everyone[comm.rank] is mine
    assert all((e["x"] == np.arange(i + 1)).all() for i, e in enumerate(everyone))
    for root in range(comm.size):
        assert comm.broadcast_object(("from", comm.rank), root) == ("from", root)
        assert comm.scatter_object([[i] * i for i in range(comm.size)] if comm.rank == root else None,
                                   root) == [comm.rank] * comm.rank
        assert comm.scatter_object(np.arange(comm.size) if comm.rank == root else None, root) == comm.rank
        gathered = comm.gather_object(comm.rank, root)
        assert gathered == (list(range(comm.size)) if comm.rank == root else None)
    after = (comm.rank + 1) % comm.size
    if comm.rank == 0:
        comm.send_object("around", after)
        assert comm.recv_object(comm.size - 1) == "around"
    else:
        comm.send_object(comm.recv_object(comm.rank - 1), after)

    # What is wrong on one rank is an error on all, and the communicator stays usable.
    bad = Unpicklable() if comm.rank == 1 else 1
    with pytest.raises(InvalidArgumentError, match="rank 1 has an object that cannot be pickled"):
        comm.all_gather_object(bad)
    with pytest.raises(InvalidArgumentError, match="broadcast_object on rank .: rank 1 has an object that cannot"):
        comm.broadcast_object(bad, 1)
    with pytest.raises(InvalidArgumentError, match=r"rank 1 has an object of \d+ bytes, pickled; limit= is 100"):
        comm.gather_object("x" * (200 if comm.rank == 1 else 1), limit=100)
    with pytest.raises(InvalidArgumentError, match="the root has 1 values|rank 0 has not one value for each rank"):
        comm.scatter_object([1])
    if comm.rank == 0:
        with pytest.raises(InvalidArgumentError, match="send_object on rank 0: rank 0 has an object that cannot"):
            comm.send_object(Unpicklable(), 1)
        with pytest.raises(InvalidArgumentError, match="limit= is 20"):
            comm.send_object("x" * 100, 1, limit=20)
        comm.send_object("x" * 100, 1)
    elif comm.rank == 1:
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="recv_object: rank 0 could not send its object"):
                comm.recv_object(0)
        with pytest.raises(InvalidArgumentError, match="limit= is 20"):
            comm.recv_object(0, limit=20)
    with comm.group(), pytest.raises(InvalidArgumentError, match="in a group"):
        comm.broadcast_object(1)
    assert comm.all_gather_object(comm.rank) == list(range(comm.size))


def long_objects(comm):
    """Long arrays in an object arrive as they were, and no rank needs memory for more than one copy of them."""
    order, frozen = np.arange(1 << 20).reshape(1 << 10, 1 << 10), np.ones(1 << 20, ">f8")
    frozen.flags.writeable = False
    value = {"c": order, "f": order.copy().T, "frozen": frozen, "twice": [order, order], "strided": order[0, ::2],
             "bytes": bytearray(range(256)), "small": np.arange(3), "empty": np.zeros((0, 3))}
    size = 3 * order.nbytes

    def check(call, sends):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        found = call()
        grown = tracemalloc.get_traced_memory()[1] - before
        assert grown < (0 if sends else size) + size // 8, f"{grown} bytes for an object of {size}"
        if sends:
            return
        assert list(found) == list(value) and found["bytes"] == value["bytes"]
        for name in ("c", "f", "frozen", "strided", "small", "empty"):
            np.testing.assert_array_equal(found[name], value[name])
            for what in ("dtype", "strides") if name not in ("strided", "empty") else ("dtype",):
                assert getattr(found[name], what) == getattr(value[name], what), (name, what)
            assert found[name].flags.writeable == value[name].flags.writeable, name
        assert found["c"] is found["twice"][0] is found["twice"][1]
        found["c"] += 1  # it has memory of its own
        assert found["f"][0, 1] == value["f"][0, 1]

    tracemalloc.start()
    for root in range(comm.size):
        check(lambda: comm.broadcast_object(value if comm.rank == root else None, root), comm.rank == root)
    if comm.rank == 0:
        check(lambda: comm.send_object(value, 1), True)
        with pytest.raises(InvalidArgumentError, match=r"rank 0 has an object of 25\d{6} bytes, pickled; limit="):
            comm.send_object(value, 1, limit=20_000_000)
        comm.send_object(value, 1)
        comm.send_object("behind it", 1)
    elif comm.rank == 1:
        check(lambda: comm.recv_object(0), False)
        with pytest.raises(InvalidArgumentError, match="rank 0 could not send its object"):
            comm.recv_object(0)
        with pytest.raises(InvalidArgumentError, match="limit= is 20000000"):
            comm.recv_object(0, limit=20_000_000)
        assert comm.recv_object(0) == "behind it"
    with pytest.raises(InvalidArgumentError, match="limit= is 20000000"):
        comm.broadcast_object(value, limit=20_000_000)
    comm.barrier()


def numbers(comm):
    world = comm.size
    assert comm.size == comm.world
    total = world * (world + 1) // 2
    found = comm.all_reduce(comm.rank + 1)
    assert found == total and type(found) is int
    found = comm.all_reduce(comm.rank + 1.0)
    assert found == total and type(found) is float
    found = comm.all_reduce(comm.rank + 1, op="AVG")
    assert found == total / world and type(found) is float
    for kind in (np.int64, np.uint8):
        found = comm.all_reduce(kind(comm.rank + 1), op="avg")
        assert found == total / world and found.dtype == np.float64
        found = comm.all_reduce(kind(comm.rank + 1), op="premul_sum", scalar=0.5)
        assert found == total / 2 and found.dtype == np.float64
    found = comm.all_reduce(np.float32(comm.rank + 1), op="Max")
    assert found == world and found.dtype == np.float32
    for kind in (np.float64, np.float32, np.int64, float, int, bool):
        for root in range(world):
            found = comm.broadcast(kind(comm.rank), root)
            assert found == kind(root) and type(found) is kind, (found, kind)
        if kind is not bool:
            found = comm.all_reduce(kind(comm.rank))
            assert found == sum(range(world)) and type(found) is kind, (found, kind)
    assert comm.all_reduce(True) == world
    assert comm.broadcast(comm.rank * 10, world - 1) == (world - 1) * 10
    with pytest.raises(InvalidArgumentError, match="does not fit 64 bits"):
        comm.all_reduce(1 << 63)
    with pytest.raises(InvalidArgumentError, match="number cannot go in a group"), comm.group():
        comm.all_reduce(1)
    x = np.full(3, comm.rank, "float64")
    for op in ("sum", "SUM", "Sum", Op.SUM):
        assert comm.all_reduce(x.copy(), op=op)[0] == sum(range(world))


def moves(comm):
    rank, world = comm.rank, comm.size
    for dtype in ("bool", "int16", "uint16", "complex64", "complex128", "longdouble", "datetime64[s]"):
        # Distinct bit patterns, of which each rank can make those of all.
        def block(r, n=4):
            return np.frombuffer(np.random.default_rng(r).integers(0, 2, n * np.dtype(dtype).itemsize, "uint8"),
                                 dtype).copy()

        want = [block(r) for r in range(world)]
        everyone = np.concatenate(want)
        out = np.zeros(4 * world, dtype)
        assert comm.all_gather(want[rank], out) is out
        assert out.tobytes() == everyone.tobytes(), dtype
        x = want[rank].copy()
        comm.broadcast(x, world - 1)
        assert x.tobytes() == want[-1].tobytes(), dtype
        out = np.zeros(4 * world, dtype)
        comm.all_to_all(np.concatenate([want[rank]] * world), out)
        assert out.tobytes() == everyone.tobytes(), dtype
        # Counts are of the caller's elements: rank r has r + 1 of them, two apart.
        counts, displs = [r + 1 for r in range(world)], [r * (world + 2) for r in range(world)]
        out = np.zeros(world * (world + 2), dtype)
        comm.all_gather_v(block(rank, rank + 1), out, counts, displs)
        for r in range(world):
            assert out[displs[r] : displs[r] + r + 1].tobytes() == block(r, r + 1).tobytes(), dtype
        out = np.zeros(sum(counts), dtype)
        comm.all_to_all_v(np.concatenate([block(rank, rank + 1)] * world), [rank + 1] * world, out, counts)
        assert out.tobytes() == b"".join(block(r, r + 1).tobytes() for r in range(world)), dtype
        out = np.zeros(rank + 1, dtype)
        comm.scatter_v(np.concatenate([block(r, r + 1) for r in range(world)]) if rank == 0 else None, out,
                       counts if rank == 0 else None)
        assert out.tobytes() == block(rank, rank + 1).tobytes(), dtype
        with comm.group():
            comm.send(want[rank], (rank + 1) % world)
            comm.recv(x, (rank - 1) % world)
        assert x.tobytes() == want[rank - 1].tobytes(), dtype
        with pytest.raises(InvalidArgumentError, match="none of Shunt's dtypes"):
            comm.all_reduce(x)
        with pytest.raises(InvalidArgumentError, match=f"want {4 * world}"):
            comm.all_gather(want[rank], np.zeros(3, dtype))
    with pytest.raises(InvalidArgumentError, match="send holds int16, recv holds float16"):
        comm.all_gather(np.zeros(1, "int16"), np.zeros(world, "float16"))
    with pytest.raises(InvalidArgumentError, match="references"):
        comm.broadcast(np.array([None]))
    shorts = array.array("h", [rank, -rank])
    comm.broadcast(shorts, 1)
    assert list(shorts) == [1, -1]


def deadlines(comm):
    for wrong in (0, -1, 0.0001, float("nan"), "soon", 1 << 50):
        with pytest.raises(InvalidArgumentError, match="set_timeout: timeout"):
            comm.set_timeout(wrong)
    comm.set_timeout(0.5)
    late = "waited ([5-9][0-9][0-9]ms|[0-9](.[0-9]+)?s) for the ranks"  # some seconds on a busy machine, never 20
    with pytest.raises(shunt.TimeoutError, match=late + " .* still without rank 1 "):
        while comm.rank == 1 and comm.error is None:
            time.sleep(0.01)
        comm.barrier()


with shunt.init() as made:
    globals()[sys.argv[1]](made)
