#!/usr/bin/env python3
"""device-report.py: what `shunt bench --save FILE` measured on GPUs as tables in
Markdown: for each collective and size NCCL's better form, Shunt's, the ratio of
times, and by how much its goal is met or missed.

    device-report.py BENCH.json... [--symmetric-memory SYMM.json...] [--output FILE]
    device-report.py ... --csv bench/data/collectives.csv   # replaces the rows of the worlds that were measured

Sizes are those of the larger of what a rank sends and receives, GB/s is busbw,
both as nccl-tests count."""

import argparse
import csv
import json
import os
import sys

# Upper bounds in bytes, and the ratios aimed for up to them, in graphs on 4 GPUs.
BOUNDS = [32 << 10, 512 << 10, 8 << 20, 32 << 20, 1 << 62]
BANDS = ["≤ 32 KiB", "to 512 KiB", "to 8 MiB", "to 32 MiB", "above"]
GOALS = {
    "all_reduce": [1.5, 1.4, 1.2, 1.1, 1.05],
    "all_gather": [1.4, 1.3, 1.3, 1.15, 1.15],
    "reduce_scatter": [1.4, 1.3, 1.3, 1.15, 1.08],
    "all_to_all": [2.2, 1.8, 1.5, 1.3, 1.15],
    "all_to_all_v": [2.2, 1.8, 1.5, 1.3, 1.15],
    "broadcast": [1.5, 1.4, 1.8, 1.5, 1.03],
    "reduce": [1.5, 1.4, 1.8, 1.5, 1.03],
    "sendrecv": [2.2, 2.0, 1.6, 1.4, 1.05],
}
BUSBW = {"all_reduce": 365, "all_gather": 380, "all_to_all": 380, "all_to_all_v": 380}  # GB/s, above 32 MiB
SMALLEST = 3.3  # µs, all_reduce of 8 B in a graph
WORLD, MODE = 4, "graph"  # what goals are for


def size(n):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n >= 1 << shift and n % (1 << shift) == 0:
            return f"{n >> shift} {unit}"
    return f"{n} B"


def band(n):
    return next(i for i, bound in enumerate(BOUNDS) if n <= bound)


class Row:
    """One size: Shunt's better form against NCCL's better form."""

    def __init__(self, world, row):
        self.world, self.mode, self.collective = world, row.get("mode") or "eager", row["collective"]
        self.bytes, self.skipped = row["bytes"], row.get("skipped")
        plain = row.get("out_of_place")
        peers = {p["name"]: p for p in row.get("peers") or []}
        self.wrong = bool(plain and plain["wrong"]) or any(p["wrong"] for name, p in peers.items()
                                                           if not name.startswith("nccl"))
        self.plain, self.symmetric = plain, peers.get("symmetric")
        self.ours = min((t for t in (plain, self.symmetric) if t and not t["wrong"]), key=lambda t: t["us"],
                        default=None)
        self.nccl = min((p for name, p in peers.items() if name.startswith("nccl") and not p["wrong"]),
                        key=lambda p: p["us"], default=None)
        self.algorithm = (row.get("algorithm") or "").removeprefix("cudaipc/")
        self.ratio = self.nccl["us"] / self.ours["us"] if self.nccl and self.ours else None
        # A goal counts on 4 GPUs in graphs only.
        has = world == WORLD and self.mode == MODE and self.collective in GOALS
        self.goal = GOALS[self.collective][band(self.bytes)] if has else None

    def met(self):
        return self.ratio is not None and round(self.ratio, 2) >= self.goal

    def verdict(self):
        if self.ratio is None:
            return f"{self.goal:.2f} not measured"
        by = 100 * (self.ratio / self.goal - 1)
        return f"{self.goal:.2f} {'met' if self.met() else '**missed**'} {by:+.0f} %"


def number(timing, key="us"):
    return "" if timing is None else "wrong" if timing.get("wrong") else f"{timing[key]:.2f}"


def table(rows):
    goal, form = any(r.goal for r in rows), any(r.symmetric for r in rows)
    columns = ["bytes", "NCCL µs", "form", "Shunt µs", *(["symmetric µs"] if form else []), "p99", "ratio",
               *(["goal"] if goal else []), "GB/s", "algorithm"]
    yield f"### {rows[0].collective}, {rows[0].world} GPUs, {rows[0].mode}\n"
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for r in rows:
        if r.skipped or r.ours is None:
            yield f"| {size(r.bytes)} | not measured: {(r.skipped or 'no time')[:80]} |" + " |" * (len(columns) - 2)
            continue
        cells = [size(r.bytes), number(r.nccl),
                 "" if r.nccl is None else "window" if r.nccl["name"].endswith("window") else "plain", number(r.plain)]
        cells += [number(r.symmetric)] if form else []
        cells += [number(r.ours, "us_p99"), "" if r.ratio is None else f"{r.ratio:.2f}"]
        cells += [r.verdict()] if goal else []
        yield "| " + " | ".join(cells + [f"{r.ours['busbw']:.0f}", r.algorithm]) + " |"
    yield ""


def summary(rows):
    """Which goals are met, by collective and range of sizes."""
    rows = [r for r in rows if r.goal is not None and not r.skipped]
    if not rows:
        return
    yield f"### Goals: NCCL's time / Shunt's on {WORLD} GPUs in graphs\n"
    yield "In each range: the goal, how many sizes meet it, and by how much the worst one is above or below.\n"
    yield "| | " + " | ".join(BANDS) + " |"
    yield "|---|" + "---|" * len(BANDS)
    met = 0
    for collective in GOALS:
        mine = [r for r in rows if r.collective == collective]
        if not mine:
            continue
        cells = []
        for i, goal in enumerate(GOALS[collective]):
            at = [r for r in mine if band(r.bytes) == i]
            good = sum(r.met() for r in at)
            met += good
            worst = min((r.ratio / goal for r in at if r.ratio), default=None)
            cells.append(f"{goal:.2f}: "
                         + ("none measured" if worst is None else f"{good} of {len(at)}, {100 * (worst - 1):+.0f} %"))
        yield f"| {collective} | " + " | ".join(cells) + " |"
    yield f"\n{met} of {len(rows)} goals are met.\n"
    for collective, least in BUSBW.items():
        best = max((r.ours["busbw"] for r in rows if r.collective == collective and r.ours and r.bytes > 32 << 20),
                   default=None)
        if best is not None:
            yield f"- {collective}: {best:.0f} GB/s at best; goal {least}: {'met' if best >= least else 'missed'}"
    small = next((r for r in rows if r.collective == "all_reduce" and r.bytes == 8 and r.ours), None)
    if small:
        verdict = "met" if small.ours["us"] <= SMALLEST else "missed"
        yield f"- all_reduce of 8 B: {small.ours['us']:.2f} µs; goal {SMALLEST}: {verdict}"
    yield ""


def symmetric_memory(files):
    for f in files:
        rows = f["rows"]
        names = sorted({n for r in rows for n in r["times"]},
                       key=lambda n: (not n.startswith("shunt"), not n.startswith("nccl"), n))
        for mode in dict.fromkeys(r["mode"] for r in rows):
            at = [r for r in rows if r["mode"] == mode]
            yield f"### all_reduce in torch, {at[0]['world']} GPUs, {mode}\n"
            yield f"torch {f['torch']}; µs; the ratio is torch's better symmetric memory over Shunt's better form.\n"
            yield "| bytes | " + " | ".join(n.replace("symm_mem ", "").rstrip("_") if not n.endswith("_")
                                            else n.replace("symm_mem ", "") + " (in place)"
                                            for n in names) + " | ratio |"
            yield "|---|" + "---|" * (len(names) + 1)
            for r in at:
                cells = [number(r["times"].get(n)) for n in names] + ["" if r["ratio"] is None else f"{r['ratio']:.2f}"]
                yield f"| {size(r['bytes'])} | " + " | ".join(cells) + " |"
            yield ""
        for name, reason in f.get("left_out", {}).items():
            yield f"Left out: {name}: {reason}\n"


def report(results, symmetric):
    rows = [Row(result["world"], row) for result in results for row in result["rows"]]
    yield ("Of `shunt bench --against nccl`: the library's own choice of algorithm, and NCCL's, in turn in the same "
           "processes; each collective in processes of its own.\n")
    if any(r.symmetric for r in rows):
        yield ("\"symmetric\" is Shunt in windows, whose memory is symmetric; p99 and GB/s are of Shunt's better form, "
               "the algorithm is that on plain memory.\n")
    yield from summary(rows)
    for result in results:
        for f in result.get("failures") or []:
            what = f["error"].splitlines()[0][:200]
            yield f"**{f['collective']} on {result['world']} GPUs ended with an error:** `{what}`\n"
        if result.get("wrong"):
            yield f"**{result['wrong']} wrong elements on {result['world']} GPUs.**\n"
    if symmetric:
        yield from symmetric_memory(symmetric)
    seen = dict.fromkeys((r.world, r.mode, r.collective) for r in rows if r.collective != "barrier")
    for key in sorted(seen, key=lambda k: (k[1] != MODE, -k[0])):
        yield from table([r for r in rows if (r.world, r.mode, r.collective) == key])


COLUMNS = "collective world mode bytes nccl_us nccl_form shunt_us symmetric_us p99_us busbw_GBps algorithm".split()


def write_csv(path, rows):
    """The rows as bench/plot.py reads them, in place of those of the same numbers of GPUs."""
    with open(path, newline="") as f:
        kept = [r for r in csv.DictReader(f) if int(r["world"]) not in {row.world for row in rows}]
    for r in rows:
        if r.ours is None or r.skipped or r.wrong:
            continue
        form = "" if r.nccl is None else "window" if r.nccl["name"].endswith("window") else "plain"
        values = [r.collective, r.world, r.mode, r.bytes, number(r.nccl), form, number(r.plain), number(r.symmetric),
                  number(r.ours, "us_p99"), f"{r.ours['busbw']:.0f}", r.algorithm]
        kept.append(dict(zip(COLUMNS, values)))
    with open(path, "w", newline="") as f:
        writer = csv.DictWriter(f, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)


def load(paths):
    for path in paths:
        if not os.path.exists(path):  # a pattern that nothing matches, or a run that came to nothing
            print(f"device-report: no {path}", file=sys.stderr)
            continue
        with open(path) as f:
            yield json.load(f)


def main():
    parser = argparse.ArgumentParser(description="tables of shunt bench")
    parser.add_argument("bench", nargs="*", help="what shunt bench --save wrote")
    parser.add_argument("--symmetric-memory", nargs="*", default=[], help="what bench_symm_mem.py --json wrote")
    parser.add_argument("--output", help="write the tables there")
    parser.add_argument("--csv", help="put the rows into this file; those of other numbers of GPUs stay")
    options = parser.parse_args()
    results = [result for results in load(options.bench) for result in results]
    symmetric = list(load(options.symmetric_memory))
    if not results and not symmetric:
        sys.exit("device-report: nothing to report")
    text = "\n".join(report(results, symmetric))
    if options.output:
        with open(options.output, "w") as f:
            f.write(text + "\n")
    elif options.csv:
        write_csv(options.csv, [Row(result["world"], row) for result in results for row in result["rows"]])
    else:
        print(text)


if __name__ == "__main__":
    main()
