"""Pools of torch over Shunt's allocators."""

import torch
import torch.distributed as dist

from torch_tests.registry import case


def ours(w):
    w.needs(w.judged != "gloo", "pools are Shunt's")
    import shunt.torch

    return shunt.torch


@case(worlds=(2,))
def pools_serve_gpus(w):
    w.raises(lambda: ours(w).mem_pool(w.group, device="cpu"), "expected a cuda device")


def reduced(w, n):
    x = torch.full((n,), float(w.rank), device=w.device)
    dist.all_reduce(x, group=w.group)
    w.equal(x, torch.full((n,), float(sum(range(w.size)))))
    return x


@case(worlds=(2,))
def tensors_of_a_pool(w):
    w.needs(w.device.type == "cuda", "pools serve memory of GPUs")
    for symmetric in (False, True):
        pool = ours(w).mem_pool(w.group, symmetric=symmetric, reserve=128 << 20 if symmetric else 0)
        with torch.cuda.use_mem_pool(pool):
            held = [reduced(w, n) for n in (1, 1000, 1 << 20, 1 << 22)]
        allocator = pool.allocator
        assert allocator.stats.in_use >= 5 << 22 > 0, allocator.stats
        del held, pool
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        allocator.close()


@case(worlds=(2,))
def registered_pools(w):
    w.needs(w.device.type == "cuda", "pools serve memory of GPUs")
    ours(w)
    backend = w.group._get_backend(w.device)
    for pool in (torch.cuda.MemPool(), torch.cuda.MemPool(backend.mem_allocator)):
        with torch.cuda.use_mem_pool(pool):
            x = torch.zeros(1 << 22, device=w.device)
        backend.register_mem_pool(pool)
        reduced(w, 1 << 22)
        backend.deregister_mem_pool(pool)
        w.raises(lambda: backend.register_mem_pool(pool, symm=True), "symmetric=True")  # noqa: F821 (deleted later)
        with torch.cuda.use_mem_pool(pool):
            more = torch.zeros(1 << 22, device=w.device) if w.rank else None
        w.raises(lambda: backend.register_mem_pool(pool), "every rank registers as many")  # noqa: F821 (deleted later)
        del x, more, pool
