"""What only a GPU shows of shunt.torch, in a few seconds: streams, asynchronous calls, graphs, split sizes on the
device, batches of messages, groups, errors.

    torchrun --nproc-per-node 2 bench/torch/smoke.py [--device cpu]
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from shunt.torch import all_to_all_single


def equal(got, want, what: str) -> None:
    if not torch.equal(got.cpu(), torch.as_tensor(want, dtype=got.dtype)):
        raise SystemExit(f"rank {dist.get_rank()}: {what}: {got.flatten()[:8].tolist()}, want {want}")


def main() -> None:
    cuda = "--device" not in sys.argv
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("shunt", timeout=timedelta(seconds=20))
    rank, world = dist.get_rank(), dist.get_world_size()
    total = float(world * (world + 1) // 2)

    t = torch.full((1 << 20,), rank + 1.0, device=device)
    dist.all_reduce(t)
    equal(t[:2], [total, total], "all_reduce")

    # Asynchronous calls follow what made their input, and what follows wait() follows them.
    for n in (4, 1 << 20):
        x = torch.zeros(n, device=device)
        for _ in range(20):
            x.fill_(rank + 1.0)
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            x.mul_(2)
        equal(x[-1:], [2 * total], "asynchronous all_reduce")
    future = dist.all_reduce(torch.ones(8, device=device), async_op=True).get_future().then(lambda f: f.value()[0] * 3)
    equal(future.wait()[:1], [3.0 * world], "future")
    for _ in range(50):  # dropped without wait: the memory must not be used again too early
        dist.all_reduce(torch.ones(1 << 18, device=device), async_op=True)
    dist.barrier()

    peer = (rank + 1) % world
    source = (rank - 1) % world
    out = torch.zeros(70000, device=device)
    for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((70000,), float(rank), device=device), peer),
                                     dist.P2POp(dist.irecv, out, source)]):
        w.wait()
    equal(out[-1:], [float(source)], "batch_isend_irecv")
    if rank < 2:
        if rank == 0:
            dist.send(t[:5], 1)
        else:
            dist.recv(out[:5], 0)
            equal(out[:1], [total], "recv")

    sub = dist.new_group(list(range(world)), timeout=timedelta(seconds=10))
    gathered = [torch.zeros(3, device=device) for _ in range(world)]
    dist.all_gather(gathered, torch.full((3,), float(rank), device=device), group=sub)
    equal(torch.stack(gathered)[:, 0], [float(r) for r in range(world)], "all_gather")

    if cuda:
        graph = torch.cuda.CUDAGraph()
        y = torch.ones(1000, device=device)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            dist.all_reduce(y)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            dist.all_reduce(y)
            work = dist.all_reduce(y, async_op=True)
            work.wait()
        for _ in range(3):
            y.fill_(1)
            graph.replay()
        equal(y[:1], [float(world * world)], "graph")

        rows = torch.arange(world, device=device) + rank  # to each rank
        back = torch.empty_like(rows)
        dist.all_to_all_single(back, rows)
        data, into = torch.full((64, 4), float(rank), device=device), torch.full((64, 4), -1.0, device=device)
        all_to_all_single(into, data, back, rows)
        want = [float(r) for r in range(world) for _ in range(int(back[r]))]
        equal(into[:len(want), 3], want, "all_to_all_single with split sizes on the GPU")
        equal(into[len(want):, 0], [-1.0] * (64 - len(want)), "rows behind the splits")

    refused = 0
    for bad in (lambda: dist.all_reduce(torch.ones(4, device=device)[::2]),
                lambda: dist.all_reduce(torch.ones(4, device=device, dtype=torch.int16)),
                lambda: dist.all_gather([torch.ones(1, device=device)] * (world + 1), torch.ones(1, device=device))):
        try:
            bad()
        except (TypeError, ValueError) as error:
            assert f"rank {rank}" in str(error), error
            refused += 1
    assert refused == 3, refused
    dist.monitored_barrier()
    try:  # last: it ends the group
        dist.all_reduce(torch.ones(4 + rank, device=device), group=sub)
        if cuda:
            torch.cuda.synchronize()
            dist.all_reduce(torch.ones(4, device=device), group=sub)
            torch.cuda.synchronize()
            dist.barrier(group=sub)
        raise SystemExit("counts that differ raised nothing")
    except dist.DistBackendError as error:
        print(f"rank {rank}: {error}")
    dist.destroy_process_group()
    print(f"rank {rank}: passed")


main()
