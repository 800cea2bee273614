"""Puts and signals, a million of them: what a put brought must be there as soon as the
signal behind it is. Rank 0 puts a new value into every element of rank 1's window and
signals; rank 1 waits, compares every element at once, and signals back. All in graphs, so
that nothing comes between. Beside it all ranks gather 8 MiB from each other on another
stream, without a pause: links and caches are busy, with what a third GPU stores too where
there is one. Needs torch.

    shunt run -n 3 python python/tests/gpu_signals.py [ROUNDS]
"""

import os
import sys
import time

import torch

import shunt

SIZES = (8, 1 << 10, 16 << 10, 128 << 10)  # of puts, all by a kernel
REPLAYED = 500  # rounds of a graph
GATHERED = 8 << 20
GATHERS = 50  # in a graph


def captured(body):
    """A graph of what body enqueues, which is called once before, eagerly."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        body(stream.cuda_stream)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        body(stream.cuda_stream)
    return graph, stream


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rank = int(os.environ["SHUNT_RANK"])
    torch.cuda.set_device(rank)
    with shunt.init(memory="cuda", device=rank) as comm, comm.split(0) as beside:
        part = torch.zeros(GATHERED // 4, device="cuda")
        whole = torch.zeros(comm.world * GATHERED // 4, device="cuda")

        def gather(stream):
            for _ in range(GATHERS):
                beside.all_gather(part, whole, stream=stream)

        traffic, traffic_stream = captured(gather)
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        window = comm.window(max(SIZES))
        begun, done = time.monotonic(), 0
        for size in SIZES:
            count = size // 8
            value = torch.zeros(count, dtype=torch.int64, device="cuda")  # that rank 0 has put, and rank 1 expects
            here = torch.as_tensor(window, device="cuda")[:size].view(torch.int64)
            here.zero_()
            torch.cuda.synchronize()
            comm.barrier()

            def play(stream):
                for _ in range(REPLAYED):
                    value.add_(1)
                    if rank == 0:
                        window.put(value, 1, stream=stream)
                        window.signal(1, stream=stream)
                        window.wait(1, stream=stream)
                    elif rank == 1:
                        window.wait(0, stream=stream)
                        wrong.add_((here != value).sum())  # noqa: F821 (deleted later)
                        window.signal(0, stream=stream)

            if rank < 2:
                rally, stream = captured(play)
            replays = max(rounds // len(SIZES) // REPLAYED, 1)
            for i in range(replays):
                if rank < 2:
                    with torch.cuda.stream(stream):
                        rally.replay()
                with torch.cuda.stream(traffic_stream):
                    traffic.replay()
                if i % 16 == 15:
                    torch.cuda.synchronize()
            torch.cuda.synchronize()
            done += (replays + 1) * REPLAYED
            del here
        took = time.monotonic() - begun
        if rank == 0:
            print(f"{done} puts and signals of {SIZES} bytes in {took:.1f} s, beside {comm.world} GPUs that gather "
                  f"{GATHERED >> 20} MiB", flush=True)
        bad = wrong.item()
        comm.barrier()
        window.close()
        if bad:
            sys.exit(f"rank {rank}: {bad} elements were not there when the signal was")


main()
