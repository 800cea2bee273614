"""symm_mem of torch.distributed, on memory of Shunt's and, over a group of Shunt's, on torch's own."""

import time

import torch
import torch.distributed as dist

from torch_tests.registry import case

BACKENDS = [("SHUNT",), ("CUDA",)]


def made(w, backend):
    """torch's module, with the backend that allocates: CUDA is the default. It cannot be changed afterwards: such cases
    break their processes."""
    w.needs(w.device.type == "cuda", "symmetric memory is of GPUs")
    import torch.distributed._symmetric_memory as symm_mem

    if backend == "SHUNT":
        w.needs(w.judged, "SHUNT is Shunt's")
        import shunt.torch  # noqa: F401  which offers it

        symm_mem.set_backend(backend)
    else:
        w.needs(torch.cuda.device_count() >= w.size, "torch's own rejects ranks that share a GPU")
    assert symm_mem.get_backend(w.device) == backend
    return symm_mem


def given(w, symm_mem, shape, dtype=torch.float32):
    x = symm_mem.empty(shape, dtype=dtype, device=w.device)
    return x, symm_mem.rendezvous(x, w.group.group_name)


@case(each=BACKENDS, worlds=(2, 4), breaks=True)
def peers_are_read_and_written(w, backend):
    symm_mem = made(w, backend)
    x, shared = given(w, symm_mem, (w.size, 1000))
    assert (shared.rank, shared.world_size) == (w.rank, w.size)
    for round in range(5):
        for peer in range(w.size):
            shared.get_buffer(peer, x.shape, x.dtype)[w.rank].fill_(round * 100 + w.rank * 10 + peer)
        shared.barrier(channel=20 * (round % 3))
        for peer in range(w.size):
            w.equal(x[peer], torch.full((1000,), float(round * 100 + peer * 10 + w.rank)))
            written = shared.get_buffer(peer, x.shape, x.dtype)[w.rank]
            w.equal(written, torch.full((1000,), float(round * 100 + w.rank * 10 + peer)))
        shared.barrier(channel=0)


@case(each=BACKENDS, worlds=(2, 4), breaks=True)
def signals_follow_what_was_stored(w, backend):
    symm_mem = made(w, backend)
    x, shared = given(w, symm_mem, (4096,))
    right, left = (w.rank + 1) % w.size, (w.rank - 1) % w.size
    theirs = shared.get_buffer(right, x.shape, x.dtype)
    x.fill_(-1)
    shared.barrier(channel=0)
    for round in range(20):
        theirs.fill_(round + w.rank / 8)
        shared.put_signal(right, channel=1 + round % 3)
        shared.wait_signal(left, channel=1 + round % 3)
        w.equal(x, torch.full((4096,), round + left / 8))
        shared.put_signal(left, channel=0)  # it has been read
        shared.wait_signal(right, channel=0)


@case(each=BACKENDS, worlds=(2, 4), breaks=True)
def kernels_of_torch_run_on_it(w, backend):
    symm_mem = made(w, backend)
    x, _ = given(w, symm_mem, (2048,), torch.bfloat16)
    rows = w.everyone((2048,), torch.bfloat16, "whole")
    want = torch.stack(rows).sum(0)
    name = w.group.group_name
    for _ in range(3):
        x.copy_(rows[w.rank])
        torch.cuda.synchronize()
        dist.barrier(w.group)
        w.equal(torch.ops.symm_mem.one_shot_all_reduce(x, "sum", name), want)
    x.copy_(rows[w.rank])
    torch.ops.symm_mem.two_shot_all_reduce_(x, "sum", name)
    w.equal(x, want)


@case(each=BACKENDS, worlds=(2, 4), breaks=True)
def products_and_exchange_overlap(w, backend):
    symm_mem = made(w, backend)
    name = w.group.group_name
    symm_mem.enable_symm_mem_for_group(name)
    rows, columns = w.everyone((64 * w.size, 128), torch.float32, "whole"), w.own((128, 64), torch.float32, "whole")
    gathered, products = torch.ops.symm_mem.fused_all_gather_matmul(rows[w.rank], [columns], 0, name)
    w.equal(gathered, torch.cat(rows))
    w.equal(products[0], torch.cat(rows) @ columns, atol=1e-3)
    mine = torch.ops.symm_mem.fused_matmul_reduce_scatter(rows[w.rank], columns, "sum", 0, name)
    assert mine.shape == (64, 64)


@case(worlds=(2,), breaks=True)
def collectives_go_into_it(w):
    symm_mem = made(w, "SHUNT")
    x, shared = given(w, symm_mem, (1 << 20,))
    for value in range(3):
        x.fill_(w.rank + value)
        dist.all_reduce(x, group=w.group)
        w.equal(x, torch.full((1 << 20,), float(sum(range(w.size)) + w.size * value)))
        shared.barrier(channel=0)


@case(worlds=(2,), breaks=True)
def graphs_replay_it(w):
    symm_mem = made(w, "SHUNT")
    x, shared = given(w, symm_mem, (512,))
    theirs = shared.get_buffer(1 - w.rank, x.shape, x.dtype)
    shared.put_signal(1 - w.rank, channel=2)  # what is made at the first use
    shared.wait_signal(1 - w.rank, channel=2)
    shared.barrier(channel=0)
    torch.cuda.synchronize()
    value, graph = torch.zeros(512, device=w.device), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        theirs.copy_(value)
        shared.put_signal(1 - w.rank, channel=2)
        shared.wait_signal(1 - w.rank, channel=2)
        seen = x + 1
        shared.barrier(channel=0)
    for round in range(10):
        value.fill_(round * 2 + w.rank)
        graph.replay()
        w.equal(seen, torch.full((512,), float(round * 2 + 1 - w.rank + 1)))


@case(worlds=(2,), breaks=True, seconds=90)
def freed_memory_comes_back(w):
    symm_mem = made(w, "SHUNT")
    free = []
    for _ in range(12):
        x = symm_mem.rendezvous(torch._C._distributed_c10d._SymmetricMemory.empty_strided_p2p(
            (64 << 20,), (1,), torch.uint8, w.device, w.group.group_name), w.group.group_name)
        x.barrier(channel=0)
        del x
        torch.cuda.synchronize()
        dist.barrier(w.group)
        free.append(torch.cuda.mem_get_info()[0])
    limit = time.monotonic() + 5
    while free[0] - free[-1] > 160 << 20:  # a block of each rank may have been there before the first
        assert time.monotonic() < limit, free
        time.sleep(0.05)
        free.append(torch.cuda.mem_get_info()[0])


@case(worlds=(2,), breaks=True)
def a_group_takes_the_name_of_one_that_ended(w):
    """As after destroy_process_group and init_process_group: what the first group had mapped is mapped no more."""
    symm_mem = made(w, "SHUNT")
    x = symm_mem.empty((512,), device=w.device)
    first, second = w.new_group(), w.new_group()
    name = first.group_name
    symm_mem.rendezvous(x, name).barrier(channel=0)
    torch.cuda.synchronize()
    dist.destroy_process_group(first)
    torch._C._distributed_c10d._register_process_group(name, second)
    x.fill_(w.rank)
    shared = symm_mem.rendezvous(x, name)
    shared.barrier(channel=0)
    w.equal(shared.get_buffer(1 - w.rank, x.shape, x.dtype), torch.full((512,), float(1 - w.rank)))
    shared.barrier(channel=0)


@case(worlds=(2,), breaks=True)
def misuse_is_named(w):
    symm_mem = made(w, "SHUNT")
    x, shared = given(w, symm_mem, (16,))
    w.raises(lambda: shared.put_signal(1 - w.rank, channel=16), "channel is 16")
    w.raises(lambda: shared.wait_signal(1 - w.rank, channel=-1), "channel is -1")
    w.raises(lambda: shared.put_signal(2, channel=0), "rank 2 is not one of a group of 2")
    if w.truth_backend == "nccl":
        w.raises(lambda: symm_mem.rendezvous(x, w.truth.group_name), "needs a group with the backend shunt")
    shared.barrier(channel=0)
