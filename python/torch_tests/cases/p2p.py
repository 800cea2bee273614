"""Messages between two ranks."""

import datetime

import torch
import torch.distributed as dist

from torch_tests.cases.moves import DTYPES
from torch_tests.registry import case


ANY = "recv from any rank is for host memory, on GPUs it needs a rank"


def message(w, source, to, shape=(7, 3), dtype=torch.float32):
    """What rank source sends to rank `to`."""
    w._draws = 100 * source + to
    return w.everyone(shape, dtype)[source]


@case(each=[((7, 3), d) for d in DTYPES] + [(n, torch.float32) for n in (0, 1, 5001, 700_001)])
def send_recv(w, shape, dtype):
    """Each rank to the next, the even ones first."""
    def run(group):
        to, source = (w.rank + 1) % w.size, (w.rank - 1) % w.size
        out, text = w.empty(shape, dtype), message(w, w.rank, to, shape, dtype)
        if w.rank == 0:
            dist.send(text, to, group=group)
            dist.recv(out, source, group=group)
        else:
            dist.recv(out, source, group=group)
            dist.send(text, to, group=group)
        return out
    w.same(run, model=lambda: message(w, (w.rank - 1) % w.size, w.rank, shape, dtype))


@case()
def isend_irecv(w):
    """All pairs at once, waited for in the opposite order.

    nccl makes a communicator of each pair and may wait for ever where their kernels share a queue of the GPU.
    """
    def run(group):
        others = [r for r in range(w.size) if r != w.rank]
        out = {r: w.empty((7, 3)) for r in others}
        texts = {r: message(w, w.rank, r) for r in others}
        works = [dist.isend(texts[r], r, group=group) for r in others]
        works += [dist.irecv(out[r], r, group=group) for r in others]
        for work in reversed(works):
            work.wait()
        return out
    w.same(run, model=lambda: {r: message(w, r, w.rank) for r in range(w.size) if r != w.rank},
           truth=w.truth_backend != "nccl" or w.size == 2)


@case()
def messages_keep_their_order(w):
    if w.rank == 0:
        for i in range(50):
            for to in range(1, w.size):
                dist.send(torch.full((i % 7 + 1,), float(100 * to + i), device=w.device), to, group=w.group)
    else:
        for i in range(50):
            t = w.empty(i % 7 + 1)
            dist.recv(t, 0, group=w.group)
            w.equal(t, torch.full((i % 7 + 1,), float(100 * w.rank + i)))


@case()
def batch(w):
    """A ring in one batch, twice, with several messages per pair."""
    def run(group):
        to, source = (w.rank + 1) % w.size, (w.rank - 1) % w.size
        outs = []
        for turn in range(2):
            first, second = w.empty((7, 3)), w.empty(5, torch.int64)
            ops = [dist.P2POp(dist.isend, message(w, w.rank, to), to, group=group),
                   dist.P2POp(dist.irecv, first, source, group=group),
                   dist.P2POp(dist.isend, torch.full((5,), 10 * w.rank + turn, device=w.device), to, group=group),
                   dist.P2POp(dist.irecv, second, source, group=group)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            outs += [first, second]
        return outs

    def model():
        source = (w.rank - 1) % w.size
        return [t for turn in range(2) for t in (message(w, source, w.rank), torch.full((5,), 10 * source + turn))]
    w.same(run, model=model)


@case()
def batch_receives_first(w):
    """The receives of all ranks come first in the list: no order of the list may block."""
    others = [r for r in range(w.size) if r != w.rank]
    out = {r: w.empty(9) for r in others}
    ops = [dist.P2POp(dist.irecv, out[r], r, group=w.group) for r in others]
    ops += [dist.P2POp(dist.isend, torch.full((9,), float(10 * w.rank + r), device=w.device), r, group=w.group)
            for r in others]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for r in others:
        w.equal(out[r], torch.full((9,), float(10 * r + w.rank)))


@case()
def batch_one_way(w):
    """Only the first and the last rank take part."""
    if w.rank == 0:
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((5,), 3.0, device=w.device), w.size - 1,
                                                       group=w.group)]):
            work.wait()
    elif w.rank == w.size - 1:
        t = w.empty(5)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, t, 0, group=w.group)]):
            work.wait()
        w.equal(t, torch.full((5,), 3.0))


@case()
def recv_from_any(w):
    """gloo has it, nccl has not."""
    w.needs(w.device.type == "cpu", ANY)
    if w.rank == 0:
        seen = {}
        for _ in range(w.size - 1):
            t = w.empty(4)
            source = dist.recv(t, None, group=w.group)
            assert source not in seen, f"rank {source} came twice"
            seen[source] = t
        w.equal(seen, {r: torch.full((4,), float(r)) for r in sorted(seen)})
        assert len(seen) == w.size - 1
    else:
        dist.send(torch.full((4,), float(w.rank), device=w.device), 0, group=w.group)


@case(worlds=(3, 4))
def recv_from_any_then_from_one(w):
    """A receive from anyone takes one message of a rank, a receive from that rank the next one."""
    w.needs(w.device.type == "cpu", ANY)
    if w.rank == 0:
        t, left = w.empty(2), list(range(1, w.size))
        first = dist.recv(t, None, group=w.group)
        w.equal(t, torch.tensor([first, 0.0]))
        for source in left:
            for i in range(1 if source == first else 0, 2):
                dist.recv(t, source, group=w.group)
                w.equal(t, torch.tensor([float(source), float(i)]))
    else:
        for i in range(2):
            dist.send(torch.tensor([float(w.rank), float(i)], device=w.device), 0, group=w.group)


@case()
def tags(w):
    """Messages with tags, received in the order they were sent."""
    def run(group):
        t = torch.zeros(2, 3, device=w.device)
        if w.rank == 0:
            for to in range(1, w.size):
                dist.send(torch.full((3,), 1.0, device=w.device), to, group=group, tag=5)
                dist.send(torch.full((3,), 2.0, device=w.device), to, group=group, tag=9)
        else:
            dist.recv(t[0], 0, group=group, tag=5)
            dist.recv(t[1], 0, group=group, tag=9)
        return t
    w.same(run)


@case()
def between_collectives(w):
    """Messages and collectives of one group in turn, from both ends of the order of ranks."""
    for turn in range(20):
        t = torch.full((11,), float(w.rank + turn), device=w.device)
        dist.all_reduce(t, group=w.group)
        w.equal(t, torch.full((11,), float(sum(range(w.size)) + turn * w.size)))
        if w.rank == 0:
            dist.send(t + 1, w.size - 1, group=w.group)
        elif w.rank == w.size - 1:
            got = w.empty(11)
            dist.recv(got, 0, group=w.group)
            w.equal(got, t + 1)


@case()
def group_ranks(w):
    """group_dst and group_src number the ranks of the group, not of the world."""
    group = w.new_group(list(range(w.size))[::-1][:2])
    last, before = w.size - 1, w.size - 2
    if w.rank in (last, before):
        t = torch.full((3,), float(w.rank), device=w.device)
        mine = dist.get_rank(group)
        out = w.empty(3)
        if mine == 0:
            dist.send(t, group=group, group_dst=1)
            dist.recv(out, group=group, group_src=1)
        else:
            dist.recv(out, group=group, group_src=0)
            dist.send(t, group=group, group_dst=0)
        w.equal(out, torch.full((3,), float(before if w.rank == last else last)))
        dist.destroy_process_group(group)


@case(each=["destroyed", "aborted"], worlds=(2,))
def to_oneself_until_the_group_ends(w, how):
    """A message to oneself without its other end fails with the group; no rank waits for ever."""
    w.needs(w.judged and w.device.type == "cpu", "gloo and GPUs: no messages to oneself")
    group = w.new_group()
    works = [dist.irecv(torch.ones(3), w.rank, group=group), dist.irecv(torch.ones(3), w.rank, group=group)]
    future = works[1].get_future()
    if how == "destroyed":
        dist.destroy_process_group(group)
    else:
        group.abort()
    for work in works:
        w.raises(lambda: work.wait(datetime.timedelta(seconds=10)), how)
    w.raises(future.wait, how)


@case(worlds=(3,))
def any_rank_in_groups_of_one_name(w):
    """What is counted of an earlier group's messages, in the store if ranks share no memory, is not a later one's."""
    w.needs(w.judged and w.device.type == "cpu", ANY)
    from shunt.torch._extension import C
    store = dist.PrefixStore(f"one name {w.seed}", dist.distributed_c10d._get_default_store())
    t = torch.full((1,), float(w.rank))
    for _ in range(2):
        group = C.ShuntBackend(store, w.rank, w.size, C.Options())
        for source in (0, 1):
            if w.rank == source:
                group.send([t], 2, 0).wait()
            elif w.rank == 2:
                work = group.recv([t], 0, 0) if source == 0 else group.recv_anysource([t], 0)
                work.wait(datetime.timedelta(seconds=10))
                w.equal(t, torch.full((1,), float(source)))
            w.truth_barrier()
        group.shutdown()
        w.truth_barrier()


@case(worlds=(2,), each=["isend", "irecv"])
def to_oneself_without_the_other_end(w, name):
    """It fails at its deadline, with its future, and another message to oneself comes after it."""
    w.needs(w.judged and w.device.type == "cpu", "gloo and GPUs: no messages to oneself")
    group = w.new_group(seconds=0.3)
    work = getattr(dist, name)(torch.ones(3), w.rank, group=group)
    future = work.get_future()
    w.raises(lambda: work.wait(), "timeout", name[1:], "0.3 s", "other end")
    w.raises(future.value, "timeout")
    out = torch.zeros(3)
    works = [dist.irecv(out, w.rank, group=group), dist.isend(torch.ones(3), w.rank, group=group)]
    for work in works:
        work.wait()
    w.equal(out, torch.ones(3))
    dist.destroy_process_group(group)


@case(worlds=(2,))
def batch_with_one_that_fails(w):
    """wait ends when all parts have: one has failed, and the memory of the others is the caller's again."""
    w.needs(w.device.type == "cpu" and w.judged, "gloo waits for one after the other; on GPUs wait does not block")
    group = w.new_group()
    if w.rank == 0:
        wrong, right = torch.zeros(2), torch.zeros(5)
        ops = [dist.P2POp(dist.irecv, wrong, w.rank, group=group), dist.P2POp(dist.isend, right, w.rank, group=group),
               dist.P2POp(dist.irecv, right, 1, group=group)]
        work, = dist.batch_isend_irecv(ops)
        w.meet()
        w.raises(work.wait, "bytes")
        w.equal(right, torch.ones(5))
    else:
        w.meet()
        dist.send(torch.ones(5), 0, group=group)
    dist.destroy_process_group(group)
