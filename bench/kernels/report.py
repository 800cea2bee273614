#!/usr/bin/env python3
"""report.py: the benchmark's JSON lines as tables: for each collective and size,
NCCL's better mode, ours, the ratio (NCCL's time / ours) and the goal.

    report.py bench.json

Candidates by copy engines are what would be possible where every rank knows
every rank's addresses; they are not counted as ours, but get a table of their own."""

import collections
import json
import sys

# Upper bounds in bytes, and the ratios aimed for up to them, in graphs on 4 GPUs.
BOUNDS = [32 << 10, 512 << 10, 8 << 20, 32 << 20, 1 << 62]
GOALS = {
    "all_reduce": [1.5, 1.4, 1.2, 1.1, 1.05],
    "all_gather": [1.4, 1.3, 1.3, 1.15, 1.15],
    "reduce_scatter": [1.4, 1.3, 1.3, 1.15, 1.08],
    "all_to_all": [2.2, 1.8, 1.5, 1.3, 1.15],
    "broadcast": [1.5, 1.4, 1.8, 1.5, 1.03],
    "reduce": [1.5, 1.4, 1.8, 1.5, 1.03],
    "sendrecv": [2.2, 2.0, 1.6, 1.4, 1.05],
}


def factor(collective, n):
    if collective == "all_reduce":
        return 2 * (n - 1) / n
    if collective in ("all_gather", "reduce_scatter", "all_to_all"):
        return (n - 1) / n
    return 1


def size(n):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n >= 1 << shift and n % (1 << shift) == 0:
            return f"{n >> shift} {unit}"
    return f"{n} B"


def by_engines(r):
    return "copy_engines" in r["algorithm"]


def best(rows):
    return min(rows, key=lambda r: r["us"], default=None)


def table(ranks, mode, collective, rows):
    goal = mode == "graph" and ranks == 4
    yield f"### {collective}, {ranks} GPUs, {mode}\n"
    of_goal = " goal |" if goal else ""
    yield f"| bytes | NCCL µs | ours µs | p99 | ratio |{of_goal} GB/s | kernel, blocks x threads |"
    yield "|---|---|---|---|---|" + ("---|" if goal else "") + "---|---|"
    sizes = collections.defaultdict(list)
    for r in rows:
        sizes[r["bytes"]].append(r)
    for n, at in sizes.items():
        theirs = best(r for r in at if r["algorithm"].startswith("nccl"))
        ours = best(r for r in at if not r["algorithm"].startswith("nccl") and not by_engines(r))
        if ours is None:
            continue
        ratio = theirs["us"] / ours["us"] if theirs else 0
        aim = GOALS[collective][next(i for i, b in enumerate(BOUNDS) if n <= b)]
        mark = f" {aim:.2f}{'' if round(ratio, 2) >= aim else ' missed'} |" if goal else ""
        bus = n * factor(collective, ranks) / ours["us"] / 1e3
        name = ours["algorithm"].replace("_float32", "")
        times = f"{theirs['us'] if theirs else 0:.2f} | {ours['us']:.2f} | {ours['p99']:.2f}"
        yield f"| {size(n)} | {times} | {ratio:.2f} |{mark} {bus:.0f} | {name} |"
    yield ""


def engines(rows):
    found = [r for r in rows if by_engines(r) and r["mode"] == "graph"]
    if not found:
        return
    yield "### By copy engines, where every rank knows every rank's addresses, graph\n"
    yield "| collective | GPUs | bytes | NCCL µs | copy engines µs | ratio | GB/s |"
    yield "|---|---|---|---|---|---|---|"
    sizes = collections.defaultdict(list)
    for r in rows:
        if r["mode"] == "graph":
            sizes[r["collective"], r["ranks"], r["bytes"]].append(r)
    for (collective, ranks, n), at in sizes.items():
        theirs, ours = best(r for r in at if r["algorithm"].startswith("nccl")), best(r for r in at if by_engines(r))
        if ours and theirs:
            bus = n * factor(collective, ranks) / ours["us"] / 1e3
            times = f"{theirs['us']:.2f} | {ours['us']:.2f} | {theirs['us'] / ours['us']:.2f}"
            yield f"| {collective} | {ranks} | {size(n)} | {times} | {bus:.0f} |"
    yield ""


def report(rows):
    runs = collections.defaultdict(list)
    for r in rows:
        runs[r["ranks"], r["mode"], r["collective"]].append(r)
    for (ranks, mode, collective), of in runs.items():
        if collective in GOALS:
            yield from table(ranks, mode, collective, of)
        else:
            times = ", ".join(f"{r['algorithm']} {r['us']:.2f} µs" for r in of)
            yield f"{collective}, {ranks} GPUs, {mode}: {times}\n"
    yield from engines(rows)


def main():
    with open(sys.argv[1]) as f:
        text = "\n".join(report([json.loads(line) for line in f]))
    print(text)


if __name__ == "__main__":
    main()
