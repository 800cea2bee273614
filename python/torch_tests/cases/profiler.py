"""What torch's profiler shows of calls: one event of each, under the backend's name."""

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from torch_tests.registry import case


def _calls(w) -> dict:
    """Calls of one rank by the name that torch.distributed has for them: f(async_op), and the shapes that it reads."""
    t, peer = w.own(6), 1 - w.rank
    each, whole = [w.empty(6) for _ in range(w.size)], w.empty(6 * w.size)
    lists = [w.own(6) for _ in range(w.size)]
    first = w.rank == 0

    def exchange(_):
        order = [dist.isend, dist.irecv] if first else [dist.irecv, dist.isend]
        for work in [f(t if f is dist.isend else w.empty(6), peer, group=w.group) for f in order]:
            work.wait()

    return {
        "all_reduce": (lambda a: dist.all_reduce(t, group=w.group, async_op=a), [[6]]),
        "reduce": (lambda a: dist.reduce(t, 0, group=w.group, async_op=a), [[6]]),
        "broadcast": (lambda a: dist.broadcast(t, 0, group=w.group, async_op=a), [[6]]),
        "all_gather": (lambda a: dist.all_gather(each, t, group=w.group, async_op=a), [[6]]),
        "all_gather_into_tensor": (lambda a: dist.all_gather_into_tensor(whole, t, group=w.group, async_op=a), [[6]]),
        "reduce_scatter_tensor": (lambda a: dist.reduce_scatter_tensor(t, whole, group=w.group, async_op=a),
                                  [[6 * w.size]]),
        "reduce_scatter": (lambda a: dist.reduce_scatter(t, lists, group=w.group, async_op=a), [[6]] * w.size),
        "gather": (lambda a: dist.gather(t, each if first else None, 0, group=w.group, async_op=a), [[6]]),
        "scatter": (lambda a: dist.scatter(t, lists if first else None, 0, group=w.group, async_op=a),
                    [[6]] * w.size if first else [[6]]),
        "all_to_all": (lambda a: dist.all_to_all(each, lists, group=w.group, async_op=a), [[6]] * w.size),
        "all_to_all_single": (lambda a: dist.all_to_all_single(whole, whole.clone(), group=w.group, async_op=a),
                              [[6 * w.size]]),
        "barrier": (lambda a: dist.barrier(group=w.group, async_op=a), []),
        "send": (exchange, [[6]]),
        "recv": (exchange, [[6]]),
    }


@case(worlds=(2,), seconds=120, each=[(False,), (True,)])
def every_call_is_an_event(w, asynchronous):
    w.needs(w.judged, "names of events are each backend's own")
    for name, (f, shapes) in _calls(w).items():
        f(False)  # the communicators
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            work = f(asynchronous)
            if work is not None:
                work.wait()
        events = [e for e in profiler.events() if e.name == f"shunt:{name}"]
        assert len(events) == 1, f"{name}: {len(events)} events of {[e.name for e in profiler.events()]}; expected 1"
        assert [s for s in events[0].input_shapes if s] == shapes, f"{name}: shapes {events[0].input_shapes}"


@case(seconds=120)
def calls_outlive_the_profiler(w):
    """Calls that end when nothing records any more, on whichever thread, and calls made after that: what torch's
    profiler has recorded is not written to when it has freed that."""
    w.needs(w.judged, "names of events are each backend's own")
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        works = [dist.all_reduce(w.own(1 << 16), group=w.group, async_op=True) for _ in range(8)]
        works[0].wait()
    for work in works:
        work.wait()
    dist.all_reduce(w.own(6), group=w.group)
    names = [e.name for e in profiler.events()]
    assert names.count("shunt:all_reduce") == 8, names
