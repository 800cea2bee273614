"""Ranks that replay different graphs: shunt run -n N python3 gpu_replays.py

Both graphs are captured alike on all ranks; then rank 1 replays the one and the others the other. All must get an error
that names both calls, within a second, and the results of before must stand.
"""

import faulthandler
import os
import sys
import time

import torch

import shunt

KIB = 1024


def pairs():
    """Two calls each: a name, and what one call is on (comm, x, y), for elements of float32."""

    def reduce(n, op="sum", dtype=None):
        return lambda c, x, y: c.all_reduce(typed(x, dtype)[:n], typed(y, dtype)[:n], op=op)

    def gather(n):
        return lambda c, x, y: c.all_gather(x[:n], y[: n * c.world])

    def scatter(n, op="sum"):
        return lambda c, x, y: c.reduce_scatter(x[: n * c.world], y[:n], op=op)

    def spread(n):
        return lambda c, x, y: c.all_to_all(x[: n * c.world], y[: n * c.world])

    def broadcast(n, root):
        return lambda c, x, y: c.broadcast(y[:n], root=root)

    def typed(t, dtype):
        return t if dtype is None else t.view(dtype)

    small, middle, large = 256, 64 * KIB, 8192 * KIB  # LL, LL128 and what meets or stages
    yield "op, LL", reduce(small), reduce(small, "max")
    yield "op, LL128", reduce(middle), reduce(middle, "max")
    yield "op, large", reduce(large), reduce(large, "max")
    yield "dtype, LL", reduce(small), reduce(small, dtype=torch.int32)
    yield "dtype, LL128", reduce(middle), reduce(middle, dtype=torch.int32)
    yield "dtype, large", reduce(large), reduce(large, dtype=torch.int32)
    yield "count, LL", reduce(small), reduce(small - 1)
    yield "count, LL128", reduce(middle), reduce(middle - 1)
    yield "count, large", reduce(large), reduce(large - 1)
    yield "root, LL", broadcast(small, 0), broadcast(small, 1)
    yield "op of reduce_scatter, large", scatter(large // 2), scatter(large // 2, "max")
    yield "count of all_gather, large", gather(large // 2), gather(large // 2 - 1)
    yield "collective, LL", gather(small), spread(small)
    yield "LL and LL128", reduce(small), reduce(middle)
    yield "LL and large", reduce(small), reduce(large)
    yield "LL128 and large", reduce(middle), reduce(large)
    yield "LL and staged", gather(small), scatter(large // 2)
    yield "LL128 and staged", gather(middle), scatter(large // 2)


def captured(comm, call, x, y):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(comm, x, y)
    return graph


def run(world, name, first, second):
    """One pair, on a communicator of its own; returns what is wrong, or None."""
    comm = world.split(0, world.rank)
    x = torch.ones(8192 * KIB, device="cuda")
    y = torch.zeros(8192 * KIB * comm.world, device="cuda")
    calls = [first, second]
    for call in calls * 3:  # known to all, and memory is mapped
        call(comm, x, y)
    torch.cuda.synchronize()
    graphs = [captured(comm, call, x, y) for call in calls]
    for graph in graphs * 2:
        graph.replay()
    torch.cuda.synchronize()
    world.barrier()
    torch.cuda.synchronize()
    y.fill_(-3)
    torch.cuda.synchronize()
    graphs[comm.rank == 1].replay()
    since, wrong = time.monotonic(), None
    while True:
        try:
            comm.barrier()
        except shunt.ShuntError as error:
            took, text = time.monotonic() - since, str(error)
            break
        if time.monotonic() - since > 5:
            return f"{name}: no error in 5 s"
        time.sleep(0.001)
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return f"{name}: {error}"
    if "ranks disagree" not in text or " runs " not in text:
        wrong = f"{name}: {text}"
    elif took > 1:
        wrong = f"{name}: after {took:.2f} s: {text}"
    elif not bool((y == -3).all()):
        wrong = f"{name}: something was stored: {text}"
    if comm.rank == 0:
        print(f"{name}: {1e3 * took:.1f} ms: {text[:300]}", flush=True)
    del graphs
    try:
        comm.close()
    except shunt.ShuntError:
        pass
    return wrong


def main():
    faulthandler.dump_traceback_later(50, exit=True)
    rank = int(os.environ.get("LOCAL_RANK", os.environ.get("SHUNT_RANK", "0")))
    torch.cuda.set_device(rank % torch.cuda.device_count())
    with shunt.init(memory="cuda", timeout=30) as world:
        wrong = [w for w in (run(world, *pair) for pair in pairs()) if w]
    for line in wrong:
        print("WRONG", line, flush=True)
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
