"""A small transformer that predicts the next byte, and the text that it learns from: the documentation of this
repository."""

import dataclasses
import pathlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Sizes:
    width: int = 32
    heads: int = 4
    length: int = 32
    layers: int = 2


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, self.head = sizes.width, sizes.width // sizes.heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        batch, length, _ = x.shape
        # -1: under tensor parallelism a rank has some of the heads.
        q, k, v = (f(x).view(batch, length, -1, self.head).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.up, self.down = Attention(sizes), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, sizes.width), nn.Parameter(torch.zeros(sizes.length, sizes.width))
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, 256)

    def forward(self, text):
        x = self.tokens(text) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def make(device, seed: int = 1, sizes: Sizes = Sizes()) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(sizes).to(device)


def parallel(model: Transformer, mesh) -> Transformer:
    """The model with each rank's share of every layer's heads and hidden units."""
    styles = {"attention.query": ColwiseParallel, "attention.key": ColwiseParallel, "attention.value": ColwiseParallel,
              "attention.out": RowwiseParallel, "up": ColwiseParallel, "down": RowwiseParallel}
    return parallelize_module(model, mesh, {f"layers.{i}.{name}": style() for i in range(len(model.layers))
                                            for name, style in styles.items()})


def text() -> torch.Tensor:
    """The bytes of README.md and the guide, or of this package where a checkout is not there."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
    files = [f for f in files if f.exists()] or sorted(pathlib.Path(__file__).parent.glob("*.py"))
    return torch.tensor(list(b"".join(f.read_bytes() for f in files)), dtype=torch.int64)


def batch(data: torch.Tensor, step: int, part: int, size: int = 4,
          length: int = Sizes.length) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of one part (a rank's share) of a step."""
    g = torch.Generator().manual_seed(1000 * step + part)
    starts = torch.randint(0, len(data) - length - 1, (size,), generator=g)
    rows = torch.stack([data[s:s + length + 1] for s in starts])
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(model: nn.Module, steps: int, part: int, device, rate: float = 3e-3) -> list[float]:
    """The losses of this rank's parts."""
    # foreach, the default on GPUs, rejects DTensors among tensors, as tensor parallelism has them.
    data, optimizer, losses = text(), torch.optim.AdamW(model.parameters(), lr=rate, foreach=False), []
    for step in range(steps):
        inputs, targets = (t.to(device) for t in batch(data, step, part))
        value = loss(model(inputs), targets)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses
