"""Futures of asynchronous calls: their values, and callbacks that call, wait, differentiate and destroy."""

import torch
import torch.distributed as dist

from torch_tests.cases.works import CALLS
from torch_tests.registry import case


@case(worlds=(2, 3))
def future_of_a_gathered_list(w):
    """As nccl's it has one tensor with all in it, on which DDP's quantization hooks rely; gloo's has the list."""
    parts = [w.empty((2, 3)) for _ in range(w.size)]
    work = dist.all_gather(parts, w.own((2, 3)), group=w.group, async_op=True)
    value = work.get_future().wait()
    w.equal(value[0] if w.device.type == "cuda" else torch.stack(value), torch.stack(parts))


@case(each=[name for name in CALLS if name != "barrier"])
def futures(w, name):
    """DDP's hooks chain on the future of a Work."""
    def run(group):
        work, result = CALLS[name](w, group)
        done = []
        future = work.get_future().then(lambda f: done.append(1) or f.value())
        future.wait()
        work.wait()
        assert done == [1]
        return result

    def waited_for(group):
        work, result = CALLS[name](w, group)
        work.wait()
        return result
    w.same(run, model=lambda: w.true(waited_for), truth=False)


@case()
def value_of_a_future(w):
    """The future of an all_reduce holds the tensors: hooks read value()[0]."""
    t = w.own(5, kind="whole")
    work = dist.all_reduce(t, group=w.group, async_op=True)
    value = work.get_future().then(lambda f: f.value()[0] / w.size).wait()
    w._draws = 0
    w.equal(value, sum(w.everyone(5, kind="whole")) / w.size)
    work.wait()


@case()
def future_of_a_batch(w):
    """That of several messages holds the tensors of all, as that of one does, and says how the worst has ended."""
    w.needs(w.judged, "gloo: a batch is a Work for each message")
    right, left = (w.rank + 1) % w.size, (w.rank - 1) % w.size
    sent, come = torch.full((3,), float(w.rank), device=w.device), w.empty((3,))
    work, = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, right, w.group),
                                    dist.P2POp(dist.irecv, come, left, w.group)])
    future = work.get_future().then(lambda f: [t.sum().item() for t in f.value()])
    result = work.get_future_result() if w.device.type == "cpu" else None
    assert future.wait() == [3.0 * w.rank, 3.0 * left]
    assert result is None or result.wait() == 0
    work.wait()


@case(each=["get_future", "get_future_result"])
def future_at_the_end(w, name):
    """A future that is asked for at the moment at which the call ends."""
    t = torch.ones(3, device=w.device)
    for _ in range(500):
        work = dist.all_reduce(t, group=w.group, async_op=True)
        w.needs(name == "get_future" or w.judged and w.device.type == "cpu", "no get_future_result")
        while not work.is_completed():
            pass
        getattr(work, name)().wait()


@case(each=["get_future", "get_future_result"])
def value_after_wait(w, name):
    """A future that was asked for before the wait is complete behind it."""
    t = torch.ones(3, device=w.device)
    for _ in range(500):
        work = dist.all_reduce(t, group=w.group, async_op=True)
        w.needs(name == "get_future" or w.judged and w.device.type == "cpu", "no get_future_result")
        future, again = getattr(work, name)(), work.get_future()
        work.wait()
        future.value()
        again.value()


@case()
def callbacks_call(w):
    """Callbacks make calls and wait for them, inside each other, and for a call that was made behind their own."""
    first, behind, inner, plain = (w.own(n, kind="whole") for n in (4_000_000, 5, 6, 7))
    works = [dist.all_reduce(t, group=w.group, async_op=True) for t in (first, behind)]

    def outer(future):
        works[1].wait()
        work = dist.all_reduce(inner, group=w.group, async_op=True)
        return work.get_future().then(lambda _: dist.all_reduce(plain, group=w.group)).wait()

    w.needs(w.judged, "gloo: two threads run callbacks and calls, and both are in callbacks here")
    works[0].get_future().then(outer).wait()
    if w.device.type == "cuda":  # a future without a tensor has nothing that a stream could wait for
        torch.cuda.synchronize()
    w._draws = 0
    w.equal([first, behind, inner, plain], [sum(w.everyone(n, kind="whole")) for n in (4_000_000, 5, 6, 7)])


@case(worlds=(2,))
def callbacks_of_many_wait(w):
    """Callbacks of more calls than a group has threads wait for a call that was made behind them all."""
    works = [dist.all_reduce(torch.ones(n, device=w.device), group=w.group, async_op=True)
             for n in (4_000_000, 5, 6, 7, 8)]
    w.needs(w.judged, "gloo: two threads run callbacks and calls, and both are in callbacks here")
    futures = [work.get_future().then(lambda _: works[-1].get_future().wait()) for work in works[:-1]]
    for future in futures:
        future.wait()


@case()
def callbacks_differentiate(w):
    """Gradients are on in a callback, as where it was made."""
    weight, t = torch.ones(3, device=w.device, requires_grad=True), w.own(4_000_000, kind="whole")
    work = dist.all_reduce(t, group=w.group, async_op=True)
    work.get_future().then(lambda f: (f.value()[0][:3] * weight).sum().backward()).wait()
    if w.device.type == "cuda":  # as above
        torch.cuda.synchronize()
    w.equal(weight.grad, t[:3])


@case()
def callbacks_destroy(w):
    """The last thing that a group's thread does is to destroy the group."""
    for _ in range(5):
        groups = [w.new_group()]
        future = dist.all_reduce(torch.ones(1_000_000, device=w.device), group=groups[0], async_op=True).get_future()
        w.needs(w.judged, "gloo: the thread would join itself")
        future.then(lambda _: dist.destroy_process_group(groups.pop())).wait()
        assert not groups
