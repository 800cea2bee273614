"""What collectives of memory that is not aligned cost: Shunt and torch's NCCL in turn, in the same processes, in
graphs, every result checked. Needs torch.

    shunt run -n 4 python bench/python/bench_alignment.py [--sizes BYTES,...] [--csv FILE]

Buffers are aligned; or send and receive begin an element later, or receive alone does; or each rank's part has one
element more, so that most of the parts begin anywhere. Times are microseconds, the median over replays of the slowest
rank; sizes are those of the larger of what a rank sends and receives.
"""

import argparse
import csv
import os
import sys

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    sys.exit(f"bench_alignment: torch is not installed: {error}")

import shunt

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from torch_ranks import join, median

#: Elements that send and receive begin later, and elements more of a rank's part.
KINDS = {"aligned": (0, 0, 0), "both an element later": (1, 1, 0), "receive an element later": (0, 1, 0),
         "an element more": (0, 0, 1)}
DTYPES = (torch.bfloat16, torch.float32)
BUFFERS, REPLAYS = 3, 7


class Case:
    """A collective of parts of so many elements: its calls, and what must come of them."""

    def __init__(self, comm, name, part):
        self.comm, self.name, self.part = comm, name, part
        world = comm.world
        self.send = part if name in ("all_gather", "all_gather_v") else part * world
        self.recv = part if name == "reduce_scatter" else part * world
        self.shunt = {
            "all_reduce": comm.all_reduce, "all_gather": comm.all_gather, "reduce_scatter": comm.reduce_scatter,
            "all_to_all": comm.all_to_all, "broadcast": lambda send, recv: comm.broadcast(recv),
            "all_gather_v": lambda send, recv: comm.all_gather_v(send, recv, [part] * world)}[name]
        self.nccl = {
            "all_reduce": lambda send, recv: dist.all_reduce(recv),  # torch has no other
            "all_gather": lambda send, recv: dist.all_gather_into_tensor(recv, send),
            "reduce_scatter": lambda send, recv: dist.reduce_scatter_tensor(recv, send),
            "all_to_all": lambda send, recv: dist.all_to_all_single(recv, send),
            "broadcast": lambda send, recv: dist.broadcast(recv, 0),
            "all_gather_v": lambda send, recv: dist.all_gather_into_tensor(recv, send)}[name]

    def data(self, rank, elements, dtype):
        """Small integers, whose sums are exact."""
        period = 97 if dtype == torch.float32 else 31
        return torch.arange(elements, device="cuda").add_(rank).remainder_(period).to(dtype)

    def wrong(self, send, recv):
        """How many elements are wrong after a call of Shunt."""
        comm, dtype = self.comm, send.dtype
        send.copy_(self.data(comm.rank, self.send, dtype))
        recv.copy_(self.data(comm.rank, self.recv, dtype)) if self.name == "broadcast" else recv.zero_()
        self.shunt(send, recv)
        elements = self.recv if self.name == "broadcast" else self.send
        sent = [self.data(rank, elements, dtype) for rank in range(comm.world)]
        own = slice(comm.rank * self.part, (comm.rank + 1) * self.part)
        if self.name == "broadcast":
            want = sent[0]
        elif self.name in ("all_gather", "all_gather_v"):
            want = torch.cat(sent)
        elif self.name == "all_to_all":
            want = torch.cat([each[own] for each in sent])
        else:
            want = torch.stack(sent).sum(0, dtype=torch.float32).to(dtype)
            want = want[own] if self.name == "reduce_scatter" else want
        return int((recv != want).sum())


NAMES = ("all_reduce", "all_gather", "all_gather_v", "reduce_scatter", "all_to_all", "broadcast")


def timed(comm, call, buffers, calls):
    """Microseconds of a call on the slowest rank, of graphs of so many."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for pair in buffers * 2:
            call(*pair)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                call(*buffers[i % len(buffers)])
        times = torch.zeros(REPLAYS, dtype=torch.float64, device="cuda")
        for replay in range(REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            comm.barrier(stream=stream)
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times[replay] = begin.elapsed_time(end) * 1000 / calls
    comm.all_reduce(times, times, "max")
    return median(times.tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="262144,4194304,67108864,268435456")
    parser.add_argument("--csv", help="write the rows into this file")
    arguments = parser.parse_args()
    rank = int(os.environ["SHUNT_RANK"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    rows, wrong = [], 0
    with shunt.init(memory="cuda", device=rank, timeout=30) as comm:
        store = join(comm, device)
        for size in map(int, arguments.sizes.split(",")):
            for dtype in DTYPES:
                for kind, (send_at, recv_at, more) in KINDS.items():
                    row = []
                    for name in NAMES:
                        case = Case(comm, name, size // dtype.itemsize // comm.world + more)
                        buffers = [tuple(torch.zeros(n + at, dtype=dtype, device=device)[at:]
                                         for n, at in ((case.send, send_at), (case.recv, recv_at)))
                                   for _ in range(BUFFERS)]
                        wrong += sum(case.wrong(*pair) for pair in buffers)
                        calls = 20 if size < 16 << 20 else 6
                        ours, theirs = (timed(comm, call, buffers, calls) for call in (case.shunt, case.nccl))
                        row.append(f"{name} {ours:.1f} ({theirs / ours:.2f})")
                        rows.append([comm.world, name, str(dtype).split(".")[1], kind, size, round(ours, 2),
                                     round(theirs, 2)])
                    if rank == 0:
                        print(f"{size:>10} {str(dtype).split('.')[1]:>8} {kind:>24}: {', '.join(row)}", flush=True)
        total = torch.tensor(wrong, device=device)
        comm.all_reduce(total, total)
        wrong = int(total)
        dist.destroy_process_group()
        del store
    if rank == 0:
        print(f"microseconds, and NCCL's time divided by it; {wrong} elements wrong")
        if arguments.csv:
            with open(arguments.csv, "w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["world", "collective", "dtype", "alignment", "bytes", "us", "nccl_us"])
                writer.writerows(rows)
    sys.exit(1 if wrong else 0)


main()
