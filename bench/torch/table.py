"""torch.distributed over Shunt beside torch's own backend: all_reduce of 8 B to 64 MiB on GPUs, eager and in CUDA
graphs, and the host's time for a call, beside that of a backend which does nothing: torch's own part of a call; "async"
is the host's time for an asynchronous call and its wait. Rank 0 prints a table in Markdown; every result is checked.

    torchrun --nproc-per-node 2 bench/torch/table.py [--largest BYTES] [--seconds S]
    shunt run -n 2 python bench/torch/table.py --device cpu

Backends take turns, block by block; the figure is the median of the blocks' means of the slowest rank, in microseconds.
"""

import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # noqa: F401  registers the backend that does nothing

import shunt.torch  # noqa: F401  registers the backend

CALLS = 20  # of a block


def eager(run, sync) -> float:
    sync()
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    sync()
    return (time.perf_counter() - start) / CALLS * 1e6


def host(run, sync) -> float:
    """The host's time for a call that only enqueues."""
    sync()
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    took = time.perf_counter() - start
    sync()
    return took / CALLS * 1e6


def captured(run):
    """A graph of CALLS calls."""
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            run()
    return graph


def replayed(graph, sync) -> float:
    sync()
    start = time.perf_counter()
    graph.replay()
    sync()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--largest", type=int, default=64 << 20, help="bytes")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--no-graph", action="store_true")
    a = parser.parse_args()
    cuda = a.device == "cuda"
    rank = int(os.environ.get("RANK", 0))
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    other = "nccl" if cuda else "gloo"
    dist.init_process_group("shunt")
    groups = {"shunt": dist.group.WORLD, other: dist.new_group(backend=other)}
    nothing = dist.new_group(backend="fake")
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    world = dist.get_world_size()
    measured = ["host", "async", "eager"] if cuda else ["eager"]
    if cuda and not a.no_graph:
        measured.append("graph")
    if rank == 0:
        print(f"torch {torch.__version__}, {world} ranks on {a.device}; microseconds a call of all_reduce (float32)")
        print("| bytes | host nothing | " + " | ".join(f"{m} {g}" for m in measured for g in groups) + " |")
        print("|--:|--:|" + "--:|" * (len(measured) * len(groups)))
    size = 8
    while size <= a.largest:
        t = torch.zeros(size // 4, device=a.device)
        runs = {name: (lambda g=g: dist.all_reduce(t, group=g)) for name, g in groups.items()}
        started = {name: (lambda g=g: dist.all_reduce(t, group=g, async_op=True).wait()) for name, g in groups.items()}
        for name, run in runs.items():
            t.fill_(rank + 1)
            run()
            if t[-1].item() != world * (world + 1) // 2:
                raise SystemExit(f"rank {rank}: {name} returned {t[-1].item()} for {size} bytes; want "
                                 f"{world * (world + 1) // 2}")
            t.zero_()
            for _ in range(5):
                run()
                started[name]()
        graphs = {name: captured(run) for name, run in runs.items()} if "graph" in measured else {}
        figures: dict = {}
        for _ in range(a.blocks):
            figures.setdefault(("host", "nothing"), []).append(host(lambda: dist.all_reduce(t, group=nothing), sync))
            for name, run in runs.items():
                dist.barrier(device_ids=[torch.cuda.current_device()] if cuda else None)
                figures.setdefault(("eager", name), []).append(eager(run, sync))
                if cuda:
                    figures.setdefault(("host", name), []).append(host(run, sync))
                    figures.setdefault(("async", name), []).append(host(started[name], sync))
                if name in graphs:
                    figures.setdefault(("graph", name), []).append(replayed(graphs[name], sync))
        columns = [("host", "nothing"), *((m, g) for m in measured for g in groups)]
        row = torch.tensor([statistics.median(figures[c]) for c in columns], device=a.device)
        dist.all_reduce(row, dist.ReduceOp.MAX)
        if rank == 0:
            print(f"| {size} | " + " | ".join(f"{x:.1f}" for x in row.tolist()) + " |", flush=True)
        del graphs
        size *= 8 if size < 1 << 20 else 4
    dist.destroy_process_group()


main()
