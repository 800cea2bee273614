"""Tensors that are not one fresh piece of memory: views, offsets, strides, odd addresses, parameters."""

import torch
import torch.distributed as dist

from torch_tests.compare import rounding
from torch_tests.registry import case


@case()
def view_with_offset(w):
    """Only the view changes."""
    def run(group):
        whole = w.own(64, kind="whole")
        dist.all_reduce(whole[5:18], group=group)
        return whole

    def model():
        data = w.everyone(64, kind="whole")
        whole = data[w.rank].clone()
        whole[5:18] = sum(t[5:18] for t in data)
        return whole
    w.same(run, model=model)


@case(each=[(torch.uint8,), (torch.int8,), (torch.bfloat16,), (torch.float32,), (torch.float64,)])
def odd_addresses(w, dtype):
    """Every offset up to 16 elements, every length up to 40: no kernel may count on alignment."""
    for offset in range(0, 17, 3):
        for count in (1, 2, 3, 15, 16, 17, 40):
            def run(group):
                whole = w.own(64, dtype, "whole")
                dist.all_reduce(whole[offset:offset + count], group=group)
                out = w.empty(64 * w.size, dtype)
                dist.all_gather_into_tensor(out[offset:offset + count * w.size], whole[offset:offset + count],
                                            group=group)
                return [whole, out]
            w.same(run)


@case()
def scalars(w):
    def run(group):
        t = torch.tensor(float(w.rank + 1), device=w.device)
        dist.all_reduce(t, group=group)
        u = torch.tensor(w.rank, device=w.device)
        dist.broadcast(u, w.size - 1, group=group)
        return [t, u]
    w.same(run, model=lambda: [torch.tensor(float(sum(range(w.size + 1)))), torch.tensor(w.size - 1)])


@case()
def strided(w):
    """A transposed or strided tensor: the right result, or an error that names it and leaves it as it was."""
    w.needs(w.judged, "gloo: reduces what lies between the elements of a strided tensor")
    for make in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:, 1:]):
        base = w.own((6, 8), kind="whole")
        before, part = base.clone(), make(base)
        want = sum(make(t) for t in _again(w, (6, 8)))
        try:
            dist.all_reduce(part, group=w.group)
        except (RuntimeError, ValueError) as error:
            assert "contiguous" in str(error) or "dense" in str(error), error
            w.equal(base, before)
            continue
        w.equal(part, want)


def _again(w, shape):
    w._draws -= 1
    return w.everyone(shape, kind="whole")


@case()
def channels_last(w):
    """Dense memory in another order: DDP and FSDP send such tensors."""
    def run(group):
        t = w.own((2, 3, 4, 5), kind="whole").to(memory_format=torch.channels_last)
        dist.broadcast(t, 0, group=group)
        return t
    try:
        w.same(run, model=lambda: w.everyone((2, 3, 4, 5), kind="whole")[0])
    except RuntimeError as error:
        assert "contiguous" in str(error), error


@case()
def parameters(w):
    """requires_grad does not matter to a collective under no_grad; all_gather of a leaf works."""
    p = torch.nn.Parameter(torch.full((5,), float(w.rank), device=w.device))
    with torch.no_grad():
        dist.broadcast(p, 1, group=w.group)
    w.equal(p.data, torch.full((5,), 1.0))
    out = [torch.empty(5, device=w.device) for _ in range(w.size)]
    dist.all_gather(out, p.detach() * w.rank, group=w.group)
    w.equal(out, [torch.full((5,), float(r)) for r in range(w.size)])


@case()
def outputs_in_one_tensor(w):
    """The list of outputs is views of one tensor, in order and in another order."""
    for order in (list(range(w.size)), list(range(w.size))[::-1]):
        def run(group):
            whole = w.empty((w.size, 9))
            dist.all_gather([whole[i] for i in order], w.own(9), group=group)
            return whole
        w.same(run,
               model=lambda: torch.stack([t for _, t in sorted(zip(order, w.everyone(9)), key=lambda pair: pair[0])]))


@case()
def own_output_is_the_input(w):
    def run(group):
        mine = w.own(9)
        out = [mine if r == w.rank else w.empty(9) for r in range(w.size)]
        dist.all_gather(out, mine, group=group)
        return out
    w.same(run, model=lambda: w.everyone(9))


@case(worlds=(2, 4), seconds=60, slow=True)
def large(w):
    """40 MiB, which goes in many chunks, and back to 8 bytes."""
    def run(group):
        t = w.own(10_000_003, kind="whole")
        dist.all_reduce(t, group=group)
        u = w.own(2, kind="real")
        dist.all_reduce(u, group=group)
        return [t, u]
    w.same(run, atol=rounding(torch.float32, w.size))


@case()
def barrier_of_devices(w):
    """device_ids, which programs pass wherever they run, are of no meaning on a host without GPUs."""
    dist.barrier(group=w.group, device_ids=[w.device.index or 0])


@case()
def barriers(w):
    """No rank leaves a barrier before the last one has come."""
    import time
    for late in range(w.size):
        if w.rank == late:
            time.sleep(0.05)
            came = time.monotonic()
        dist.barrier(group=w.group)
        left = torch.tensor(time.monotonic() if w.rank != late else came, dtype=torch.float64)
        everyone = [float(t) for t in w.gathered(left)]
        assert min(everyone) >= everyone[late], f"a rank left before rank {late} came: {everyone}"


@case()
def barriers_wait_for_the_gpu(w):
    """What is in a rank's stream before a barrier has ended when any rank leaves it."""
    import time
    w.needs(w.device.type == "cuda", "there is no stream")
    dist.all_reduce(w.own(1), group=w.group)
    for late in range(w.size):
        dist.barrier(group=w.group)
        began = time.monotonic()
        if w.rank == late:
            torch.cuda._sleep(500_000_000)  # cycles: 250 ms
        dist.barrier(group=w.group)
        assert time.monotonic() - began > 0.1, f"a barrier ended before the stream of rank {late}"


@case(worlds=(2,))
def barriers_wait_for_messages_of_gpus(w):
    """Also in a group that was called there for messages alone."""
    w.needs(w.device.type == "cuda", "there is no stream")
    group, t = w.new_group(), torch.ones(1 << 24, device=w.device)
    message = (lambda: dist.recv(t, 0, group=group)) if w.rank else (lambda: dist.send(t, 1, group=group))
    message()
    torch.cuda.synchronize()
    w.meet()
    if w.rank == 1:
        torch.cuda._sleep(500_000_000)
    message()
    dist.barrier(group=group)
    assert torch.cuda.current_stream().query(), "a barrier ended before the message in this rank's stream"
