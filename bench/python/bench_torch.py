"""Time of torch.distributed's all_reduce of CPU tensors over gloo and over Shunt, in turn, in the same processes. Rank
0 prints the median of the rounds in microseconds a call, as a table, or as JSON lines:

    torchrun --nproc-per-node 2 bench/python/bench_torch.py [--max BYTES] [--rounds N] [--json]

A call returns when its result is there, so this is what a program waits. Every result is checked. With --cuda tensors
are on GPUs, nccl is gloo's place, and a time is the host's alone: how long the call takes to return.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import shunt.torch  # noqa: F401 (registers the backend)

BATCH_SECONDS = 0.02


def batch(group, tensor, calls: int, cuda: bool) -> float:
    """Microseconds a call over one batch that all ranks begin together."""
    dist.barrier(group=group)
    if cuda:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    elapsed = time.perf_counter() - start
    if cuda:
        torch.cuda.synchronize()
    return elapsed / calls * 1e6


def check(group, name: str, count: int, device) -> None:
    t = torch.full((count,), float(dist.get_rank() + 1), device=device)
    dist.all_reduce(t, group=group)
    want = float(sum(range(1, dist.get_world_size() + 1)))
    if not bool((t == want).all()):
        sys.exit(f"{name}: all_reduce of {count} numbers is wrong: {t}, want {want}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max", type=int, default=1 << 20, metavar="BYTES")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if options.cuda else torch.device("cpu")
    if options.cuda:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group(f"{device.type}:shunt", timeout=datetime.timedelta(seconds=120))
    other = "nccl" if options.cuda else "gloo"
    groups = {other: dist.new_group(backend=other), "shunt": dist.group.WORLD}
    first, size = dist.get_rank() == 0, 8
    if first and not options.json:
        print(f"{'bytes':>9} {other + ' us':>10} {'shunt us':>10} {'ratio':>6}   {dist.get_world_size()} ranks")
    while size <= options.max:
        tensor, times, calls = torch.zeros(size // 4, device=device), {name: [] for name in groups}, {}
        for name, group in groups.items():
            check(group, name, size // 4, device)
            once = torch.tensor([batch(group, tensor, 20, options.cuda)], dtype=torch.float64, device=device)
            dist.broadcast(once, 0, group=group)  # all ranks make as many calls
            calls[name] = max(10, min(5000, int(BATCH_SECONDS * 1e6 / float(once))))
        for _ in range(options.rounds):
            for name, group in groups.items():
                times[name].append(batch(group, tensor, calls[name], options.cuda))
        medians = {name: statistics.median(t) for name, t in times.items()}
        if first and options.json:
            print(json.dumps({"bench": "torch all_reduce", "memory": device.type, "world": dist.get_world_size(),
                              "bytes": size,
                              **{f"{name}_us": round(t, 2) for name, t in medians.items()}}), flush=True)
        elif first:
            print(f"{size:>9} {medians[other]:>10.1f} {medians['shunt']:>10.1f} "
                  f"{medians[other] / medians['shunt']:>6.2f}", flush=True)
        size *= 4 if size < 1 << 19 else 2
    dist.destroy_process_group()


main()
