"""What is measured: steps of programs that compute and communicate, and who communicates for them. Every step knows the
result that it must have."""

import random

import torch
import torch.distributed as dist

LAYERS, WIDTH = 12, 6144
TOKEN = 7168  # elements of bf16
EXPERT_CALLS, ALONE_CALLS = 16, 6
BF16 = torch.bfloat16


class Shunt:
    """Collectives of a communicator of Shunt."""

    def __init__(self, name, comm, symmetric=False):
        self.name, self.comm, self.symmetric, self.registered = name, comm, symmetric, []

    def register(self, tensors):
        if self.symmetric:
            self.registered += [self.comm.register(t, symmetric=True) for t in tensors]

    def release(self):
        for r in self.registered:
            r.close()
        self.registered.clear()

    def close(self):
        self.comm.close()

    def all_reduce(self, tensor, stream):
        self.comm.all_reduce(tensor, stream=stream)

    def all_gather(self, whole, shard, stream):
        self.comm.all_gather(shard, whole, stream=stream)

    def reduce_scatter(self, shard, whole, stream):
        self.comm.reduce_scatter(whole, shard, stream=stream)

    def all_to_all(self, recv, send, stream):
        self.comm.all_to_all(send, recv, stream=stream)

    def all_to_all_v(self, recv, recv_tokens, send, send_tokens, stream):
        self.comm.all_to_all_v(send, [n * TOKEN for n in send_tokens], recv, [n * TOKEN for n in recv_tokens],
                               stream=stream)


class Nccl:
    """Collectives of torch.distributed, on a stream of torch."""

    name = "nccl"

    def register(self, tensors):
        pass

    def release(self):
        pass

    def close(self):
        pass

    def all_reduce(self, tensor, stream):
        with torch.cuda.stream(stream):
            dist.all_reduce(tensor)

    def all_gather(self, whole, shard, stream):
        with torch.cuda.stream(stream):
            dist.all_gather_into_tensor(whole, shard)

    def reduce_scatter(self, shard, whole, stream):
        with torch.cuda.stream(stream):
            dist.reduce_scatter_tensor(shard, whole)

    def all_to_all(self, recv, send, stream):
        with torch.cuda.stream(stream):
            dist.all_to_all_single(recv, send)

    def all_to_all_v(self, recv, recv_tokens, send, send_tokens, stream):
        with torch.cuda.stream(stream):
            dist.all_to_all_single(recv.view(-1, TOKEN)[:sum(recv_tokens)], send.view(-1, TOKEN)[:sum(send_tokens)],
                                   recv_tokens, send_tokens)


class Pass:
    """What ddp and fsdp share: the products, the streams, and results that are known."""

    def __init__(self, bench, size):
        self.world, self.rank, self.device = bench.world, bench.rank, bench.device
        self.main, self.side = bench.main, bench.side
        self.count = size // 2 // (self.world * 128) * (self.world * 128)
        self.matrices = bench.matrices
        self.done = [torch.cuda.Event() for _ in range(LAYERS)]
        self.pattern = torch.arange(self.count, device=self.device).remainder_(7).to(BF16)

    def empty(self, count):
        return torch.empty(count, dtype=BF16, device=self.device)

    def compute(self, layer):
        a, b, out = self.matrices
        for k in range(2):
            torch.mm(a[(layer + k) % 2], b[layer % 2], out=out)
        self.done[layer].record(self.main)


class Ddp(Pass):
    def __init__(self, bench, size):
        super().__init__(bench, size)
        self.buckets = [self.empty(self.count) for _ in range(LAYERS)]
        self.received = self.buckets

    def step(self, contender):
        for layer in range(LAYERS):
            self.compute(layer)
            if contender:
                self.side.wait_event(self.done[layer])
                contender.all_reduce(self.buckets[layer], self.side)
        if contender:
            self.main.wait_stream(self.side)

    def fill(self):
        for bucket in self.buckets:
            torch.mul(self.pattern, float(self.rank + 1), out=bucket)

    def wrong(self):
        want = self.pattern * (self.world * (self.world + 1) / 2)
        return sum(int(torch.count_nonzero(b != want).item()) for b in self.buckets)


class Moe(Pass):
    def __init__(self, bench, size):
        super().__init__(bench, size)
        self.rows = [self.empty(self.count) for _ in range(LAYERS)]
        self.dispatched = [self.empty(self.count) for _ in range(LAYERS)]
        self.received = self.dispatched

    def step(self, contender):
        for layer in range(LAYERS):
            self.compute(layer)
            if contender:
                self.side.wait_event(self.done[layer])
                contender.all_to_all(self.dispatched[layer], self.rows[layer], self.side)
        if contender:
            self.main.wait_stream(self.side)

    def fill(self):
        for rows in self.rows:
            torch.add(self.pattern, float(self.rank * 7), out=rows)
        for rows in self.dispatched:
            rows.fill_(float("nan"))

    def wrong(self):
        block = self.pattern.view(self.world, -1)[self.rank]
        want = torch.cat([block + rank * 7 for rank in range(self.world)])
        return sum(int(torch.count_nonzero(rows != want).item()) for rows in self.dispatched)


class Fsdp(Pass):
    def __init__(self, bench, size):
        super().__init__(bench, size)
        shard = self.count // self.world
        self.parameters = [self.empty(shard) for _ in range(LAYERS)]
        self.wholes = [self.empty(self.count) for _ in range(3)]
        self.gradients = [self.empty(self.count) for _ in range(2)]
        self.results = [self.empty(shard) for _ in range(LAYERS)]
        self.received = self.wholes
        self.gathered = [torch.cuda.Event() for _ in range(LAYERS)]

    def gather(self, contender, layer):
        contender.all_gather(self.wholes[layer % 3], self.parameters[layer], self.side)
        self.gathered[layer].record(self.side)

    def step(self, contender):
        if contender:
            self.side.wait_stream(self.main)
            self.gather(contender, 0)
        for layer in range(LAYERS):
            if contender:
                if layer + 1 < LAYERS:
                    if layer > 0:
                        self.side.wait_event(self.done[layer - 1])
                    self.gather(contender, layer + 1)
                self.main.wait_event(self.gathered[layer])
            self.compute(layer)
            if contender:
                self.side.wait_event(self.done[layer])
                contender.reduce_scatter(self.results[layer], self.gradients[layer % 2], self.side)
        if contender:
            self.main.wait_stream(self.side)

    def fill(self):
        for layer, shard in enumerate(self.parameters):
            shard.fill_(self.rank * LAYERS + layer)
        for tensor in self.wholes + self.results:
            tensor.fill_(float("nan"))
        for whole in self.gradients:
            torch.mul(self.pattern, float(self.rank + 1), out=whole)

    def wrong(self):
        shard = self.count // self.world
        sums = self.pattern[self.rank * shard:(self.rank + 1) * shard] * (self.world * (self.world + 1) / 2)
        wrong = sum(int(torch.count_nonzero(r != sums).item()) for r in self.results)
        for layer in range(LAYERS - 3, LAYERS):
            want = torch.arange(self.world,
                                device=self.device).mul_(LAYERS).add_(layer).to(BF16).repeat_interleave(shard)
            wrong += int(torch.count_nonzero(self.wholes[layer % 3] != want).item())
        return wrong


class Experts:
    """Calls with splits of their own; step runs them all."""

    def __init__(self, bench, tokens):
        self.world, self.rank, self.device, self.tokens = bench.world, bench.rank, bench.device, tokens
        self.main = bench.main
        draw = random.Random(tokens)  # the same on all ranks
        self.splits = [self.zipf(draw) for _ in range(EXPERT_CALLS)]
        most = max(sum(row[r] for row in m) for m in self.splits for r in range(self.world))
        self.send = torch.empty(tokens * TOKEN, dtype=BF16, device=self.device)
        self.recv = torch.empty(most * TOKEN, dtype=BF16, device=self.device)
        self.received = []
        self.calls = EXPERT_CALLS

    def zipf(self, draw):
        """How many tokens each rank sends to each: the r-th most popular rank gets a share of 1/r."""
        popular = draw.sample(range(self.world), self.world)
        weights = [1 / (popular.index(r) + 1) for r in range(self.world)]
        rows = []
        for _ in range(self.world):
            chosen = draw.choices(range(self.world), weights, k=self.tokens)
            rows.append([chosen.count(r) for r in range(self.world)])
        return rows

    def call(self, contender, m):
        contender.all_to_all_v(self.recv, [row[self.rank] for row in m], self.send, m[self.rank], self.main)

    def step(self, contender):
        for m in self.splits if contender else ():
            self.call(contender, m)

    def fill(self):
        rows = torch.arange(self.tokens, device=self.device).add_(self.rank * 31).remainder_(251).to(BF16)
        self.send.copy_(rows.repeat_interleave(TOKEN))
        self.recv.fill_(float("nan"))

    def wrong(self):
        """Of the last call."""
        parts, m = [], self.splits[-1]
        for source, row in enumerate(m):
            first = sum(row[:self.rank])
            parts.append(torch.arange(first, first + row[self.rank],
                                      device=self.device).add_(source * 31).remainder_(251))
        want = torch.cat(parts).to(BF16).repeat_interleave(TOKEN)
        return int(torch.count_nonzero(self.recv[:want.numel()] != want).item())


class Alone:
    """One collective, some calls in a row."""

    def __init__(self, bench, size, collective):
        self.world, self.rank, self.device, self.collective = bench.world, bench.rank, bench.device, collective
        self.main = bench.main
        self.count = size // 2 // (self.world * 128) * (self.world * 128)
        self.whole = torch.empty(self.count, dtype=BF16, device=self.device)
        self.shard = torch.empty(self.count // self.world, dtype=BF16, device=self.device)
        self.pattern = torch.arange(self.count, device=self.device).remainder_(7).to(BF16)
        self.received = [] if collective == "reduce_scatter" else [self.whole]
        self.calls = ALONE_CALLS

    def step(self, contender, calls=ALONE_CALLS):
        for _ in range(calls if contender else 0):
            if self.collective == "all_reduce":
                contender.all_reduce(self.whole, self.main)
            elif self.collective == "all_gather":
                contender.all_gather(self.whole, self.shard, self.main)
            else:
                contender.reduce_scatter(self.shard, self.whole, self.main)

    def fill(self):
        torch.mul(self.pattern, float(self.rank + 1), out=self.whole)
        if self.collective == "all_gather":
            self.shard.fill_(self.rank + 1)
            self.whole.fill_(float("nan"))

    def wrong(self):
        shard = self.count // self.world
        if self.collective == "all_gather":
            want = torch.arange(1, self.world + 1, device=self.device).to(BF16).repeat_interleave(shard)
            return int(torch.count_nonzero(self.whole != want).item())
        want, got = self.pattern * (self.world * (self.world + 1) / 2), self.whole
        if self.collective == "reduce_scatter":
            want, got = want[self.rank * shard:(self.rank + 1) * shard], self.shard
        return int(torch.count_nonzero(got != want).item())
