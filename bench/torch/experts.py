"""shunt.torch.all_to_all_single as mixtures of experts call it, with new split sizes in every call.

    torchrun --nproc-per-node 2 bench/torch/experts.py [--calls 60000] [--largest BYTES]
    shunt run -n 2 python bench/torch/experts.py --device cpu --calls 600

First --calls calls, half of them with split sizes in lists and half, on GPUs, with split sizes in device tensors, and
every result is checked on the device; memory of the device, of the process, and the process's open files are compared
between the first tenth and the end. Then ratios: Shunt with lists and with device tensors beside torch's own backend
with lists, for distributions of the rows that gates make, by mean bytes a pair. Backends take turns; a figure is the
median of the blocks' means of the slowest rank, in microseconds. The host's wait for split sizes that were computed on
the GPU, which lists need, is not in the figures of lists.
"""

import argparse
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import shunt.torch  # noqa: F401  registers the backend
from shunt.torch import all_to_all_single

WIDTH = 128  # elements of a row, bfloat16: 256 bytes
TABLES = 64  # different split sizes of one figure
ROWS = 64  # of one pair at most, in the calls that are checked
SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22]  # mean bytes of a pair


def zipf(world: int, rows: int, g: torch.Generator) -> torch.Tensor:
    """Rank r of a random order gets a share of 1/(r+1)."""
    weights = 1 / torch.arange(1.0, world + 1)
    shares = torch.stack([weights[torch.randperm(world, generator=g)] for _ in range(world)])
    return (shares / shares.sum(1, keepdim=True) * rows * world).long()


def one_hot(world: int, rows: int, g: torch.Generator) -> torch.Tensor:
    """Every rank sends all it has to one."""
    table = torch.zeros(world, world, dtype=torch.int64)
    table[torch.arange(world), torch.randint(0, world, (world,), generator=g)] = rows * world
    return table


def empty_expert(world: int, rows: int, g: torch.Generator) -> torch.Tensor:
    """No rank sends anything to one of them."""
    table = torch.full((world, world), rows * world // max(1, world - 1))
    table[:, torch.randint(0, world, (1,), generator=g)] = 0
    return table


def uniform(world: int, rows: int, g: torch.Generator) -> torch.Tensor:
    return torch.full((world, world), rows)


def random(world: int, rows: int, g: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 2 * rows + 1, (world, world), generator=g)


def nothing(world: int, rows: int, g: torch.Generator) -> torch.Tensor:
    return torch.zeros(world, world, dtype=torch.int64)


DISTRIBUTIONS = {"uniform": uniform, "random": random, "zipf": zipf, "one-hot": one_hot, "empty expert": empty_expert,
                 "zero rows": nothing}


class Job:
    def __init__(self, a: argparse.Namespace) -> None:
        self.a, self.cuda = a, a.device == "cuda"
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device(a.device, torch.cuda.current_device()) if self.cuda else torch.device("cpu")
        self.sync = torch.cuda.synchronize if self.cuda else (lambda: None)

    def used(self) -> tuple[int, int, int]:
        """MiB of the device, MiB of this process, open files."""
        self.sync()
        dist.barrier()
        free = torch.cuda.mem_get_info()[0] >> 20 if self.cuda else 0
        with open("/proc/self/statm", encoding="ascii") as f:
            resident = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
        files = len(os.listdir("/proc/self/fd"))
        dist.barrier()
        return -free, resident, files


def checked(job: Job) -> str:
    """Row i of what rank s sends to r in call c is c + 1000 s + 100 r + i modulo 251, in all its elements."""
    world, rank, device = job.world, job.rank, job.device
    room = ROWS * world
    send, recv = (torch.zeros(room, 16, dtype=torch.int32, device=device) for _ in range(2))
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    rows = torch.arange(room, device=device)
    g = torch.Generator().manual_seed(11)
    names, started, first, tables = list(DISTRIBUTIONS), time.perf_counter(), None, None

    def spread(splits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """For each row of the room: its peer, and its number in the peer's part."""
        ends = splits.cumsum(0)
        peer = torch.searchsorted(ends, rows, right=True).clamp_(max=world - 1)
        return peer, rows - (ends - splits)[peer]

    for call in range(job.a.calls):
        if call % 256 == 0:
            every = [DISTRIBUTIONS[names[(call + i) % len(names)]](world, int(torch.randint(1, ROWS // 2, (1,),
                     generator=g)), g).clamp_(max=ROWS) for i in range(256)]
            tables = torch.stack(every)
            to, come = tables[:, rank].contiguous(), tables[:, :, rank].contiguous()
            to_device, come_device = to.to(device), come.to(device)
            lists = list(zip(come.tolist(), to.tolist(), strict=True))
        i = call % 256
        peer, number = spread(to_device[i])
        send.copy_(((call + 1000 * rank + 100 * peer + number) % 251)[:, None].expand_as(send))
        if job.cuda and call % 2:
            all_to_all_single(recv, send, come_device[i], to_device[i])
        else:
            all_to_all_single(recv[:sum(lists[i][0])], send[:sum(lists[i][1])], *lists[i])
        source, number = spread(come_device[i])
        want = (call + 1000 * source + 100 * rank + number) % 251
        wrong += ((recv != want[:, None]).any(1) & (rows < come_device[i].sum())).sum()
        if call == job.a.calls // 10:
            first = job.used()
    last = job.used()
    took = time.perf_counter() - started
    bad = wrong.reshape(1).clone()
    dist.all_reduce(bad)
    grown = [b - a for a, b in zip(first, last, strict=True)]
    if job.rank == 0:
        print(f"{job.a.calls} calls with new split sizes in {took:.1f} s: {int(bad)} rows wrong; device memory "
              f"{grown[0]:+d} MiB, process {grown[1]:+d} MiB, open files {grown[2]:+d}", flush=True)
    return f"{int(bad)} rows are wrong" if int(bad) else f"grown by {grown}" if max(grown[0], grown[1] - 32) > 0 else ""


def block(job: Job, calls: list) -> float:
    job.sync()
    start = time.perf_counter()
    for call in calls:
        call()
    job.sync()
    return (time.perf_counter() - start) / len(calls) * 1e6


def ratios(job: Job) -> None:
    other = "nccl" if job.cuda else "gloo"
    group = dist.new_group(backend=other)
    world, rank = job.world, job.rank
    if rank == 0:
        print(f"\n| distribution | mean bytes a pair | shunt, lists | shunt, device | {other}, lists | lists |"
              " device |\n"
              "|:--|--:|--:|--:|--:|--:|--:|")
    for name, make in DISTRIBUTIONS.items():
        for size in SIZES[:1] if make is nothing else [s for s in SIZES if s <= job.a.largest]:
            rows, g = size // (2 * WIDTH), torch.Generator().manual_seed(5)
            tables = torch.stack([make(world, rows, g) for _ in range(TABLES)])
            to, come = tables[:, rank].contiguous(), tables[:, :, rank].contiguous()
            send = torch.randn(max(1, int(to.sum(1).max())), WIDTH, device=job.device).to(torch.bfloat16)
            recv = torch.empty(max(1, int(come.sum(1).max())), WIDTH, dtype=torch.bfloat16, device=job.device)
            pairs = [(recv[:sum(c)], send[:sum(t)], c, t) for c, t in zip(come.tolist(), to.tolist(), strict=True)]
            calls = {"lists": [lambda p=p: all_to_all_single(*p) for p in pairs],
                     other: [lambda p=p: dist.all_to_all_single(*p, group=group) for p in pairs]}
            if job.cuda:
                on_device = list(zip(come.to(job.device), to.to(job.device), strict=True))
                calls["device"] = [lambda s=s: all_to_all_single(recv, send, *s) for s in on_device]
            figures: dict = {}
            for turn in range(7):
                for key, one in calls.items():
                    dist.barrier()
                    us = block(job, one)
                    if turn > 0:
                        figures.setdefault(key, []).append(us)
            keys = ["lists", "device", other] if job.cuda else ["lists", "lists", other]
            row = torch.tensor([statistics.median(figures[k]) for k in keys], dtype=torch.float64, device=job.device)
            dist.all_reduce(row, dist.ReduceOp.MAX)
            lists, device, theirs = row.tolist()
            if rank == 0:
                print(f"| {name} | {0 if make is nothing else size} | {lists:.1f} | {device:.1f} | {theirs:.1f} | "
                      f"{theirs / lists:.2f} | {theirs / device:.2f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--calls", type=int, default=60000)
    parser.add_argument("--largest", type=int, default=4 << 20, help="mean bytes of a pair at most")
    a = parser.parse_args()
    if a.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("shunt")
    job = Job(a)
    wrong = checked(job)
    ratios(job)
    if wrong:
        print(f"rank {job.rank}: {wrong}", file=sys.stderr)
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
