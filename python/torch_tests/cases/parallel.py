"""More ways of torch to spread a model over ranks: what FSDP2 can be told, sequence and context parallelism, schedules
of several stages a rank, checkpoints that another layout reads, and gradients of collectives."""

import shutil
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from torch_tests import model as m
from torch_tests.cases.programs import ATOL, STEPS, compared, learns, mesh_of, sharded
from torch_tests.registry import case


def train(w, model, before=lambda step: None, after=lambda: None, steps=STEPS):
    """m.train with two steps of the program's own, before the forward and after the backward pass."""
    data, optimizer, losses = m.text(), torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False), []
    for step in range(steps):
        before(step)
        inputs, targets = (t.to(w.device) for t in m.batch(data, step, w.rank))
        value = m.loss(model(inputs), targets)
        optimizer.zero_grad()
        value.backward()
        after()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


@case(worlds=(2,), each=["keep", "clip", "accumulate", "prefetch", "frozen", "divide"])
def fsdp2_told(w, what):
    """Parameters that stay whole, a norm over ranks, gradients that wait, all_gathers ahead of their time."""
    def run(group):
        model = sharded(w, group, reshard_after_forward=what != "keep")
        if what == "prefetch":
            model.layers[0].set_modules_to_forward_prefetch([model.layers[1]])
            model.layers[1].set_modules_to_backward_prefetch([model.layers[0]])
        if what == "frozen":
            for p in model.layers[0].parameters():
                p.requires_grad_(False)
        if what == "divide" and group is w.group:  # gloo has no scaled sums; AdamW's steps are the same
            model.set_gradient_divide_factor(4.0)

        def clip():
            if what == "clip":
                norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=False).full_tensor()))

        norms = []
        losses = train(w, model, lambda step: model.set_requires_gradient_sync(what != "accumulate" or step % 2 == 1),
                       clip)
        return losses if what != "clip" else losses + norms
    if what == "clip":
        w.same(run, atol=ATOL * 5)
    else:
        compared(w, run)


@case(worlds=(2,), each=["group's memory", "offload"])
def fsdp2_on_a_gpu(w, what):
    w.needs(w.device.type == "cuda", "on GPUs only")

    def run(group):
        told = what == "offload" and w.device.type == "cuda"
        model = sharded(w, group, **({"offload_policy": CPUOffloadPolicy()} if told else {}))
        if what == "group's memory" and w.device.type == "cuda":
            for module in (model, *model.layers):
                module.set_allocate_memory_from_process_group_for_comm(True)
        return train(w, model)
    compared(w, run)


@case(worlds=(4,))
def hybrid_sharding(w):
    """Two copies of a model that two ranks share each, as groups of one mesh."""
    mesh = init_device_mesh(w.device.type, (2, 2), mesh_dim_names=("copies", "parts"))
    model = m.make(w.device)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    losses = train(w, fully_shard(model, mesh=mesh))
    learns(w, losses)
    whole = DistributedDataParallel(m.make(w.device), process_group=mesh._flatten().get_group())
    w.equal(losses, train(w, whole), ATOL)


@case(worlds=(2,))
def sequence_parallel(w):
    """Norms on a part of each sequence, gathered before and scattered after what is spread by heads; the loss on parts
    of the logits."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module)

    def run(group):
        model, mesh = m.make(w.device), mesh_of(w, group)
        model.places = None
        block = {"first": SequenceParallel(), "second": SequenceParallel(),
                 "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
                 "attention.query": ColwiseParallel(), "attention.key": ColwiseParallel(),
                 "attention.value": ColwiseParallel(), "attention.out": RowwiseParallel(output_layouts=Shard(1)),
                 "up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1))}
        parallelize_module(model, mesh, {
            "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)), "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)})
        for layer in model.layers:
            parallelize_module(layer, mesh, block)
        data, losses = m.text(), []
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
        for step in range(STEPS):
            inputs, targets = (t.to(w.device) for t in m.batch(data, step, 0))
            x = model.tokens(inputs)
            for layer in model.layers:
                x = layer(x)
            logits = model.head(model.norm(x))
            with loss_parallel():
                value = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
                value.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(value.detach().full_tensor()))
        return losses
    compared(w, run)


@case(worlds=(2,), each=["allgather", "alltoall"])
def context_parallel(w, rotate):
    """A sequence in parts: keys and values go round. The truth is attention over the whole."""
    w.needs(w.device.type == "cuda", "attention in parts is for GPUs")
    from torch.distributed.tensor.experimental import context_parallel as parts
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard, set_rotate_method
    set_rotate_method(rotate)
    mesh = mesh_of(w, w.group)
    q, k, v = (w.everyone((2, 4, 256, 64), torch.bfloat16, "real")[0].requires_grad_() for _ in range(3))
    want = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    want.float().square().sum().backward()
    wanted = [t.grad for t in (q, k, v)]
    mine = [t.detach().clone() for t in (q, k, v)]
    with parts(mesh, buffers=mine, buffer_seq_dims=[2, 2, 2], no_restore_buffers=set(mine)):
        for t in mine:
            t.requires_grad_()
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.FLASH_ATTENTION):
            got = F.scaled_dot_product_attention(*mine, is_causal=True)
        got.float().square().sum().backward()
        got = context_parallel_unshard(mesh, [got.detach(), *(t.grad for t in mine)], [2] * 4)
    w.equal(got, [want.detach(), *wanted], atol=0.1)


@case(worlds=(2,), each=["Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble"])
def stages(w, schedule):
    """Two stages of a pipeline on each rank: messages in both directions at once."""
    from torch.distributed import pipelining
    kind = getattr(pipelining, "Schedule" + schedule)
    numbers = (w.rank, w.rank + 2)

    class Stage(nn.Module):
        def __init__(self, whole, number):
            super().__init__()
            self.layer, self.number = whole.layers[number], number
            if number == 0:
                self.tokens = whole.tokens
            if number == 3:
                self.norm, self.head = whole.norm, whole.head

        def forward(self, x):
            x = self.layer(self.tokens(x) if self.number == 0 else x)
            return self.head(self.norm(x)) if self.number == 3 else x

    def run(group):
        torch.manual_seed(4)
        whole = m.Transformer(m.Sizes(layers=4)).to(w.device)
        parts = [Stage(whole, number) for number in numbers]
        plan = kind([pipelining.PipelineStage(part, number, 4, w.device, group=group)
                     for part, number in zip(parts, numbers)], n_microbatches=4, loss_fn=m.loss)
        optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=3e-3)
        data, losses = m.text(), []
        for step in range(STEPS):
            inputs, targets = (t.to(w.device) for t in m.batch(data, step, 0, 8))
            optimizer.zero_grad()
            found = []
            plan.step(*([inputs] if 0 in numbers else []),
                      **({"target": targets, "losses": found} if 3 in numbers else {}))
            optimizer.step()
            losses += [float(part.detach()) for part in found]
        return losses
    losses = w.same(run, atol=ATOL)
    if losses:
        learns(w, [sum(losses[:4]) / 4, sum(losses[-4:]) / 4])


@case(worlds=(2, 4), each=["save", "async_save"])
def checkpoint(w, how):
    """What sharded ranks save, in the background too, ranks with whole copies load."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    place = [tempfile.mkdtemp() if w.rank == 0 else None]
    dist.broadcast_object_list(place, group=w.group, group_src=0)
    try:
        model = sharded(w, w.group)
        m.train(model, 2, w.rank, w.device)
        state = get_model_state_dict(model)
        if how == "save":
            dcp.save(state, checkpoint_id=place[0], process_group=w.group)
        else:  # the background has a group for host memory
            both = dist.new_group(backend=f"cpu:gloo,{w.spec}" if w.device.type != "cpu" else "cpu:gloo")
            dcp.async_save(state, checkpoint_id=place[0], process_group=both).result()
            dist.destroy_process_group(both)
        whole = m.make(w.device, seed=9)
        loaded = get_model_state_dict(whole)
        dcp.load(loaded, checkpoint_id=place[0], process_group=w.group)
        set_model_state_dict(whole, loaded)
        w.equal([p.detach() for p in whole.parameters()], [p.full_tensor().detach() for p in model.parameters()])
        w.meet()
    finally:
        if w.rank == 0:
            shutil.rmtree(place[0])


@case(each=["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def gradients(w, what):
    """torch.distributed.nn.functional: collectives of which a loss has gradients."""
    from torch.distributed.nn import functional as f
    xs = [x.requires_grad_() for x in w.everyone((w.size, 5), kind="whole")]
    squares = [x * x for x in xs]
    sums = torch.stack(squares).sum(0)
    wanted = {"all_reduce": [sums] * w.size, "all_gather": [torch.stack(squares)] * w.size, "reduce_scatter": sums,
              "all_to_all": [torch.stack([s[r] for s in squares]) for r in range(w.size)],
              "broadcast": [squares[0]] * w.size}[what]
    sum((y * (r + 1)).sum() for r, y in enumerate(wanted)).backward()
    want, xs[w.rank].grad = xs[w.rank].grad, None
    x = xs[w.rank] * xs[w.rank]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch would have its newer ones used
        got = {"all_reduce": lambda: f.all_reduce(x, group=w.group),
               "all_gather": lambda: torch.stack(f.all_gather(x, group=w.group)),
               "reduce_scatter": lambda: f.reduce_scatter(torch.empty_like(x[0]), list(x.unbind()), group=w.group),
               "all_to_all": lambda: f.all_to_all_single(torch.empty_like(x), x, group=w.group),
               "broadcast": lambda: f.broadcast(x, dist.get_global_rank(w.group, 0), group=w.group)}[what]()
    (got * (w.rank + 1)).sum().backward()
    want = torch.zeros_like(x) if want is None else want
    w.equal([got.detach(), xs[w.rank].grad], [wanted[w.rank].detach(), want], atol=1e-6)
