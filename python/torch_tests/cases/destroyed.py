"""Groups that are destroyed while their calls run."""

import datetime

import torch
import torch.distributed as dist

from torch_tests.cases.faults import SOON, fails, once_inside
from torch_tests.registry import case


def destroy(w, group):
    """destroy_process_group that waits a second for calls in flight; without a short timeout it is 10."""
    group._get_backend(w.device).set_timeout(datetime.timedelta(seconds=1))
    dist.destroy_process_group(group)


def all_reduce(group, t):
    """dist.all_reduce asks for the group once more when the call has failed, and raises that it was destroyed."""
    options = dist.AllreduceOptions()
    options.asyncOp = False
    group.allreduce([t], options)


def used(w):
    """A group that was called, directly and by its queue: it has a thread that is idle."""
    w.needs(w.judged, "gloo: runs signal handlers, and lets a group go, when its calls have ended")
    w.needs(w.device.type == "cpu", "cuda: calls return when they are queued, and groups have no threads")
    group = w.new_group()
    dist.all_reduce(torch.ones(3), group=group, async_op=True).wait()
    return group


@case(each=["queued", "blocking"], breaks=True, worlds=(2,))
def destroyed_in_a_call_beside_an_idle_thread(w, manner):
    """All threads of a group end, also one that had nothing to do while a call ran that never ends."""
    group = used(w)
    if w.rank == 0:
        w.await_others(0)  # rank 1 has asked for its futures
    works = [dist.all_reduce(torch.ones(3), group=group, async_op=True) for _ in range(2)]
    # The thread that runs callbacks of a future leaves the queue to another one; both stay.
    futures = [work.get_future() for work in works]
    if w.rank == 1:
        w.await_others(0)
    for done in (*futures, *works):
        done.wait()
    if w.rank == 0:
        return w.await_others(0)
    if manner == "queued":
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        fails(w, lambda: destroy(w, group) or work.wait(), "the group was destroyed")
    else:
        destroying = once_inside(w, group, lambda: destroy(w, group))
        fails(w, lambda: all_reduce(group, torch.ones(3)), "the group was destroyed")
        destroying.join(SOON)
        assert not destroying.is_alive(), "the group was not destroyed"
    w.await_others(0)
