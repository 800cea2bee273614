#!/usr/bin/env python3
"""Draws the pictures of docs/benchmarks-cuda.md from bench/data/collectives.csv, and writes its summary table.

    python3 bench/plot.py            # docs/images/{time,ratio}-{2,4}.svg, and the table between the page's markers
    python3 bench/plot.py --check    # writes nothing; exit status 1 if the table differs from the data

collectives.csv holds the times of `shunt bench --against nccl`, in µs: the better mode of NCCL (plain or registered
windows), and Shunt's times on plain and on symmetric memory. The ratio is NCCL's time over Shunt's better time; above
1 Shunt is faster."""

import argparse
import csv
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/benchmarks-cuda.md"
BEGIN, END = "<!-- table: bench/plot.py -->\n", "<!-- end of table -->\n"
SIZES = {"smallest": 8, "32 KiB": 32 << 10, "512 KiB": 512 << 10, "8 MiB": 8 << 20, "128 MiB": 128 << 20,
         "1 GiB": 1 << 30}
COLORS = {"NCCL": "#8a8a8a", "Shunt": "#d1495b"}


def load(path):
    """Returns {(world, mode): {collective: [(bytes, NCCL's µs, Shunt's µs)]}}, in the order of the file."""
    results = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            ours = [float(row[name]) for name in ("shunt_us", "symmetric_us") if row[name]]
            if not ours or not row["nccl_us"]:
                continue
            of = results.setdefault((int(row["world"]), row["mode"]), {})
            of.setdefault(row["collective"], []).append((int(row["bytes"]), float(row["nccl_us"]), min(ours)))
    return results


def text_of(size):
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift:
            return f"{size >> shift}{unit}"
    return str(size)


def axis_of_sizes(axis, sizes):
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [text_of(s) for s in sizes])
    axis.minorticks_off()
    axis.grid(True, which="major", color="#e4e4e4", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def draw_times(plt, rows, world, path):
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.6), sharex=True)
    for axis, (collective, points) in zip(axes.flat, rows.items()):
        sizes = [p[0] for p in points]
        for name, column in (("NCCL", 1), ("Shunt", 2)):
            axis.plot(sizes, [p[column] for p in points], color=COLORS[name], label=name, linewidth=1.6, marker="o",
                      markersize=2.5)
        axis.set_yscale("log")
        axis.set_title(collective, fontsize=10)
        axis_of_sizes(axis, [8, 1 << 10, 128 << 10, 16 << 20, 1 << 30])
    for axis in axes[:, 0]:
        axis.set_ylabel("µs")
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"Time of one operation, {world} H200, in graphs, by bytes")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def draw_ratios(plt, rows, world, path):
    figure, axis = plt.subplots(figsize=(9, 4.4))
    for collective, points in rows.items():
        axis.plot([p[0] for p in points], [p[1] / p[2] for p in points], label=collective, linewidth=1.5, marker="o",
                  markersize=2.5)
    axis.axhline(1, color="black", linewidth=1)
    axis.set_ylabel("NCCL's time / Shunt's")
    axis.set_title(f"{world} H200, in graphs, by bytes: above 1 Shunt is faster")
    axis_of_sizes(axis, [8, 128, 2 << 10, 32 << 10, 512 << 10, 8 << 20, 128 << 20, 1 << 30])
    axis.legend(frameon=False, ncols=2, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def nearest(points, size):
    return min(points, key=lambda p: abs(math.log2(p[0] / size)))


def table(results):
    """The ratios at a few sizes, and every row in which NCCL is faster."""
    collectives = list(next(iter(results.values())))
    lines = ["NCCL's time divided by Shunt's:", ""]
    lines += ["| GPUs, mode, size | " + " | ".join(collectives) + " |", "|---" * (len(collectives) + 1) + "|"]
    for (world, mode), rows in sorted(results.items(), key=lambda item: (item[0][1] != "graph", item[0][0])):
        for name, size in SIZES.items():
            ratios = [p[1] / p[2] for p in (nearest(rows[c], size) for c in collectives)]
            label = f"{world}, {mode}, {name}".replace(" ", "\N{NO-BREAK SPACE}")
            lines.append(f"| {label} | " + " | ".join(f"{r:.2f}" for r in ratios) + " |")
    slower = [
        f"{collective} of {text_of(size)} on {world} GPUs ({mode}) {nccl / ours:.2f}"
        for (world, mode), rows in results.items()
        for collective, points in rows.items()
        for size, nccl, ours in points
        if round(nccl / ours, 2) < 1
    ]
    total = sum(len(points) for rows in results.values() for points in rows.values())
    lines += ["", f"NCCL is faster in {len(slower)} of {total} rows:", ""] + [f"- {text}" for text in slower]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=ROOT / "bench/data/collectives.csv", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="compare the page's table with the data, and draw nothing")
    options = parser.parse_args()
    results = load(options.data)
    before, rest = PAGE.read_text().split(BEGIN)
    old, after = rest.split(END)
    new = "\n" + table(results) + "\n"
    if options.check:
        sys.exit(0 if old == new else f"{PAGE.name}: the table differs from {options.data.name}; run `make plots`")
    PAGE.write_text(before + BEGIN + new + END + after)
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "shunt", "svg.fonttype": "none", "font.size": 9})
    import matplotlib.pyplot as plt

    images = ROOT / "docs/images"
    images.mkdir(exist_ok=True)
    for (world, mode), rows in results.items():
        if mode == "graph":
            draw_times(plt, rows, world, images / f"time-{world}.svg")
            draw_ratios(plt, rows, world, images / f"ratio-{world}.svg")


main()
