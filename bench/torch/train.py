"""A small transformer that learns from this repository's documentation, over Shunt and over torch's own backend: the
losses of both and their times, side by side. Rank 0 prints tables in Markdown.

    torchrun --nproc-per-node 2 bench/torch/train.py [--parts ddp fsdp2 tp compiled decode] [--steps 200]
    shunt run -n 2 python bench/torch/train.py --device cpu --steps 8 --width 64 --length 64

Both backends train a model of their own in the same processes, from the same weights, on the same text; they take
turns every 10 steps. A time is the median of a step of the slowest rank. Backends add the ranks' parts in orders of
their own, and torch's kernels gradients in one that differs from run to run (atomic additions), so a third model trains
over torch's backend: "by itself" is how far its losses are from the second's. Both figures are of the first 50 steps:
training is chaotic, and later a last bit has become hundredths. decode writes 128 bytes greedily with a key-value cache
and tensor parallelism, on GPUs one CUDA graph a byte: an all_reduce of one row (width elements) twice a layer.

Exits with 1 where losses of the first 50 steps differ by more than --tolerance and by four times "by itself", the means
of the last 20 by more than 2 %, or a decoded byte differs.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import shunt.torch  # noqa: F401  registers the backend

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from torch_tests import model as m  # noqa: E402

TURN = 10  # steps of one backend before the other's
EARLY, LATE = 50, 20  # steps whose losses are compared one by one, and as a mean


class Job:
    """What all parts share."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a, self.cuda = a, a.device == "cuda"
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device(a.device, torch.cuda.current_device()) if self.cuda else torch.device("cpu")
        self.other = "nccl" if self.cuda else "gloo"
        self.groups = {"shunt": dist.group.WORLD, self.other: dist.new_group(backend=self.other)}
        self.again = dist.new_group(backend=self.other)
        self.sizes = m.Sizes(a.width, a.width // 64, a.length, a.layers)
        self.text = m.text()
        self.sync = torch.cuda.synchronize if self.cuda else (lambda: None)

    def mesh(self, group) -> DeviceMesh:
        """Meshes of equal ranks and names are equal, and DTensor's caches would use the first one's group for all."""
        return DeviceMesh.from_group(group, self.device.type, mesh_dim_names=(group.group_name,))

    def slowest(self, figures: list[float]) -> list[float]:
        t = torch.tensor(figures, dtype=torch.float64, device=self.device)
        dist.all_reduce(t, dist.ReduceOp.MAX)
        return t.tolist()


def ddp(job: Job, group):
    model = m.make(job.device, sizes=job.sizes)
    return DistributedDataParallel(model, device_ids=[job.device] if job.cuda else None, process_group=group)


def fsdp2(job: Job, group):
    model, mesh = m.make(job.device, sizes=job.sizes), job.mesh(group)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tp(job: Job, group):
    return m.parallel(m.make(job.device, sizes=job.sizes), job.mesh(group))


def compiled(job: Job, group):
    return torch.compile(tp(job, group))


def trained(job: Job, part: str) -> tuple[dict, dict]:
    """Losses and step times of each backend."""
    make = {"ddp": ddp, "fsdp2": fsdp2, "tp": tp, "compiled": compiled}[part]
    share = job.rank if part in ("ddp", "fsdp2") else 0  # ranks of tensor parallelism see the same text
    models = {name: make(job, group) for name, group in (*job.groups.items(), ("again", job.again))}
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
                  for name, model in models.items()}
    losses: dict = {name: [] for name in models}
    times: dict = {name: [] for name in models}
    order = list(models)
    for first in range(0, job.a.steps, TURN):
        order.append(order.pop(0))  # the first in a turn takes longer, whichever it is
        for name in order:
            model = models[name]
            dist.barrier()
            for step in range(first, min(first + TURN, job.a.steps)):
                inputs, targets = (t.to(job.device) for t in m.batch(job.text, step, share, job.a.batch, job.a.length))
                job.sync()
                start = time.perf_counter()
                value = m.loss(model(inputs), targets)
                optimizers[name].zero_grad()
                value.backward()
                optimizers[name].step()
                losses[name].append(value.detach())
                job.sync()
                times[name].append(time.perf_counter() - start)
    return {name: [float(v) for v in values] for name, values in losses.items()}, times


def train(job: Job, part: str) -> str:
    losses, times = trained(job, part)
    mine, theirs = losses["shunt"], losses[job.other]
    apart, itself = job.slowest([max(abs(a - b) for a, b in zip(other[:EARLY], theirs[:EARLY], strict=True))
                                 for other in (mine, losses["again"])])
    ends = [statistics.mean(values[-LATE:]) for values in (mine, theirs)]
    # The first turn allocates, compiles and connects.
    ms = job.slowest([1e3 * statistics.median(times[name][min(TURN, job.a.steps // 2):]) for name in job.groups])
    if job.rank == 0:
        print(f"| {part} | {mine[0]:.4f} | {mine[-1]:.4f} | {theirs[-1]:.4f} | {apart:.1e} | {itself:.1e} |"
              f" {ms[0]:.2f} | {ms[1]:.2f} | {ms[1] / ms[0]:.2f} |", flush=True)
    if mine[-1] > mine[0] - 0.3:
        return f"{part}: nothing was learned, losses {mine[0]:.3f} to {mine[-1]:.3f}"
    if apart > max(job.a.tolerance, 4 * itself):
        return f"{part}: losses of the first {EARLY} steps differ by {apart:.2e}"
    if abs(ends[0] - ends[1]) > 0.02 * ends[1]:
        return f"{part}: losses end at {ends[0]:.3f}, not at {ends[1]:.3f}"
    return ""


class Decoder:
    """Greedy decoding of one row with a rank's share of every layer's heads and hidden units."""

    def __init__(self, job: Job, group) -> None:
        self.model, self.group, sizes = m.make(job.device, sizes=job.sizes), group, job.sizes
        part, head = sizes.width // job.world, sizes.width // sizes.heads
        self.shape = (1, 1, part // head, head)
        with torch.no_grad():
            for layer in self.model.layers:
                for linear in (layer.attention.query, layer.attention.key, layer.attention.value, layer.up):
                    linear.weight = torch.nn.Parameter(linear.weight.chunk(job.world)[job.rank].contiguous())
                layer.up.bias = torch.nn.Parameter(layer.up.bias.chunk(job.world)[job.rank].contiguous())
                for linear in (layer.attention.out, layer.down):
                    linear.weight = torch.nn.Parameter(linear.weight.chunk(job.world, 1)[job.rank].contiguous())
                layer.down.bias = torch.nn.Parameter(layer.down.bias / job.world)  # added by every rank
        self.caches = [[torch.zeros(1, part // head, sizes.length, head, device=job.device) for _ in range(2)]
                       for _ in self.model.layers]
        self.token = torch.zeros(1, 1, dtype=torch.int64, device=job.device)
        self.place = torch.zeros(1, dtype=torch.int64, device=job.device)
        self.places = torch.arange(sizes.length, device=job.device)

    def summed(self, x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x, group=self.group)
        return x

    def step(self) -> None:
        """The next token from this one."""
        x = self.model.tokens(self.token) + self.model.places.index_select(0, self.place)
        mask = (self.places <= self.place)[None, None, None]
        for layer, (keys, values) in zip(self.model.layers, self.caches, strict=True):
            y, attention = layer.first(x), layer.attention
            keys.index_copy_(2, self.place, attention.key(y).view(self.shape).transpose(1, 2))
            values.index_copy_(2, self.place, attention.value(y).view(self.shape).transpose(1, 2))
            y = F.scaled_dot_product_attention(attention.query(y).view(self.shape).transpose(1, 2), keys, values,
                                               attn_mask=mask)
            x = x + self.summed(attention.out(y.transpose(1, 2).reshape(1, 1, -1)))
            x = x + self.summed(layer.down(F.gelu(layer.up(layer.second(x)))))
        self.token.copy_(self.model.head(self.model.norm(x)).argmax(-1))
        self.place.add_(1)

    def start(self) -> None:
        self.token.fill_(ord("S"))
        self.place.zero_()
        for cache in self.caches:
            for t in cache:
                t.zero_()


@torch.no_grad()
def decode(job: Job) -> str:
    count, graphs, written, times = min(128, job.a.length), {}, {}, {}
    decoders = {name: Decoder(job, group) for name, group in job.groups.items()}
    for name, decoder in decoders.items():
        if job.cuda:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                decoder.step()
            torch.cuda.current_stream().wait_stream(side)
            graphs[name] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graphs[name]):
                decoder.step()
    for _ in range(5):
        for name, decoder in decoders.items():
            decoder.start()
            tokens = torch.zeros(count, dtype=torch.int64, device=job.device)
            step = graphs[name].replay if job.cuda else decoder.step
            dist.barrier()
            job.sync()
            start = time.perf_counter()
            for i in range(count):
                step()
                tokens[i:i + 1].copy_(decoder.token.view(1))
            job.sync()
            times.setdefault(name, []).append((time.perf_counter() - start) / count * 1e6)
            written.setdefault(name, []).append(tokens.tolist())
    us = job.slowest([statistics.median(times[name]) for name in job.groups])
    if job.rank == 0:
        print(f"\ndecode, {count} bytes, {job.sizes.layers * 2} all_reduces of {4 * job.sizes.width} bytes each: "
              f"{us[0]:.0f} us a byte over shunt, {us[1]:.0f} over {job.other}, {us[1] / us[0]:.2f} times")
    every = [t for texts in written.values() for t in texts]
    return "" if all(t == every[0] for t in every) and len(set(every[0])) > 1 else f"decoded bytes differ: {written}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parts = ["ddp", "fsdp2", "tp", "compiled", "decode"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8, help="rows a rank")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=256, help="bytes of a row")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    a = parser.parse_args()
    if a.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("shunt")
    job = Job(a)
    if job.rank == 0:
        size = sum(p.numel() for p in m.make("cpu", sizes=job.sizes).parameters())
        print(f"torch {torch.__version__}, {job.world} ranks on {a.device}, {size / 1e6:.1f} M float32 parameters, "
              f"{a.steps} steps of {a.batch} x {a.length} bytes a rank; ms a step\n\n"
              f"| | first loss | last, shunt | last, {job.other} | largest difference | by itself | shunt | "
              f"{job.other} | ratio |\n"
              "|:--|--:|--:|--:|--:|--:|--:|--:|--:|")
    wrong = [w for part in a.parts if (w := decode(job) if part == "decode" else train(job, part))]
    for w in wrong:
        print(f"rank {job.rank}: {w}", file=sys.stderr)
    dist.destroy_process_group()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
