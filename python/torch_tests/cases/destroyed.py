"""Groups that are destroyed while their calls run."""

import contextlib
import ctypes
import datetime
import os
import signal
import threading

import torch
import torch.distributed as dist

from torch_tests.cases.faults import SOON, fails, once_inside
from torch_tests.registry import case


@contextlib.contextmanager
def handled(handler):
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


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
    """A group with an idle thread, that of a call which has ended."""
    w.needs(w.judged, "gloo: runs signal handlers, and lets a group go, when its calls have ended")
    w.needs(w.device.type == "cpu", "cuda: calls return when they are queued, and groups have no threads")
    group = w.new_group()
    dist.all_reduce(torch.ones(3), group=group, async_op=True).wait()
    return group


@case(each=[(how, beside) for how in ("returns", "raises") for beside in ("an idle thread", "no thread")],
      breaks=True, worlds=(2,))
def a_signal_handler_destroys_the_group_that_it_interrupts(w, how, beside):
    """As in programs that are told to end. The call ends behind the handler, and destroying does not wait for it: that
    would take 15 s."""
    group = used(w)
    if beside == "no thread":
        group = w.new_group()
        dist.all_reduce(torch.ones(3), group=group)
    if w.rank == 1:
        w.await_others(1)  # until then this call could still meet rank 0's
        return fails(w, lambda: all_reduce(group, torch.ones(3)), "the group was destroyed")

    def end(*_):
        dist.destroy_process_group(group)
        if how == "raises":
            raise ValueError("told to end")
    with handled(end):
        once_inside(w, group, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        fails(w, lambda: all_reduce(group, torch.ones(3)),
              "told to end" if how == "raises" else "the group was destroyed")
    w.await_others(1)


@case(breaks=True, worlds=(2,))
def a_message_that_nobody_sends_ends_with_its_group(w):
    """It has not met the other rank yet, and says what has become of the group, which nobody aborted."""
    group = used(w)
    if w.rank == 1:
        return w.await_others(1)
    work = dist.irecv(torch.ones(3), 1, group=group)
    destroy(w, group)
    fails(w, work.wait, "the group was destroyed")
    w.await_others(1)


@case(breaks=True, worlds=(2,))
def a_signal_handler_destroys_the_group_that_its_call_waits_for(w):
    """The call was to follow another one. It does not run on a communicator made anew."""
    group = used(w)
    if w.rank == 1:
        return w.await_others(1)
    work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    with handled(lambda *_: destroy(w, group)):
        once_inside(w, group, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        fails(w, lambda: all_reduce(group, torch.ones(3)), "all_reduce on rank 0", "the group was destroyed")
    w.raises(work.wait, "the group was destroyed")
    w.await_others(1)


@case(breaks=True, worlds=(2,))
def destroyed_while_a_signal_handler_keeps_a_call(w):
    """A call that does not come back within 5 s of its end still has its communicator."""
    from shunt._library import library
    from shunt._tables import Code
    group = used(w)
    if w.rank == 1:
        return w.await_others(1)
    communicator = group._get_backend(w.device).communicator_handle(w.device)
    entered, destroyed, status = threading.Event(), threading.Event(), ctypes.c_int()

    def keep(*_):
        entered.set()
        assert destroyed.wait(25), "the group was not destroyed within 25 s"

    def interrupt():
        os.kill(os.getpid(), signal.SIGUSR1)
        assert entered.wait(25), "no handler has run within 25 s"
        destroy(w, group)
        asked = library().shunt_get_async_error(communicator, ctypes.byref(status))
        status.value = asked or status.value
        destroyed.set()
    with handled(keep):
        once_inside(w, group, interrupt)
        fails(w, lambda: all_reduce(group, torch.ones(3)), "the group was destroyed")
    assert status.value == Code.ABORTED, status
    w.await_others(1)


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
