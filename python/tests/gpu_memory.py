"""Memory that comes and goes, on two GPUs with torch: gpu_memory.py [SECONDS].
`shunt run -n 2 python3 gpu_memory.py 20` runs random collectives on tensors that are
freed and made again, with empty_cache and captures in between, and then looks how soon
memory that was freed is there again: idle, and while a graph of small collectives is
replayed. Run it with and without PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."""

import faulthandler
import os
import random
import sys
import time

import torch

import shunt

MIB = 1 << 20


def storm(comm, seconds):
    """Random all_reduces and all_gathers; every element of every result is checked."""
    rank, world, device = comm.rank, comm.world, torch.cuda.current_device()
    choose = random.Random(7)  # alike on all ranks
    held, calls, graphs, wrong = [], 0, 0, torch.zeros(1, dtype=torch.int64, device=device)
    goes_on = torch.ones(1, device=device)
    end = time.monotonic() + seconds
    while True:
        if calls % 50 == 0:  # all ranks end together
            goes_on.fill_(1.0 if time.monotonic() < end else 0.0)
            comm.all_reduce(goes_on, op="min")
            if goes_on.item() == 0:
                break
        count = max(1, int(2 ** choose.uniform(0, 23.5)))
        base = float(calls % 64)

        def body(send, recv, gather):
            if gather:
                comm.all_gather(send, recv)
            else:
                comm.all_reduce(send, recv)

        gather = choose.random() < 0.3
        send = torch.full((count,), base + rank, device=device)
        recv = torch.full((count * world if gather else count,), -1.0, device=device)
        if choose.random() < 0.1:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                body(send, recv, gather)
            for _ in range(choose.randrange(1, 6)):
                recv.fill_(-1.0)
                graph.replay()
            graphs += 1
            held.append(graph)
        else:
            body(send, recv, gather)
        if gather:
            for r in range(world):
                wrong += (recv[r * count:(r + 1) * count] != base + r).sum()
        else:
            wrong += (recv != base * world + sum(range(world))).sum()
        if choose.random() < 0.3:
            held.append((send, recv))
        while len(held) > 8:
            held.pop(choose.randrange(len(held)))
        del send, recv
        if choose.random() < 0.05:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        calls += 1
    torch.cuda.synchronize()
    if wrong.item():
        raise SystemExit(f"rank {rank}: {wrong.item()} elements were wrong in {calls} calls")
    return calls, graphs


def used():
    free, total = torch.cuda.mem_get_info()
    return (total - free) / MIB


def meet(comm, store, name):
    """Waits for the other ranks on the host. A rank that went ahead would wait for them inside a kernel, and a driver
    closes a legacy IPC mapping only when the kernels of its device have ended."""
    store.add(name, 1)
    while store.add(name, 0) < comm.world:
        time.sleep(0.01)


def comes_back(comm, what, meanwhile):
    """How long until 2 GiB that were freed are free again."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    comm.barrier()
    torch.cuda.synchronize()
    time.sleep(1)  # what the part before has freed
    before = used()
    tensors = [torch.ones(256 * MIB // 4, device="cuda") for _ in range(8)]
    for _ in range(3):  # missed, exported, mapped
        for t in tensors:
            comm.all_reduce(t)
        torch.cuda.synchronize()
        time.sleep(0.3)
    taken = used() - before
    del t
    tensors.clear()
    torch.cuda.empty_cache()
    start = time.monotonic()
    while used() - before > 64:
        meanwhile()
        if time.monotonic() - start > 5:
            raise SystemExit(f"rank {comm.rank}: {used() - before:.0f} of {taken:.0f} MiB have not come back in 5 s, "
                             f"{what}")
    took = time.monotonic() - start
    if taken < 2000 or took > 1:
        raise SystemExit(
            f"rank {comm.rank}: {taken:.0f} MiB came back after {took:.2f} s, {what}; want 2048 within 1 s")
    return f"{what}: {taken:.0f} MiB back after {took:.2f} s"


def main():
    faulthandler.enable()
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", os.environ.get("SHUNT_RANK", "0"))))
    faulthandler.dump_traceback_later(seconds + 45, exit=True)
    comm = shunt.init(memory="cuda")
    port = int(os.environ.get("MASTER_PORT", "29517"))
    store = torch.distributed.TCPStore("127.0.0.1", port, comm.world, comm.rank == 0)
    calls, graphs = storm(comm, seconds)
    lines = [f"{calls} calls, {graphs} graphs, 0 wrong", comes_back(comm, "idle", lambda: time.sleep(0.01))]
    meet(comm, store, "idle")
    small = torch.ones(256, device="cuda")
    comm.all_reduce(small)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            comm.all_reduce(small, op="max")
    replays = 0

    def replay():
        nonlocal replays
        graph.replay()  # noqa: F821 (deleted later)
        torch.cuda.synchronize()
        replays += 1

    # Every rank replays as often as the others: a fixed number while it waits.
    def replay_some():
        if replays < limit:
            replay()
        else:
            time.sleep(0.005)

    limit = 3000
    lines.append(comes_back(comm, "while a graph is replayed", replay_some))
    while replays < limit:
        replay()
    lines.append(f"{replays} replays")
    torch.cuda.synchronize()
    if small.eq(2.0).all().item() is not True and comm.world == 2:
        raise SystemExit(f"rank {comm.rank}: the replays have {small[:4].tolist()}")
    del graph, small
    comm.close()
    print(f"rank {comm.rank}: " + "; ".join(lines), flush=True)


main()
