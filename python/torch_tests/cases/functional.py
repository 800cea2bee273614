"""Functional collectives, DTensor, torch.compile and autograd's collectives."""

import torch
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from torch_tests.compare import rounding
from torch_tests.registry import case


@case(each=["sum", "avg", "max"])
def all_reduce(w, op):
    def run(group):
        return funcol.wait_tensor(funcol.all_reduce(w.own((5, 3), kind="whole"), op, group))
    w.same(run, atol=rounding(torch.float32, w.size, 2.0) if op == "avg" else 0)


@case()
def waited_after_a_blocking_call(w):
    """torch may note the Work of a call that returns none, and waits for it where the tensor is used."""
    w.needs(w.judged, "nccl: returns no Work, and torch uses it")
    t = w.own(5, kind="whole")
    want = sum(w.gathered(t))
    with funcol.allow_inflight_collective_as_graph_input_ctx():
        torch.distributed.all_reduce(t, group=w.group)
        w.equal(torch.ops._c10d_functional.wait_tensor(t), want)


@case()
def all_gather_tensor(w):
    for dim in (0, 1):
        w.same(lambda group: funcol.wait_tensor(funcol.all_gather_tensor(w.own((4, 6)), dim, group)),
               model=lambda: torch.cat(w.everyone((4, 6)), dim))


@case()
def reduce_scatter_tensor(w):
    for dim in (0, 1):
        shape = (w.size * 2, 3) if dim == 0 else (3, w.size * 2)
        w.same(lambda group: funcol.wait_tensor(funcol.reduce_scatter_tensor(w.own(shape, kind="whole"), "sum", dim,
                                                                             group)),
               model=lambda: sum(w.everyone(shape, kind="whole")).chunk(w.size, dim)[w.rank].contiguous())


@case()
def all_to_all_single(w):
    def run(group):
        t = torch.full((w.size * (w.size + 1) // 2, 2), float(w.rank), device=w.device)
        splits = [to + 1 for to in range(w.size)]
        return funcol.wait_tensor(funcol.all_to_all_single(t, [w.rank + 1] * w.size, splits, group))
    w.same(run, model=lambda: torch.cat([torch.full((w.rank + 1, 2), float(s)) for s in range(w.size)]))


@case()
def broadcast(w):
    w.same(lambda group: funcol.wait_tensor(funcol.broadcast(w.own((4, 6)), 1, group)),
           model=lambda: w.everyone((4, 6))[1])


@case()
def coalesced(w):
    def run(group):
        reduced = funcol.all_reduce_coalesced([w.own(3, kind="whole"), w.own(50, kind="whole")], "sum", group)
        gathered = funcol.all_gather_into_tensor_coalesced([w.own(3), w.own(50)], group)
        scattered = funcol.reduce_scatter_tensor_coalesced([w.own(3 * w.size, kind="whole")], "sum", [0], group)
        return [funcol.wait_tensor(t) for t in [*reduced, *gathered, *scattered]]

    def model():
        reduced = [sum(w.everyone(n, kind="whole")) for n in (3, 50)]
        gathered = [torch.cat(w.everyone(n)) for n in (3, 50)]
        return reduced + gathered + [sum(w.everyone(3 * w.size, kind="whole"))[w.rank * 3:w.rank * 3 + 3]]
    w.same(run, model=model)


@case()
def without_wait(w):
    """AsyncCollectiveTensor waits when it is used."""
    t = funcol.all_reduce(torch.ones(5, device=w.device), "sum", w.group)
    w.equal((t + 1) * 2, torch.full((5,), 2.0 * (w.size + 1)))


@case()
def autograd(w):
    """The backward pass of the functional collectives runs collectives too."""
    t = torch.full((w.size,), float(w.rank + 1), device=w.device, requires_grad=True)
    out = funcol.wait_tensor(funcol.all_to_all_single_autograd(t, None, None, w.group))
    (out * (w.rank + 1)).sum().backward()
    w.equal(t.grad, torch.arange(1, w.size + 1).float())
    u = torch.full((2,), float(w.rank + 1), device=w.device, requires_grad=True)
    gathered = funcol.wait_tensor(funcol.all_gather_tensor_autograd(u, 0, w.group))
    (gathered * 1.0).sum().backward()
    w.equal(u.grad, torch.full((2,), float(w.size)))


@case()
def nn_functional(w):
    import torch.distributed.nn.functional as fn

    def run(group):
        t = w.own(5, kind="whole").requires_grad_()
        out = fn.all_reduce(t * 2, group=group)
        (out * (w.rank + 1)).sum().backward()
        return [out.detach(), t.grad]
    w.same(run)


@case(worlds=(2, 4))
def dtensor(w):
    """Every redistribution between two placements gives the same whole tensor."""
    mesh = init_device_mesh(w.device.type, (w.size,))
    g = torch.Generator().manual_seed(5)
    whole = torch.randint(-4, 5, (8, 12), generator=g).float().to(w.device)
    placements = [Shard(0), Shard(1), Replicate()]
    for first in placements:
        d = distribute_tensor(whole, mesh, [first])
        for second in placements:
            w.equal(d.redistribute(mesh, [second]).full_tensor(), whole)
    part = DTensor.from_local(whole / w.size, mesh, [Partial()])
    for second in placements:
        w.equal(part.redistribute(mesh, [second]).full_tensor(), whole, atol=1e-5)
    uneven = distribute_tensor(whole[:7], mesh, [Shard(0)])
    w.equal(uneven.full_tensor(), whole[:7])
    a, b = distribute_tensor(whole, mesh, [Shard(1)]), distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    w.equal((a @ b).full_tensor(), whole @ whole.t(), atol=1e-3)


@case(worlds=(4,))
def dtensor_of_two_dims(w):
    mesh = init_device_mesh(w.device.type, (2, 2), mesh_dim_names=("dp", "tp"))
    whole = torch.arange(64, device=w.device).float().reshape(8, 8)
    for first in ([Shard(0), Shard(1)], [Shard(0), Shard(0)], [Replicate(), Shard(1)]):
        d = distribute_tensor(whole, mesh, first)
        w.equal(d.full_tensor(), whole)
        w.equal((d * 2).sum().full_tensor(), (whole * 2).sum())


@case(worlds=(2,), seconds=120, slow=True)
def compiled(w):
    """torch.compile with the functional collectives in the graph."""
    def f(x):
        y = funcol.all_reduce(x * 2, "sum", w.group)
        return funcol.all_gather_tensor(y + 1, 0, w.group)
    x = torch.full((4,), float(w.rank + 1), device=w.device)
    want = f(x) + 0
    got = torch.compile(f, fullgraph=True, backend="inductor" if w.device.type == "cuda" else "aot_eager")(x) + 0
    w.equal(got, want)
