"""Training as people write it, unchanged: a small transformer on real text, the losses beside those over torch's own
backend."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from torch_tests import model as m
from torch_tests.registry import case

STEPS = 12
#: Two sums of gradients differ in the last bits on more than two ranks; AdamW makes that grow with the steps.
ATOL = 2e-3


def learns(w, losses):
    """The steps did something: the loss has fallen from that of guessing."""
    assert losses[-1] < losses[0] - 0.3, f"losses {losses}"


def compared(w, f, steps=STEPS):
    losses = w.same(f, atol=ATOL * max(1, steps / 50))
    learns(w, losses)


@case()
def ddp(w):
    def run(group):
        return m.train(DistributedDataParallel(m.make(w.device), process_group=group), STEPS, w.rank, w.device)
    compared(w, run)


@case(worlds=(2, 4), seconds=300, slow=True)
def ddp_200_steps(w):
    def run(group):
        return m.train(DistributedDataParallel(m.make(w.device), process_group=group), 200, w.rank, w.device)
    compared(w, run, 200)


@case(worlds=(2,))
def ddp_small_buckets(w):
    """A bucket for each parameter: many all_reduces in flight while the backward pass runs."""
    def run(group):
        model = DistributedDataParallel(m.make(w.device), process_group=group, bucket_cap_mb=0.001,
                                        gradient_as_bucket_view=True)
        return m.train(model, STEPS, w.rank, w.device)
    compared(w, run)


@case(worlds=(2,))
def ddp_sparse_gradients(w):
    """An embedding whose gradient has the rows that a rank's batch looked up."""
    def run(group):
        torch.manual_seed(5)
        net = nn.Sequential(nn.Embedding(40, 6, sparse=True), nn.Linear(6, 3)).to(w.device)
        model = DistributedDataParallel(net, process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            rows = torch.randint(0, 40, (8,), generator=torch.Generator().manual_seed(10 * step + w.rank)).to(w.device)
            optimizer.zero_grad()
            model(rows).square().mean().backward()
            optimizer.step()
        return net[0].weight.detach().clone()

    def alone():
        """The same steps with every rank's batch in one process."""
        torch.manual_seed(5)
        net = nn.Sequential(nn.Embedding(40, 6), nn.Linear(6, 3)).to(w.device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(4):
            rows = [torch.randint(0, 40, (8,), generator=torch.Generator().manual_seed(10 * step + rank))
                    for rank in range(w.size)]
            optimizer.zero_grad()
            net(torch.stack(rows).to(w.device)).square().mean().backward()
            optimizer.step()
        return net[0].weight.detach().clone()
    w.same(run, model=alone, atol=1e-5)


@case(worlds=(2,))
def ddp_hook(w):
    """A communication hook: half precision, over the future of a Work."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    def run(group):
        model = DistributedDataParallel(m.make(w.device), process_group=group)
        model.register_comm_hook(group, fp16_compress_hook)
        return m.train(model, STEPS, w.rank, w.device)
    w.needs(w.judged, "gloo: Work::getFuture as the hook wants it is not there")
    compared(w, run)


@case(worlds=(2,))
def ddp_power_sgd(w):
    """A communication hook whose callbacks make calls and wait for them."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    def run(group):
        model = DistributedDataParallel(m.make(w.device), process_group=group)
        state = power.PowerSGDState(group, start_powerSGD_iter=2, min_compression_rate=1)
        model.register_comm_hook(state, power.powerSGD_hook)
        return m.train(model, STEPS, w.rank, w.device)
    # The hook wants GPUs where there are any.
    learns(w, w.same(run, atol=ATOL, truth=w.device.type == "cpu" or w.truth_backend != "gloo"))


@case(worlds=(2,))
def ddp_buffers_and_unused(w):
    """BatchNorm's buffers are broadcast, unused parameters are agreed upon, the last batch is shorter on one rank
    (join)."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.a, self.b = nn.BatchNorm1d(8), nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x, use_b):
            return (self.b if use_b else self.a)(self.norm(x))

    def run(group):
        torch.manual_seed(3)
        net = DistributedDataParallel(Net().to(w.device), process_group=group, find_unused_parameters=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with net.join():
            for step in range(4 + w.rank):
                x = torch.randn(6, 8, generator=torch.Generator().manual_seed(10 * step + w.rank)).to(w.device)
                optimizer.zero_grad()
                net(x, step % 2 == 1).square().sum().backward()
                optimizer.step()
        return [p.detach().clone() for p in net.parameters()]
    w.same(run, atol=1e-4)


def mesh_of(w, group):
    """Meshes of the same ranks and names are equal, and DTensor's caches would use the first one's group for all."""
    return DeviceMesh.from_group(group, w.device.type, mesh_dim_names=(group.group_name,))


def sharded(w, group, **options):
    model, mesh = m.make(w.device), mesh_of(w, group)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


@case()
def fsdp2(w):
    compared(w, lambda group: m.train(sharded(w, group), STEPS, w.rank, w.device))


@case(worlds=(2,), slow=True)
def fsdp2_bfloat16(w):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    losses = w.same(lambda group: m.train(sharded(w, group, mp_policy=policy), STEPS, w.rank, w.device), atol=0.05)
    learns(w, losses)


@case(worlds=(2,))
def fsdp2_state(w):
    """The whole state dict after training, gathered."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    def run(group):
        model = sharded(w, group)
        m.train(model, 4, w.rank, w.device)
        return {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in
                get_model_state_dict(model, options=StateDictOptions(full_state_dict=False)).items()}
    w.same(run, atol=1e-3)


def parallel(w, mesh):
    return m.parallel(m.make(w.device), mesh)


@case(worlds=(2, 4))
def tensor_parallel(w):
    """Every rank has a part of each layer and sees the same text: the losses are those of one rank alone, too."""
    losses = w.same(lambda group: m.train(parallel(w, mesh_of(w, group)), STEPS, 0, w.device), atol=ATOL)
    w.equal(losses, m.train(m.make(w.device), STEPS, 0, w.device), atol=ATOL)


@case(worlds=(4,))
def two_dimensions(w):
    """FSDP2 over two groups of tensor parallelism, on one DeviceMesh of the default group."""
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh(w.device.type, (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallel(w, mesh["tp"])
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    losses = m.train(model, STEPS, mesh["dp"].get_local_rank(), w.device)
    learns(w, losses)
    want = m.train(DistributedDataParallel(m.make(w.device), process_group=mesh["dp"].get_group()), STEPS,
                   mesh["dp"].get_local_rank(), w.device)
    w.equal(losses, want, atol=ATOL)


@case(worlds=(2,), each=["GPipe", "1F1B"])
def pipeline(w, schedule):
    """Two stages of one block each, four microbatches."""
    from torch.distributed import pipelining
    kind = {"GPipe": pipelining.ScheduleGPipe, "1F1B": pipelining.Schedule1F1B}[schedule]

    class Stage(nn.Module):
        def __init__(self, whole):
            super().__init__()
            self.whole = whole

        def forward(self, x):
            if w.rank == 0:
                return self.whole.layers[0](self.whole.tokens(x) + self.whole.places)
            return self.whole.head(self.whole.norm(self.whole.layers[1](x)))

    def run(group):
        module = Stage(m.make(w.device))
        stage = pipelining.PipelineStage(module, w.rank, w.size, w.device, group=group)
        plan = kind(stage, n_microbatches=4, loss_fn=m.loss)
        optimizer, data, losses = torch.optim.AdamW(module.parameters(), lr=3e-3), m.text(), []
        for step in range(STEPS):
            inputs, targets = (t.to(w.device) for t in m.batch(data, step, 0, 8))
            optimizer.zero_grad()
            parts = []
            if w.rank == 0:
                plan.step(inputs)
            else:
                plan.step(target=targets, losses=parts)
            optimizer.step()
            losses += [float(part.detach()) for part in parts]
        return losses
    losses = w.same(run, atol=ATOL)
    if w.rank == 1:
        learns(w, [sum(losses[:4]) / 4, sum(losses[-4:]) / 4])


@case(worlds=(2,))
def zero_optimizer_and_sync_norm(w):
    """ZeroRedundancyOptimizer: objects and broadcasts of the optimizer's state."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def run(group):
        model = DistributedDataParallel(m.make(w.device), process_group=group)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, process_group=group, lr=3e-3)
        data = m.text()
        for step in range(4):
            inputs, targets = (t.to(w.device) for t in m.batch(data, step, w.rank))
            optimizer.zero_grad()
            m.loss(model(inputs), targets).backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]
    w.same(run, atol=1e-3)


class Lines(torch.utils.data.Dataset):
    """Parts of the text, read by worker processes."""

    def __init__(self):
        self.data = m.text()

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return self.data[i * 32:i * 32 + 33].clone()


@case(worlds=(2,))
def data_loader(w):
    """Worker processes that are forked while the group is in use, again in each epoch, beside collectives."""
    load(w, "fork", 2)


@case(worlds=(2,), seconds=90, slow=True)
def data_loader_that_spawns(w):
    load(w, "spawn", 1)


def load(w, method, epochs):
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler
    import multiprocessing
    # This rank is a daemon of the pool's; it may have children.
    multiprocessing.current_process()._config["daemon"] = False
    t = torch.ones(3, device=w.device)
    dist.all_reduce(t, group=w.group)
    data = Lines()
    model = DistributedDataParallel(m.make(w.device), process_group=w.group)
    for _ in range(epochs):
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, w.size, w.rank), num_workers=2,
                            multiprocessing_context=method)
        count = 0
        for rows in loader:
            m.loss(model(rows[:, :-1].to(w.device)), rows[:, 1:].to(w.device)).backward()
            dist.all_reduce(torch.ones(3, device=w.device), group=w.group)
            count += len(rows)
        assert count == 32, count
