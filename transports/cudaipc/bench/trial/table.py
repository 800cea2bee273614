"""The best of the old kernels, the best of the new ones, and NCCL, by size."""
import collections, json, re, sys

new = re.compile(r"chain|ring|_b\d+u\d")
rows = collections.defaultdict(dict)
for line in open(sys.argv[1]):
    r = json.loads(line)
    name = r["algorithm"]
    kind = "nccl" if name.startswith("nccl") else "new" if new.search(name) else "engines" if "engines" in name else "old"
    row = rows[r["collective"], r["ranks"], r["bytes"]]
    if kind not in row or r["us"] < row[kind][0]:
        row[kind] = r["us"], name
print(f"{'collective':<12}{'GPUs':>5}{'MiB':>7}{'NCCL':>10}{'old':>10}{'new':>10}{'new/old':>9}{'NCCL/new':>9}  best of the new, best of the old")
for (collective, ranks, size), row in sorted(rows.items()):
    us = {k: row.get(k, (float("nan"), "-")) for k in ("nccl", "old", "new")}
    old, fresh, nccl = us["old"][0], us["new"][0], us["nccl"][0]
    print(f"{collective:<12}{ranks:>5}{size / 2**20:>7.0f}{nccl:>10.1f}{old:>10.1f}{fresh:>10.1f}{fresh / old:>9.3f}{nccl / fresh:>9.3f}  {us['new'][1]}, {us['old'][1]}")
