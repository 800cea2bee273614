"""all_reduce of tensors on GPUs: Shunt, torch's NCCL and torch's symmetric
memory in turn, in the same processes, on the same stream, with every result
checked. Multicast is off. Needs torch 2.11 or newer; what this torch has not, or
refuses, is left out with its reason.

    shunt run -n 4 python bench/python/bench_symm_mem.py [--max BYTES] [--json FILE]
    torchrun --nproc-per-node 4 bench/python/bench_symm_mem.py

Times are microseconds of one all_reduce: the median over batches of the slowest
rank. In a graph a batch is one replay; its time begins when every rank has
arrived and all of it is queued. The ratio is the better of torch's symmetric
memory over the better of Shunt's two forms: above 1 Shunt is faster.
"""

import argparse
import json
import os
import sys
import time

os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    sys.exit(f"bench_symm_mem: torch is not installed: {error}")

import shunt

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from torch_ranks import join, median

OPS = ("one_shot_all_reduce_out", "two_shot_all_reduce_out", "two_shot_all_reduce_")
ONE_SHOT_MOST = 8 << 20  # every rank reads everything: above, it only takes long
SHUNT, SYMMETRIC = ("shunt", "shunt in place"), tuple(f"symm_mem {name}" for name in OPS)
WARM_UPS = 3
PERIOD = 251  # of the data


def sizes(least, most):
    size = least
    while size < most:
        yield size
        size *= 4
    yield most


def batches(size):
    """Operations in a batch, and batches."""
    if size <= 1 << 20:
        return 40, 61
    if size <= 32 << 20:
        return 10, 31
    return 2, 11


def percentile(values, percent):
    return sorted(values)[(len(values) * percent + 99) // 100 - 1]


class Contender:
    """One way to do an all_reduce of one size: what is sent, where the result
    comes, and the call."""

    def __init__(self, name, send, recv, call):
        self.name, self.send, self.recv, self.call = name, send, recv, call
        self.graph, self.samples, self.wrong, self.reason = None, [], 0, None


class Bench:
    def __init__(self, comm, group, device):
        self.comm, self.group, self.device = comm, group, device
        self.stream = torch.cuda.Stream()
        self.notes, self.registered = {}, []
        self.pattern = None

    def note(self, name, reason):
        """Why something is left out, once for each reason."""
        reason = str(reason).strip().split("\n")[0][:200]
        if self.notes.setdefault(name, reason) == reason:
            return reason
        self.notes[name + " (too)"] = reason
        return reason

    def agreed(self, ok):
        """Whether it went well on every rank."""
        flag = torch.tensor([0.0 if ok else 1.0], device=self.device)
        dist.all_reduce(flag)
        return flag.item() == 0

    def contenders(self, count):
        """All ways for a size, on memory of their own. The order is the same on
        all ranks."""
        new = lambda: torch.empty(count, dtype=torch.float32, device=self.device)
        send, recv, place = new(), new(), new()
        for tensor in (send, recv, place):
            self.register(tensor)
        yield Contender("shunt", send, recv, lambda: self.comm.all_reduce(send, recv))
        yield Contender("shunt in place", place, place, lambda: self.comm.all_reduce(place))
        other = new()
        yield Contender("nccl in place", other, other, lambda: dist.all_reduce(other))
        try:
            import torch.distributed._symmetric_memory as symm
            memory = symm.empty(count, dtype=torch.float32, device=self.device)
            symm.rendezvous(memory, self.group)
            ops = torch.ops.symm_mem
            name = self.group.group_name
        except Exception as error:  # whatever a torch of another version raises
            self.note("symm_mem", f"{type(error).__name__}: {error}")
            memory = None
        if not self.agreed(memory is not None):
            return
        out = new()
        for op in OPS:
            if op.startswith("one_shot") and count * 4 > ONE_SHOT_MOST:
                continue
            if not hasattr(ops, op):
                self.note(op, f"torch {torch.__version__} has no such op")
                continue
            function = getattr(ops, op)
            if op.endswith("_out"):
                yield Contender(f"symm_mem {op}", memory, out, lambda f=function: f(memory, "sum", name, out))
            else:
                yield Contender(f"symm_mem {op}", memory, memory, lambda f=function: f(memory, "sum", name))

    def register(self, memory):
        """What Shunt otherwise finds out while the first calls are timed."""
        try:
            self.registered.append(self.comm.register(memory))
        except shunt.UnsupportedError as error:
            self.note("shunt's registration", error)

    def data(self, count):
        if self.pattern is None or self.pattern.numel() < count:
            self.pattern = torch.arange(count, device=self.device).remainder_(PERIOD).to(torch.float32)
        return self.pattern[:count]

    def check(self, c):
        """Runs it once over known data and counts the wrong elements."""
        world, rank, count = self.comm.world, self.comm.rank, c.send.numel()
        with torch.cuda.stream(self.stream):
            c.recv.fill_(float("nan"))
            torch.add(self.data(count), float(rank), out=c.send)
        self.meet()
        try:
            with torch.cuda.stream(self.stream):
                c.call()
            self.stream.synchronize()
            ok = True
        except RuntimeError as error:
            c.reason, ok = self.note(c.name, error), False
        if not self.agreed(ok):
            c.reason = c.reason or "another rank could not"
            return
        want = self.data(count) * world + world * (world - 1) / 2
        c.wrong += int(torch.count_nonzero(c.recv != want).item())
        torch.cuda.synchronize()

    def meet(self):
        """Every rank has ended what it did before."""
        self.comm.barrier(stream=self.stream)
        self.stream.synchronize()

    def capture(self, c, operations):
        c.graph = torch.cuda.CUDAGraph()
        try:
            torch.cuda.synchronize()
            with torch.cuda.stream(self.stream):
                c.graph.capture_begin(capture_error_mode="thread_local")
                try:
                    for _ in range(operations):
                        c.call()
                finally:
                    c.graph.capture_end()
            ok = True
        except RuntimeError as error:
            c.reason, ok = self.note(c.name + " in a graph", error), False
        if not self.agreed(ok):
            c.reason, c.graph = c.reason or "another rank could not capture it", None

    def timed(self, c, operations):
        """Microseconds of one operation on this rank."""
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(self.stream):
            if c.graph is not None:
                torch.cuda._sleep(200_000)  # 0.1 ms: until all is queued
                self.comm.barrier(stream=self.stream)
                start.record(self.stream)
                c.graph.replay()
            else:
                self.meet()
                start.record(self.stream)
                for _ in range(operations):
                    c.call()
            stop.record(self.stream)
        self.stream.synchronize()
        return start.elapsed_time(stop) * 1000 / operations

    def size(self, count, mode):
        """The rows of one size: every contender that runs."""
        operations, rounds = batches(count * 4)
        runs = []
        for c in self.contenders(count):
            self.check(c)
            if c.reason is None and mode == "graph":
                self.capture(c, operations)
            if c.reason is None:
                runs.append(c)
        for round in range(-WARM_UPS, rounds):
            for c in runs:
                us = self.timed(c, operations)
                if round >= 0:
                    c.samples.append(us)
        for c in runs:
            c.graph = None
            self.check(c)
        for r in self.registered:
            r.close()
        self.registered.clear()
        slowest = torch.tensor([c.samples for c in runs], dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        wrong = torch.tensor([c.wrong for c in runs], dtype=torch.int64, device=self.device)
        dist.all_reduce(wrong)
        return {c.name: {"us": median(s), "us_p99": percentile(s, 99), "wrong": w}
                for c, s, w in zip(runs, slowest.tolist(), wrong.tolist())}


def best(times, names):
    return min((times[n]["us"] for n in names if n in times and not times[n]["wrong"]), default=None)


def ratio(times):
    ours, theirs = best(times, SHUNT), best(times, SYMMETRIC)
    return theirs / ours if ours and theirs else None


def line(size, times):
    cell = lambda name: ("-" if name not in times else "wrong" if times[name]["wrong"]
                         else f"{times[name]['us']:.2f}")
    r = ratio(times)
    cells = " ".join(f"{cell(n):>15}" for n in (*SHUNT, "nccl in place", *SYMMETRIC))
    return f"{size:>12} {cells} {f'{r:.2f}' if r else '-':>6}"


def head():
    short = [n.replace("symm_mem ", "").replace("_all_reduce", "") for n in (*SHUNT, "nccl in place", *SYMMETRIC)]
    return f"{'# bytes':>12} " + " ".join(f"{n:>15}" for n in short) + f" {'ratio':>6}"


def arguments():
    parser = argparse.ArgumentParser(description="all_reduce: Shunt, torch's NCCL and torch's symmetric memory")
    parser.add_argument("--min", type=int, default=8, help="bytes; default 8")
    parser.add_argument("--max", type=int, default=1 << 30, help="bytes; default 1 GiB")
    parser.add_argument("--modes", default="graph,eager", help="default graph,eager")
    parser.add_argument("--seconds", type=float, default=120, help="begin no size later than this; default 120")
    parser.add_argument("--json", help="write the rows into this file, too")
    return parser.parse_args()


def main():
    options = arguments()
    if not torch.cuda.is_available():
        sys.exit("bench_symm_mem: torch sees no GPU")
    rank = int(os.environ.get("SHUNT_RANK") or os.environ.get("LOCAL_RANK") or 0)
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    began, wrong, rows = time.monotonic(), 0, []
    with shunt.init(memory="cuda", device=rank) as comm:
        store = join(comm, device)
        bench = Bench(comm, dist.group.WORLD, device)
        say = print if comm.rank == 0 else lambda *_, **__: None
        say(f"# torch {torch.__version__}, CUDA {torch.version.cuda}, NCCL "
            f"{'.'.join(map(str, torch.cuda.nccl.version()))}, "
            f"{torch.cuda.get_device_name(device)} x {comm.world}; multicast off", flush=True)
        for mode in options.modes.split(","):
            say(f"# all_reduce, float32, sum, {mode}; microseconds\n{head()}", flush=True)
            for size in sizes(options.min, options.max):
                if not bench.agreed(time.monotonic() - began < options.seconds):
                    say(f"# not measured from {size} bytes on: {options.seconds:g} s are over")
                    break
                times = bench.size(size // 4, mode)
                wrong += sum(t["wrong"] for t in times.values())
                rows.append({"collective": "all_reduce", "world": comm.world, "mode": mode, "bytes": size,
                             "times": times, "ratio": ratio(times)})
                say(line(size, times), flush=True)
                torch.cuda.empty_cache()
        for name, reason in bench.notes.items():
            say(f"# left out: {name}: {reason}")
        if options.json and comm.rank == 0:
            with open(options.json, "w") as f:
                json.dump({"torch": torch.__version__, "left_out": bench.notes, "rows": rows}, f, indent=1)
        bench.meet()
        dist.destroy_process_group()
        del store
    if wrong:
        sys.exit(f"bench_symm_mem: {wrong} wrong elements")


if __name__ == "__main__":
    main()
