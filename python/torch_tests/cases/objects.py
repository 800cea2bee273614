"""Collectives of Python objects."""

import torch
import torch.distributed as dist

from torch_tests.registry import case


def thing(rank):
    return [None, {"rank": rank, "text": "é" * (1000 * rank)}, ("a", rank, b"\0" * rank),
            list(range(rank * 10))][rank % 4]


@case()
def all_gather_object(w):
    def run(group):
        out = [None] * w.size
        dist.all_gather_object(out, thing(w.rank), group=group)
        return out
    w.same(run, model=lambda: [thing(r) for r in range(w.size)])


@case()
def gather_object(w):
    for root in range(w.size):
        def run(group):
            out = [None] * w.size if w.rank == root else None
            dist.gather_object(thing(w.rank), out, dst=root, group=group)
            return out
        w.same(run, model=lambda: [thing(r) for r in range(w.size)] if w.rank == root else None)


@case()
def broadcast_object_list(w):
    for root in range(w.size):
        def run(group):
            out = [thing(r) for r in range(w.size)] if w.rank == root else [None] * w.size
            dist.broadcast_object_list(out, src=root, group=group)
            return out
        w.same(run, model=lambda: [thing(r) for r in range(w.size)])


@case()
def scatter_object_list(w):
    for root in range(w.size):
        def run(group):
            out = [None]
            dist.scatter_object_list(out, [thing(r) for r in range(w.size)] if w.rank == root else None, src=root,
                                     group=group)
            return out
        w.same(run, model=lambda: [thing(w.rank)])


@case()
def send_object_list(w):
    def run(group):
        out = [None] * 3
        if w.rank == 0:
            for to in range(1, w.size):
                dist.send_object_list([thing(r) for r in range(3)], dst=to, group=group)
        else:
            dist.recv_object_list(out, src=0, group=group)
        return out
    w.same(run, model=lambda: [thing(r) for r in range(3)] if w.rank else [None] * 3)


@case()
def object_of_tensor(w):
    def run(group):
        out = [None] * w.size
        dist.all_gather_object(out, torch.arange(w.rank + 1), group=group)
        return out
    w.same(run)
