"""Collectives beside computation: what they add to a training step, against NCCL.

    shunt run -n 2 python bench/loads/loads.py [--loads ddp,fsdp,moe,experts,alone] [--sizes 1M,8M,32M] [--max-sms 8,24]

ddp      a backward pass of 12 layers, two products of 6144 x 6144 matrices (bf16) each, and an all_reduce of one
         bucket a layer on a side stream of high priority
fsdp     the same with an all_gather of the next layer's parameters ahead of a layer, and a reduce_scatter of its
         gradients behind it
moe      the same with an all_to_all behind a layer, as experts of another layer are sent theirs
experts  eager all_to_all_v, each call with splits of its own, drawn from a Zipf distribution; a token is 14 KiB
alone    the collectives of ddp and fsdp by themselves

ddp, fsdp and moe print milliseconds that a step takes longer than without communication, experts and alone microseconds
of a call. All contenders take turns in one run, in the same processes and on the same memory; a time is the median
over rounds of the slowest rank, and every result is checked before and after. Contenders: NCCL through
torch.distributed, Shunt as it is, Shunt with its buffers registered as symmetric, and Shunt with each budget of
--max-sms. Needs torch.
"""

import argparse
import gc
import json
import os
import random
import sys
import time

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch
import torch.distributed as dist

import shunt

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from steps import BF16, WIDTH, Alone, Ddp, Experts, Fsdp, Moe, Nccl, Shunt
from torch_ranks import join, median


def size_of(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def name_of(size):
    for unit, suffix in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


class Bench:
    def __init__(self, comm, device, options):
        self.comm, self.device, self.options = comm, device, options
        self.rank, self.world = comm.rank, comm.world
        self.main, self.side = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
        new = lambda: torch.randn(WIDTH, WIDTH, device=device).mul_(0.02).to(BF16)
        self.matrices = ([new(), new()], [new(), new()], new())
        self.contenders = []
        self.began = time.monotonic()

    def slowest(self, values):
        """Each number's largest over the ranks."""
        t = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(t, op=dist.ReduceOp.MAX)
        return t.tolist()

    def timed(self, load, contender, queued):
        """Milliseconds of a step on this rank, from when every rank has arrived. queued: the calls wait on the GPU
        until the CPU has put them all into the stream."""
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(load.main):
            if queued:
                torch.cuda._sleep(4_000_000)
            self.comm.barrier(stream=load.main)
            if not queued:
                load.main.synchronize()
            start.record(load.main)
            load.step(contender)
            stop.record(load.main)
        torch.cuda.synchronize()
        return start.elapsed_time(stop)

    def check(self, load, contender):
        """The wrong elements of a step over known data, on all ranks."""
        with torch.cuda.stream(load.main):
            load.fill()
            torch.cuda.synchronize()
            self.comm.barrier(stream=load.main)
            if isinstance(load, Alone):
                load.step(contender, 1)
            else:
                load.step(contender)
            torch.cuda.synchronize()
            return int(self.slowest([load.wrong()])[0])

    def run(self, load, rounds, queued, baseline):
        """(median in ms of a step without communication, {contender: (median of what it adds, wrong elements)})."""
        samples, without = ({c: [] for c in self.contenders} for _ in range(2))
        wrong = {c: 0 for c in self.contenders}
        for c in self.contenders:
            c.register(load.received)
            wrong[c] += self.check(load, c)
        time.sleep(0.3)  # until what the first calls found unmapped is mapped
        order, draw = list(self.contenders), random.Random(rounds)  # the same on all ranks
        gc.collect()
        gc.disable()
        for round in range(-2, rounds):
            draw.shuffle(order)  # so that none always follows the same one
            for c in order:
                before = self.timed(load, None, queued) if baseline else 0.0
                ms = self.timed(load, c, queued)
                if round >= 0:
                    without[c].append(before)
                    samples[c].append(ms)
        gc.enable()
        for c in self.contenders:
            wrong[c] += self.check(load, c)
            c.release()
        slowest = torch.tensor([[without[c], samples[c]] for c in self.contenders], dtype=torch.float64,
                               device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        baselines, added = [], {}
        for c, (before, ms) in zip(self.contenders, slowest.tolist()):
            baselines += before
            added[c] = median([m - b for m, b in zip(ms, before)]), wrong[c]
        return median(baselines), added


def trace(bench, load, contenders, folder, name):
    """Writes when which kernel ran in a step, for each contender: microseconds since the first one, how many it took,
    its stream, its blocks and its name."""
    from torch.profiler import ProfilerActivity, profile
    for c in contenders:
        c.register(load.received)
        bench.check(load, c)
        time.sleep(0.3)  # as in run
        bench.check(load, c)
        with profile(activities=[ProfilerActivity.CUDA]) as p:
            bench.timed(load, c, True)
        c.release()
        path = f"{folder}/{name}-{c.name}-{bench.rank}.json"
        p.export_chrome_trace(path)
        with open(path) as f:
            events = [e for e in json.load(f)["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy")]
        os.remove(path)
        events.sort(key=lambda e: e["ts"])
        first = events[0]["ts"]
        with open(f"{folder}/{name}-{c.name}-{bench.rank}.txt", "w") as f:
            for e in events:
                a = e.get("args", {})
                f.write(f"{e['ts'] - first:10.1f} {e['dur']:9.1f} {a.get('stream', ''):>4} "
                        f"{a.get('grid', '')!s:>16} {a.get('block', '')!s:>14} "
                        f"{a.get('registers per thread', '')!s:>4} {a.get('shared memory', '')!s:>7} "
                        f"{e['name'][:90]}\n")


def budgeted(comm, device, max_sms):
    """A communicator of the same ranks whose kernels have a budget."""
    text = torch.zeros(512, dtype=torch.uint8, device=device)
    if comm.rank == 0:
        own = shunt.unique_id().encode()
        text[:len(own)] = torch.tensor(list(own), dtype=torch.uint8, device=device)
    torch.cuda.synchronize()
    comm.broadcast(text, 0)
    comm.synchronize()
    name = bytes(text.tolist()).rstrip(b"\0").decode()
    return shunt.init(comm.rank, comm.world, name, memory="cuda", device=device.index, max_sms=max_sms)


def arguments():
    parser = argparse.ArgumentParser(description="collectives beside computation: Shunt and NCCL")
    parser.add_argument("--loads", default="ddp,fsdp,moe,experts,alone")
    parser.add_argument("--sizes", default="1M,8M,32M,128M", help="buckets of ddp, fsdp and moe, and messages of alone")
    parser.add_argument("--tokens", default="64,512,4096", help="that a rank sends in experts")
    parser.add_argument("--max-sms", default="", help="budgets of Shunt that are measured, too")
    parser.add_argument("--trace", help="instead of measuring, write when kernels ran into this folder")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=120, help="begin no row later than this")
    parser.add_argument("--json", help="write the rows into this file, too")
    return parser.parse_args()


def rows_of(bench, options):
    """(name, unit, load, whether its calls are queued first, whether without communication it takes time)."""
    sizes = [size_of(s) for s in options.sizes.split(",")]
    steps = {"ddp": Ddp, "fsdp": Fsdp, "moe": Moe}
    for name in options.loads.split(","):
        if name in steps:
            for size in sizes:
                yield f"{name} {name_of(size)}", "ms", lambda s=size, n=name: steps[n](bench, s), True, True
        elif name == "experts":
            for tokens in map(int, options.tokens.split(",")):
                yield f"experts {tokens}", "us", lambda t=tokens: Experts(bench, t), False, False
                yield f"experts {tokens} queued", "us", lambda t=tokens: Experts(bench, t), True, False
        elif name == "alone":
            for collective in ("all_reduce", "all_gather", "reduce_scatter"):
                for size in sizes:
                    yield (f"{collective} {name_of(size)}", "us", lambda s=size, c=collective: Alone(bench, s, c),
                           True, False)
        else:
            sys.exit(f"loads: unknown load {name!r}; known are ddp, fsdp, moe, experts, alone")


def main():
    options = arguments()
    rank = int(os.environ.get("SHUNT_RANK") or os.environ.get("LOCAL_RANK") or 0)
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    rows, total = [], 0
    with shunt.init(memory="cuda", device=rank) as comm:
        store = join(comm, device, pg_options=dist.ProcessGroupNCCL.Options(is_high_priority_stream=True))
        bench = Bench(comm, device, options)
        bench.contenders = [Nccl(), Shunt("shunt", comm.split(0, comm.rank)),
                            Shunt("symmetric", comm.split(0, comm.rank), True)]
        for n in filter(None, options.max_sms.split(",")):
            bench.contenders.append(Shunt(f"{n} SMs", budgeted(comm, device, int(n))))
        say = print if comm.rank == 0 else lambda *_, **__: None
        say(f"# torch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, "
            f"{torch.cuda.get_device_name(device)} x {comm.world}")
        say(f"{'':<24} {'without':>9} " + " ".join(f"{c.name:>9}" for c in bench.contenders), flush=True)
        for name, unit, make, queued, baseline in rows_of(bench, options):
            if bench.slowest([time.monotonic() - bench.began])[0] > options.seconds:
                say(f"# not measured: {name}: {options.seconds:g} s are over")
                continue
            load = make()
            torch.cuda.synchronize()  # its memory is filled on another stream
            if options.trace:
                trace(bench, load, bench.contenders, options.trace, name.replace(" ", "-"))
                continue
            without, added = bench.run(load, options.rounds, queued, baseline)
            scale = 1 if unit == "ms" else 1000 / load.calls
            cells = {c.name: added[c][0] * scale for c in bench.contenders}
            wrong = {c.name: added[c][1] for c in bench.contenders}
            total += sum(wrong.values())
            rows.append({"load": name, "unit": unit, "world": comm.world, "without": without, "added": cells,
                         "wrong": wrong})
            say(f"{name + ', ' + unit:<24} {f'{without:.3f}' if baseline else '-':>9} "
                + " ".join(f"{'wrong' if wrong[n] else f'{v:.3f}' if unit == 'ms' else f'{v:.1f}':>9}"
                           for n, v in cells.items()), flush=True)
            del load
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        if options.json and comm.rank == 0:
            with open(options.json, "w") as f:
                json.dump({"torch": torch.__version__, "rows": rows}, f, indent=1)
        torch.cuda.synchronize()
        for c in bench.contenders:
            c.close()
        dist.destroy_process_group()
        del store
    if total:
        sys.exit(f"loads: {total} wrong elements")


if __name__ == "__main__":
    main()
