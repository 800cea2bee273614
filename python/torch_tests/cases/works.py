"""Asynchronous calls: Works, several in flight, coalescing. Their futures are in futures.py."""

import datetime
import os
import threading
import time

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from torch_tests.registry import case

#: Every collective that takes async_op, as f(w, group) -> (work, result to compare).
CALLS = {}


def call(f):
    CALLS[f.__name__] = f
    return f


@call
def all_reduce(w, group):
    t = w.own(1001, kind="whole")
    return dist.all_reduce(t, group=group, async_op=True), t


@call
def reduce(w, group):
    t = w.own(1001, kind="whole")
    return dist.reduce(t, 0, group=group, async_op=True), t if w.rank == 0 else None


@call
def broadcast(w, group):
    t = w.own(1001)
    return dist.broadcast(t, 1, group=group, async_op=True), t


@call
def all_gather(w, group):
    out = [w.empty(7) for _ in range(w.size)]
    return dist.all_gather(out, w.own(7), group=group, async_op=True), out


@call
def all_gather_into_tensor(w, group):
    out = w.empty(7 * w.size)
    return dist.all_gather_into_tensor(out, w.own(7), group=group, async_op=True), out


@call
def gather(w, group):
    out = [w.empty(7) for _ in range(w.size)] if w.rank == 1 else None
    return dist.gather(w.own(7), out, dst=1, group=group, async_op=True), out


@call
def scatter(w, group):
    out = w.empty(7)
    lists = [w.own(7) for _ in range(w.size)] if w.rank == 1 else None
    if lists is None:
        w._draws += w.size
    return dist.scatter(out, lists, src=1, group=group, async_op=True), out


@call
def reduce_scatter_tensor(w, group):
    out = w.empty(7)
    return dist.reduce_scatter_tensor(out, w.own(7 * w.size, kind="whole"), group=group, async_op=True), out


@call
def all_to_all_single(w, group):
    out = w.empty(7 * w.size)
    return dist.all_to_all_single(out, w.own(7 * w.size), group=group, async_op=True), out


@call
def barrier(w, group):
    return dist.barrier(group=group, async_op=True), None


@case(each=list(CALLS))
def waited(w, name):
    def run(group):
        work, result = CALLS[name](w, group)
        assert isinstance(work, dist.Work), f"{name} returned {work!r}"
        work.wait()
        if w.device.type == "cuda":  # there wait orders the current stream behind the call
            torch.cuda.synchronize()
        assert work.is_completed() or group is w.truth or not w.judged, "is_completed is False after wait"
        return result
    w.same(run)


@case(each=list(CALLS))
def waited_with_timeout(w, name):
    def run(group):
        work, result = CALLS[name](w, group)
        work.wait(datetime.timedelta(seconds=30))
        return result
    w.same(run)


@case(worlds=(2,))
def waited_with_timeout_in_a_capture(w):
    w.needs(w.judged and w.device.type == "cuda", "nccl: a wait with a timeout cannot be captured")
    t, graph = w.own(1001, kind="whole"), torch.cuda.CUDAGraph()
    own = t.clone()
    dist.all_reduce(torch.zeros_like(t), group=w.group)  # the ranks meet
    with torch.cuda.graph(graph):
        dist.all_reduce(t, group=w.group, async_op=True).wait(datetime.timedelta(seconds=30))
    graph.replay()
    torch.cuda.synchronize()
    w.equal(t, sum(w.gathered(own)))


@case(worlds=(2, 3))
def blocked_stream(w):
    """The current stream is behind the call, also without wait."""
    w.needs(w.device.type == "cuda", "torch blocks streams of GPUs")
    for _ in range(20):
        t = w.own(1 << 20, kind="whole")
        want = sum(w.gathered(t))
        dist.all_reduce(t, group=w.group, async_op=True).block_current_stream()
        w.equal(t * 1, want)


@case(worlds=(2,), each=["barrier", "with a timeout"], seconds=120)
def failure_is_thrown_by_a_wait_that_blocks(w, how):
    """A wait that blocks the host for a call on a GPU does not return as if that had gone well."""
    w.needs(w.judged and w.device.type == "cuda", "in host memory each wait throws")
    group = w.new_group(seconds=2)
    t = torch.ones(1000, device=w.device)
    dist.all_reduce(t, group=group)
    dist.barrier(group=group)  # later ones begin without an agreement of the hosts
    w.meet()
    if w.rank == 0:
        with torch.cuda.stream(torch.cuda.Stream()):
            if how == "barrier":
                w.raises(lambda: dist.barrier(group=group, async_op=True).wait(), "barrier on rank 0", "peer rank 1")
            else:
                work = dist.all_reduce(t, group=group, async_op=True)
                w.raises(lambda: work.wait(datetime.timedelta(seconds=30)), "all_reduce on rank 0", "peer rank 1")
    w.meet()


@case(worlds=(2, 3))
def waited_too_short(w):
    """The error names the call and its group; the call continues, and a later wait ends with it."""
    w.needs(w.judged, "gloo and nccl: abort the call")
    calls = {"all_reduce": lambda t: dist.all_reduce(t, group=w.group, async_op=True),
             "all_gather_into_tensor": lambda t: dist.all_gather_into_tensor(w.empty((w.size, 3)), t, group=w.group,
                                                                             async_op=True),
             "recv": lambda t: (dist.irecv if w.rank else dist.isend)(t, 1 - w.rank, group=w.group)}
    for name, start in calls.items():
        if w.device.type == "cuda" and (w.rank < 2 or name != "recv"):
            start(w.own(3)).wait()  # there the ranks meet within the first call
        w.meet()
        if w.rank == 1:
            work = start(w.own(3))
            # On GPUs the stream is then behind the call, and the ranks are to meet in another one.
            with torch.cuda.stream(torch.cuda.Stream() if w.device.type == "cuda" else None):
                w.raises(lambda: work.wait(datetime.timedelta(milliseconds=1)), "timeout",  # noqa: B023
                         f"{name} on rank 1 of group {w.group.group_name}")
        w.meet()
        if w.rank != 1 and (name != "recv" or w.rank == 0):
            work = start(w.own(3))
        if w.rank < 2 or name != "recv":
            work.wait()


@case(worlds=(2,), each=["of a call", "set for a while", "of the group"])
def short_deadline_passes(w, kind):
    """A short deadline of the first call, or of the group, is not that of later calls."""
    short = datetime.timedelta(seconds=3)
    group = w.new_group(seconds=3 if kind == "of the group" else 60)
    own = group._get_backend(w.device)
    options = dist.AllreduceOptions()
    options.asyncOp = True
    if kind == "of a call":
        options.timeout = short
    elif kind == "set for a while":
        own.set_timeout(short)
    own.allreduce([torch.ones(3, device=w.device)], options).wait()
    longer = datetime.timedelta(seconds=30)
    if kind == "of the group":
        dist.distributed_c10d._set_pg_timeout(longer, group)
    else:
        own.set_timeout(longer)
    w.meet()
    late = torch.full((3,), float(w.rank), device=w.device)
    if w.rank == 1:
        time.sleep(3.5)  # longer than the short one
    dist.all_reduce(late, group=group)
    w.equal(late, torch.ones(3))
    dist.destroy_process_group(group)


@case()
def polled(w):
    import time
    t = w.own(5, kind="whole")
    work = dist.all_reduce(t, group=w.group, async_op=True)
    end = time.monotonic() + 20
    while not work.is_completed():
        assert time.monotonic() < end, "not completed after 20 s, without wait"
        time.sleep(0.001)
    work.wait()
    w._draws = 0
    w.equal(t, sum(w.everyone(5, kind="whole")))


@case(worlds=(2,))
def in_a_forked_child(w):
    """A child has none of the group's threads: an asynchronous call there fails, it does not wait for ever."""
    w.needs(w.judged and w.device.type == "cpu", "gloo and CUDA: of no use after a fork")
    all_reduce(w, w.group)[0].wait()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            all_reduce(w, w.group)[0].wait(datetime.timedelta(seconds=10))
        except RuntimeError as error:
            os.write(tell, str(error).encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    assert "forked" in text, text or "no error"


@case()
def many_in_flight(w):
    """40 Works, waited for in the opposite order."""
    tensors = [torch.full((i * 37 % 500 + 1,), float(w.rank + i), device=w.device) for i in range(40)]
    works = [dist.all_reduce(t, group=w.group, async_op=True) for t in tensors]
    for work in reversed(works):
        work.wait()
    for i, t in enumerate(tensors):
        w.equal(t, torch.full_like(t, float(sum(range(w.size)) + i * w.size)))


@case()
def async_then_plain(w):
    """A plain call behind an asynchronous one of the same tensor sees its result."""
    t = torch.full((100_001,), float(w.rank), device=w.device)
    work = dist.all_reduce(t, group=w.group, async_op=True)
    work.wait()
    dist.all_reduce(t, group=w.group)
    w.equal(t, torch.full((100_001,), float(sum(range(w.size)) * w.size)))


@case()
def works_dropped(w):
    """A Work without a reference still completes, and its tensors live as long."""
    for i in range(30):
        dist.all_reduce(torch.ones(5000, device=w.device), group=w.group, async_op=True)
    t = torch.ones(3, device=w.device)
    dist.all_reduce(t, group=w.group)
    w.equal(t, torch.full((3,), float(w.size)))


@case()
def two_groups_at_once(w):
    """Works of two groups, started in opposite orders on odd and even ranks, all complete."""
    other = w.new_group()
    for turn in range(10):
        a, b = torch.full((100,), float(w.rank), device=w.device), torch.full((100,), 2.0 * w.rank, device=w.device)
        pairs = [(a, w.group), (b, other)]
        works = [dist.all_reduce(t, group=g, async_op=True) for t, g in (pairs if (w.rank + turn) % 2 else pairs[::-1])]
        for work in works:
            work.wait()
        w.equal(a, torch.full((100,), float(sum(range(w.size)))))
        w.equal(b, torch.full((100,), 2.0 * sum(range(w.size))))
    dist.destroy_process_group(other)


#: With a device the calls also stand between the backend's startCoalescing and endCoalescing.
MANNERS = ["with device", "without device"]


def coalescing(w, group, manner):
    return _coalescing_manager(group=group, device=w.device if manner == "with device" else None, async_ops=True)


@case(each=MANNERS)
def coalesced_all_reduce(w, manner):
    def run(group):
        tensors = [w.own(n, kind="whole") for n in (3, 0, 500, 77)]
        with coalescing(w, group, manner) as manager:
            for t in tensors:
                dist.all_reduce(t, group=group)
        manager.wait()
        return tensors
    w.same(run, model=lambda: [sum(w.everyone(n, kind="whole")) for n in (3, 0, 500, 77)])


@case(each=MANNERS)
def coalesced_all_gather(w, manner):
    def run(group):
        outs = [w.empty(n * w.size) for n in (3, 500)]
        with coalescing(w, group, manner) as manager:
            for n, out in zip((3, 500), outs):
                dist.all_gather_into_tensor(out, w.own(n), group=group)
        manager.wait()
        return outs
    w.same(run, model=lambda: [torch.cat(w.everyone(n)) for n in (3, 500)])


@case(each=MANNERS)
def coalesced_reduce_scatter(w, manner):
    def run(group):
        outs = [w.empty(n) for n in (3, 500)]
        with coalescing(w, group, manner) as manager:
            for n, out in zip((3, 500), outs):
                dist.reduce_scatter_tensor(out, w.own(n * w.size, kind="whole"), group=group)
        manager.wait()
        return outs
    w.same(run, model=lambda: [sum(t[w.rank * n:w.rank * n + n] for t in w.everyone(n * w.size, kind="whole"))
                               for n in (3, 500)])


@case()
def all_gather_coalesced(w):
    """The deprecated list of lists, which torch still exports."""
    def run(group):
        outs = [[w.empty(n) for n in (3, 50)] for _ in range(w.size)]
        dist.all_gather_coalesced(outs, [w.own(n) for n in (3, 50)], group=group)
        return outs
    w.same(run, model=lambda: [list(pair) for pair in zip(*[w.everyone(n) for n in (3, 50)])])


@case()
def all_reduce_coalesced(w):
    def run(group):
        tensors = [w.own(n, kind="whole") for n in (3, 50, 1)]
        dist.all_reduce_coalesced(tensors, group=group)
        return tensors
    w.same(run, model=lambda: [sum(w.everyone(n, kind="whole")) for n in (3, 50, 1)])


@case()
def lists_in_inference_mode(w):
    """Calls that end on another thread: their tensors are of the caller's mode."""
    with torch.inference_mode():
        t = torch.full((3,), float(w.rank), device=w.device)
        want = [torch.full((3,), float(r), device=w.device) for r in range(w.size)]
        out = [torch.zeros(3, device=w.device) for _ in range(w.size)]
        dist.all_gather(out, t, group=w.group, async_op=True).wait()
        w.equal(out, want)
        out = [torch.zeros(3, device=w.device) for _ in range(w.size)] if w.rank == 0 else None
        dist.gather(t, out, 0, group=w.group, async_op=True).wait()
        if w.rank == 0:
            w.equal(out, want)
        got = torch.zeros(3, device=w.device)
        dist.reduce_scatter(got, want, group=w.group, async_op=True).wait()
        w.equal(got, want[w.rank] * w.size)


@case()
def several_threads_wait(w):
    """A Work may be waited for by threads of which each goes on with its result, and frees what it kept."""
    for step in range(50):
        inputs = w.everyone(1001, kind="whole")
        want, t = sum(inputs), inputs[w.rank]
        work = dist.all_reduce(t, group=w.group, async_op=True)
        start, results = threading.Barrier(4), []

        def wait(work=work, start=start, results=results, t=t):
            start.wait()
            work.wait()
            results.append(t + step)

        threads = [threading.Thread(target=wait) for _ in range(4)]
        del work
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 4
        for result in results:
            w.equal(result, want + step)
