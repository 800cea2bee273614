"""What groups cost: device memory and time of 1, 8 and 32 groups of torch.distributed over Shunt, which are made with
their first collective. Rank 0 prints a table in Markdown; every result is checked.

    torchrun --nproc-per-node 4 bench/torch/groups.py

Each row makes so many groups of all ranks, calls all_reduce of 8 bytes in each, then of 256 KiB, then a send and a recv
between two ranks, and destroys them. Memory counts the decrease of the GPU's free memory, divided by the ranks that
use the GPU, in MiB a rank.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist

import shunt.torch  # noqa: F401  registers the backend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 8, 32], help="groups")
    counts = parser.parse_args().counts
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("shunt")
    rank, world = dist.get_rank(), dist.get_world_size()
    sharing = -(-world // torch.cuda.device_count())

    def settled() -> int:
        """Free memory when no rank does anything."""
        torch.cuda.synchronize()
        dist.barrier()
        free = torch.cuda.mem_get_info()[0]
        dist.barrier()
        return free

    def timed(run) -> float:
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        took = torch.tensor([time.perf_counter() - start], device=device)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        return took.item()

    def reduce(groups, count: int) -> None:
        for group in groups:
            t = torch.full((count,), float(rank + 1), device=device)
            dist.all_reduce(t, group=group)
            if (t != world * (world + 1) / 2).any():
                raise SystemExit(f"rank {rank}: a wrong sum of {count} elements")

    def message(groups) -> None:
        for group in groups:
            t = torch.full((10,), float(rank), device=device)
            if rank == 0:
                dist.send(t, 1, group=group)
            elif rank == 1:
                dist.recv(t, 0, group=group)
                if (t != 0).any():
                    raise SystemExit("rank 1: a wrong message")

    whole = torch.ones(1, device=device)
    dist.all_reduce(whole)
    timed(lambda: None)
    if rank == 0:
        print("| groups | made, ms each | 8 B, MiB | 256 KiB, MiB | ms each | send, recv, MiB | left, MiB |")
        print("|--:|--:|--:|--:|--:|--:|--:|")
    for count in counts:
        before = settled()
        groups = []

        def make(count=count, groups=groups) -> None:
            groups += [dist.new_group() for _ in range(count)]
            reduce(groups, 2)

        steps = [timed(make), settled()]
        steps += [timed(lambda: reduce(groups, 65536)), settled()]
        steps += [timed(lambda: message(groups)), settled()]
        for group in groups:
            dist.destroy_process_group(group)
        left = before - settled()
        used = [(before - free) / sharing / (1 << 20) for free in steps[1::2]]
        if rank == 0:
            print(f"| {count} | {steps[0] * 1e3 / count:.1f} | {used[0]:.0f} | {used[1]:.0f} | "
                  f"{steps[2] * 1e3 / count:.1f} | "
                  f"{used[2]:.0f} | {left / sharing / (1 << 20):.0f} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
