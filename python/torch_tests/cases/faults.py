"""What happens to the others: ranks that disagree, stay away, abort or die. Every survivor gets an error in time."""

import datetime
import os
import signal
import threading
import time

import torch
import torch.distributed as dist

from torch_tests.registry import case

#: Past this many seconds after a fault a rank counts as hanging.
SOON = 15.0


def fails(w, f, *words):
    """f raises soon, in words that name them; returns the error."""
    began = time.monotonic()

    def call():
        f()
        # On a GPU a call returns when it is queued. What became of it one of those within 0.25 s tells.
        while w.device.type == "cuda" and time.monotonic() - began < SOON:
            torch.cuda.synchronize()
            f()
    error = w.raises(call, *(words if w.judged else ()))
    assert "shrink" not in str(error), f"groups of torch do not shrink: {error}"
    took = time.monotonic() - began
    assert took < SOON, f"the error came after {took:.1f} s: {error}"
    return error


def once_inside(w, group, then):
    """Runs then in another thread, which is returned, once this one has entered its next call of the group. A signal
    that comes from there is handled inside the call: until the call looks for signals no line of Python runs."""
    backend = group._get_backend(w.device)
    before = backend._get_sequence_number_for_group()

    def wait():
        while backend._get_sequence_number_for_group() == before:
            time.sleep(0.001)
        then()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def disagreement(w, f, *words):
    w.needs(w.judged, "gloo: does not compare the calls of ranks")
    fails(w, f, *words)


@case(breaks=True, worlds=(2, 3))
def counts_differ(w):
    t = torch.ones(1000 + (w.rank == w.size - 1), device=w.device)
    disagreement(w, lambda: dist.all_reduce(t, group=w.group), "all_reduce", "count 1001", "count 1000")


@case(breaks=True, worlds=(2, 3))
def counts_differ_asynchronously(w):
    t = torch.ones(1000 + (w.rank == 0), device=w.device)
    disagreement(w, lambda: dist.all_reduce(t, group=w.group, async_op=True).wait(), "all_reduce", "count 1001",
                 "count 1000")


@case(breaks=True, worlds=(2, 3))
def dtypes_differ(w):
    t = torch.ones(1000, dtype=torch.float32 if w.rank else torch.int32, device=w.device)
    disagreement(w, lambda: dist.all_reduce(t, group=w.group), "all_reduce", "float32", "int32")


@case(breaks=True, worlds=(2, 3))
def ops_differ(w):
    t = torch.ones(1000, device=w.device)
    disagreement(w, lambda: dist.all_reduce(t, op=dist.ReduceOp.SUM if w.rank else dist.ReduceOp.MAX, group=w.group),
                 "sum", "max")


@case(breaks=True, worlds=(2, 3))
def roots_differ(w):
    t = torch.ones(1000, device=w.device)
    disagreement(w, lambda: dist.broadcast(t, 1 if w.rank else 0, group=w.group), "broadcast", "root")


@case(breaks=True, worlds=(2, 3))
def collectives_differ(w):
    t = torch.ones(1000, device=w.device)

    def call():
        if w.rank:
            dist.all_reduce(t, group=w.group)
        else:
            dist.broadcast(t, 0, group=w.group)
    disagreement(w, call, "all_reduce", "broadcast")


@case(breaks=True, worlds=(2, 3))
def split_sizes_on_some_ranks(w):
    t, out = torch.ones(2 * w.size, device=w.device), torch.empty(2 * w.size, device=w.device)
    sizes = [2] * w.size if w.rank else None
    disagreement(w, lambda: dist.all_to_all_single(out, t, sizes, sizes, group=w.group), "all_to_all_v",
                 "split sizes on all ranks")


@case(breaks=True, worlds=(3,))
def a_part_of_the_job_is_named_by_its_ranks_there(w):
    group = w.new_group([1, 2])
    if w.rank in (1, 2):
        ranks = ", ".join(map(str, dist.get_process_group_ranks(group)))
        t = torch.ones(w.rank, device=w.device)
        disagreement(w, lambda: dist.all_reduce(t, group=group), f"(ranks {ranks} of the job)", "the group is aborted")


@case(breaks=True, worlds=(2, 3))
def a_rank_stays_away(w):
    """The group's own timeout ends the wait, and the error names who is missing."""
    group = w.new_group(seconds=3)
    t = torch.ones(1000, device=w.device)
    dist.all_reduce(t, group=group)
    if w.rank == 0:
        return time.sleep(5)
    began = time.monotonic()
    fails(w, lambda: dist.all_reduce(t, group=group), "timeout", "all_reduce", "rank 0")
    assert time.monotonic() - began > 2.5, "the wait ended before its timeout"


@case(breaks=True, worlds=(2,))
def a_rank_stays_away_from_a_new_group(w):
    """The first collective of a group that one rank never uses."""
    group = w.new_group(seconds=3)
    if w.rank == 0:
        return time.sleep(6)
    fails(w, lambda: dist.all_reduce(torch.ones(10, device=w.device), group=group), "timeout", "rank 0")


@case(each=["all_reduce", "all_reduce async", "send"], breaks=True, worlds=(2,))
def ranks_that_never_met(w, name):
    """Ranks that have waited for each other in vain: no later call of one meets an earlier one of the other."""
    group = w.new_group(seconds=2)
    tensors = [torch.full((3,), value, device=w.device) for value in (1.0, 10.0, 100.0)]
    if w.rank == 1:
        w.await_others(1)  # rank 0's first call has ended
    if name == "send":
        calls = [lambda t=t: (dist.recv if w.rank else dist.send)(t, 1 - w.rank, group=group) for t in tensors]
    elif name == "all_reduce":
        calls = [lambda t=t: dist.all_reduce(t, group=group) for t in tensors]
    elif w.device.type == "cuda":  # the first call joins before it returns
        calls = [lambda t=t: dist.all_reduce(t, group=group, async_op=True).wait() for t in tensors]
    else:
        calls = [dist.all_reduce(t, group=group, async_op=True).wait for t in tensors]
    fails(w, calls[0], "timeout")
    if w.rank == 0:
        w.await_others(1)
    for call in calls[1:]:
        fails(w, call, "failed before", "timeout")
    w.await_others(1)


@case(breaks=True, worlds=(2,))
def a_signal_handler_calls_the_group_that_it_interrupts(w):
    """It would wait for the call that waits for it."""
    w.needs(w.judged, "gloo: runs handlers when its call has ended")
    w.needs(w.device.type == "cpu", "cuda: calls return when they are queued")
    group = w.new_group(seconds=30)
    t = torch.ones(3)
    dist.all_reduce(t, group=group)
    if w.rank == 1:
        w.await_others(1)  # until then this call could still meet rank 0's
        return fails(w, lambda: dist.all_reduce(t, group=group), "interrupted by a signal")
    before = signal.signal(signal.SIGUSR1, lambda *_: dist.barrier(group=group))
    try:
        once_inside(w, group, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        fails(w, lambda: dist.all_reduce(t, group=group), "barrier on rank 0", "called by a signal handler")
    finally:
        signal.signal(signal.SIGUSR1, before)
    w.await_others(1)


@case(breaks=True, worlds=(2, 3))
def refused_arguments_are_explained(w):
    """A rank whose arguments are refused, and that stays: the others' error says why they wait for it."""
    w.needs(w.judged, "gloo: its texts are its own")
    group = w.new_group(seconds=5)
    t, whole = torch.ones(4, device=w.device), torch.ones(4 * w.size, device=w.device)
    dist.all_gather_into_tensor(whole, t, group=group)
    if w.rank != 0:
        fails(w, lambda: dist.all_gather_into_tensor(whole, t, group=group), "timeout",
              "rank 0 refused its all_gather_into_tensor: argument output_tensor has 7 elements")
        return w.await_others(0)
    w.raises(lambda: dist.all_gather_into_tensor(torch.ones(7, device=w.device), t, group=group), "7 elements")
    w.await_others(0)


@case(breaks=True, worlds=(2, 3))
def refused_messages_are_explained(w):
    """The same where one rank alone waits for a message."""
    w.needs(w.judged, "gloo: its texts are its own")
    group = w.new_group(seconds=5)
    t = torch.ones(4, 4, device=w.device)
    if w.rank > 1:
        return w.await_others(0)
    exchange = dist.send if w.rank == 0 else dist.recv
    exchange(t, 1 - w.rank, group=group)
    if w.rank == 1:
        fails(w, lambda: dist.recv(t, 0, group=group), "timeout", "rank 0 refused its send: argument tensor")
        return w.await_others(0)
    w.raises(lambda: dist.send(t.t(), 1, group=group), "argument tensor")
    w.await_others(0)


@case(breaks=True, worlds=(2, 3))
def monitored_barrier_names_the_missing(w):
    w.needs(w.judged, "torch: has it for gloo alone, where the others get an error after its timeout")
    if w.rank == w.size - 1:
        return time.sleep(4)
    try:
        dist.monitored_barrier(group=w.group, timeout=datetime.timedelta(seconds=2))
    except RuntimeError as error:
        assert str(w.size - 1) in str(error), error
    else:
        raise AssertionError("no error")


def own_store(w, host):
    """A TCPStore that a rank runs, as programs have it. Their threads share its connection."""
    common, key = dist.distributed_c10d._get_default_store(), f"port of {w.seed}"
    if w.rank != host:
        return dist.TCPStore("localhost", int(common.get(key)))
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    common.set(key, str(store.port))
    return store


@case(worlds=(2,))
def monitored_barrier_beside_a_wait_in_the_store(w):
    """A thread of the program holds the store's connection for longer than the barrier may take."""
    w.needs(w.judged and w.device.type == "cpu", "the same on GPUs; gloo: asks no store")
    import shunt.torch
    store = own_store(w, 0)
    group = shunt.torch.process_group(store, w.rank, w.size)
    thread = threading.Thread(target=lambda: w.raises(
        lambda: store.wait([f"never {w.seed}"], datetime.timedelta(seconds=4))))
    if w.rank == 1:
        thread.start()
        stat = f"/proc/self/task/{thread.native_id}/syscall"
        while open(stat).read().split()[0] in ("running", "202"):  # futex: it waits for the GIL
            time.sleep(0.001)
    w.await_others(0)
    group.monitored_barrier(datetime.timedelta(seconds=2))
    if w.rank == 1:
        assert thread.is_alive(), "it has waited for the program"
        thread.join()
    w.await_others(0)


@case(breaks=True, worlds=(2,))
def a_message_never_comes(w):
    group = w.new_group(seconds=3)
    dist.barrier(group=group)
    if w.rank == 0:
        return time.sleep(5)
    fails(w, lambda: dist.recv(torch.empty(3, device=w.device), 0, group=group), "timeout", "recv", "rank 0")


@case(each=["unequal", "absent", "late", "aborted"], breaks=True, worlds=(3,))
def messages_name_ranks_of_the_group(w, what):
    """A message has a communicator of its two ranks alone, 0 and 1. Errors name them as the group does, and the call
    that was made."""
    w.needs(w.judged, "gloo: its texts are its own")
    group = w.new_group(seconds=2 if what in ("absent", "late") else 30)
    t = torch.ones(1 << 20, device=w.device)  # too long to be sent before it is received
    calls = {1: lambda n: dist.send(t[:n], 2, group=group), 2: lambda n: dist.recv(t[:n], 1, group=group)}
    if what != "absent" and w.rank in calls:
        calls[w.rank](1)
    w.await_others(1)
    errors = []
    if what == "unequal" and w.rank in calls:
        for _ in range(2):  # the second finds the communicator failed
            errors.append(fails(w, lambda: calls[w.rank](t.numel() // w.rank),
                                "rank 1 sends 4194304 bytes", "to rank 2"))
    elif what == "absent" and w.rank == 1:
        errors.append(fails(w, lambda: calls[1](1), "timeout", "send on rank 1", "not joined", "rank 2"))
    elif what == "late" and w.rank == 2:
        errors.append(fails(w, lambda: calls[2](1), "timeout", "recv on rank 2", "peer rank 1"))
    elif what == "aborted" and w.rank == 1:
        group.abort()
        errors.append(fails(w, lambda: calls[1](1), "aborted"))
    elif what == "aborted" and w.rank == 2:
        errors.append(fails(w, lambda: calls[2](1), "rank 1 aborted its group"))
    w.await_others(1)
    for text in map(str, errors):
        assert "rank 0" not in text and "put on" not in text, text


def die():
    os.kill(os.getpid(), signal.SIGKILL)


CALLS = {
    "all_reduce": lambda w, t: dist.all_reduce(t, group=w.group),
    "all_reduce async": lambda w, t: dist.all_reduce(t, group=w.group, async_op=True).wait(),
    "broadcast": lambda w, t: dist.broadcast(t, w.size - 1, group=w.group),
    "all_gather": lambda w, t: dist.all_gather([torch.empty_like(t) for _ in range(w.size)], t, group=w.group),
    "reduce_scatter": lambda w, t: dist.reduce_scatter_tensor(torch.empty_like(t), t.repeat(w.size), group=w.group),
    "all_to_all": lambda w, t: dist.all_to_all_single(torch.empty_like(t.repeat(w.size)), t.repeat(w.size),
                                                      group=w.group),
    "barrier": lambda w, t: dist.barrier(group=w.group),
    "recv": lambda w, t: dist.recv(t, w.size - 1, group=w.group),
    "object": lambda w, t: dist.all_gather_object([None] * w.size, 1, group=w.group),
}


@case(each=list(CALLS), dies=True, worlds=(2, 3))
def a_rank_is_killed(w, name):
    """kill -9 while the others wait for it."""
    t = torch.ones(100_000, device=w.device)
    dist.all_reduce(t, group=w.group)
    w.await_others(w.size - 1)
    if w.rank == w.size - 1:
        threading.Timer(0.3, die).start()
        time.sleep(60)
    fails(w, lambda: CALLS[name](w, t), f"rank {w.size - 1}")


@case(dies=True, worlds=(3,))
def killed_between_calls(w):
    """The others are computing; the next call fails, and the one after it too."""
    t = torch.ones(100_000, device=w.device)
    dist.all_reduce(t, group=w.group)
    w.await_others(w.size - 1)
    if w.rank == w.size - 1:
        die()
    time.sleep(1)
    fails(w, lambda: dist.all_reduce(t, group=w.group), "rank 2")
    fails(w, lambda: dist.all_reduce(t, group=w.group))


@case(dies=True, worlds=(2,))
def the_store_is_killed(w):
    """A receive from any rank asks the store who sends; that it is gone is reported as for every call."""
    w.needs(w.judged and w.device.type == "cpu", "gloo and GPUs: no receive that asks the store")
    from shunt.torch._extension import C
    store = own_store(w, w.size - 1)
    group = C.ShuntBackend(store, w.rank, w.size, C.Options())
    if w.rank == w.size - 1:
        threading.Timer(1, die).start()
        time.sleep(60)
    fails(w, lambda: group.recv_anysource([torch.ones(3)], 0).wait(), "recv", "store")


@case(dies=True, worlds=(3,))
def killed_then_destroyed(w):
    """destroy_process_group after a failure returns, as training programs call it in `finally`."""
    t = torch.ones(1000, device=w.device)
    dist.all_reduce(t, group=w.group)
    w.await_others(w.size - 1)
    if w.rank == w.size - 1:
        die()
    fails(w, lambda: dist.all_reduce(t, group=w.group))
    w.needs(w.judged, "gloo: may wait for its other groups")
    began = time.monotonic()
    dist.destroy_process_group(w.group)
    assert time.monotonic() - began < SOON


@case(breaks=True, worlds=(4,))
def destroyed_while_others_stay(w):
    """Rank 0 runs the store of the group's communicator and of three links, and each waits 5 s for its others to leave:
    at the same time."""
    w.needs(w.judged and w.device.type == "cpu", "gloo does not wait; GPUs: no links")
    group = w.new_group()
    t = torch.ones(1000)
    dist.all_reduce(t, group=group)
    for peer in range(1, w.size):
        if w.rank == 0:
            dist.send(t, peer, group=group)
        elif w.rank == peer:
            dist.recv(t, 0, group=group)
    store, key = dist.distributed_c10d._get_default_store(), f"destroyed, {w.seed}"
    if w.rank != 0:
        return store.wait([key], datetime.timedelta(seconds=60))
    began = time.monotonic()
    dist.destroy_process_group(group)
    took = time.monotonic() - began
    store.set(key, "")
    assert 4 < took < 9, took


@case(breaks=True, worlds=(2, 3))
def aborted_while_others_wait(w):
    """One rank aborts: the others, which wait in a collective, get the error."""
    w.needs(w.judged, "gloo: abort does nothing")
    group = w.new_group(seconds=40)
    t = torch.ones(1000, device=w.device)
    dist.all_reduce(t, group=group)
    w.await_others(0)
    if w.rank == 0:
        time.sleep(0.3)
        group.abort()
        return
    fails(w, lambda: dist.all_reduce(t, group=group), "rank 0")


@case(breaks=True, worlds=(2,))
def aborted_by_another_thread(w):
    """A watchdog thread aborts while this thread waits."""
    w.needs(w.judged, "gloo: abort does nothing")
    group = w.new_group(seconds=40)
    t = torch.ones(1000, device=w.device)
    dist.all_reduce(t, group=group)
    w.await_others(1)
    if w.rank == 0:
        return w.await_others(0)
    once_inside(w, group, group.abort)
    fails(w, lambda: dist.all_reduce(t, group=group), "abort")
    w.await_others(0)


@case(breaks=True, worlds=(2,), each=[0, 1])
def aborted_in_a_monitored_barrier(w, rank):
    w.needs(w.judged, "gloo: abort does nothing")
    group = w.new_group(seconds=60)
    if w.rank == rank:
        threading.Timer(0.3, group.abort).start()
        fails(w, lambda: dist.monitored_barrier(group=group), f"rank {rank}", "abort")
    w.await_others(1 - rank)


@case(breaks=True, worlds=(2,))
def an_exception_in_one_rank(w):
    """A rank that raises and ends its groups does not leave the others waiting for the timeout."""
    w.needs(w.judged, "gloo: notices only that a process has ended")
    t = torch.ones(1000, device=w.device)
    dist.all_reduce(t, group=w.group)
    if w.rank == 0:
        dist.destroy_process_group()
        return
    fails(w, lambda: dist.all_reduce(t, group=w.group))
