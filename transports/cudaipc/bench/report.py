#!/usr/bin/env python3
"""report.py: the benchmark's JSON lines as tables: for each collective and size,
NCCL's better mode, ours, the ratio (NCCL's time / ours) and the goal."""

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


def main(path):
    runs = collections.defaultdict(list)
    for line in open(path):
        r = json.loads(line)
        runs[r["ranks"], r["mode"], r["collective"]].append(r)
    for (ranks, mode, collective), rows in runs.items():
        if collective not in GOALS:
            for r in rows:
                print(f"{collective}, {ranks} GPUs, {mode}: {r['algorithm']} {r['us']:.2f} us\n")
            continue
        print(f"### {collective}, {ranks} GPUs, {mode}\n")
        goal = mode == "graph" and ranks == 4
        print("| bytes | NCCL µs | ours µs | p99 | ratio |" + (" goal |" if goal else "") + " GB/s | kernel |")
        print("|---|---|---|---|---|" + ("---|" if goal else "") + "---|---|")
        sizes = collections.defaultdict(list)
        for r in rows:
            sizes[r["bytes"]].append(r)
        for n, at in sizes.items():
            theirs = min((r["us"] for r in at if r["algorithm"].startswith("nccl")), default=0)
            ours = min((r for r in at if not r["algorithm"].startswith("nccl")), key=lambda r: r["us"], default=None)
            if ours is None:
                continue
            ratio = theirs / ours["us"]
            aim = GOALS[collective][next(i for i, b in enumerate(BOUNDS) if n <= b)]
            mark = f" {aim:.2f}{'' if ratio >= aim else ' missed'} |" if goal else ""
            bus = n * factor(collective, ranks) / ours["us"] / 1e3
            print(f"| {size(n)} | {theirs:.2f} | {ours['us']:.2f} | {ours['p99']:.2f} | {ratio:.2f} |{mark} {bus:.0f} | {ours['algorithm'].replace('_float32', '')} |")
        print()


if __name__ == "__main__":
    main(sys.argv[1])
