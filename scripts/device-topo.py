#!/usr/bin/env python3
"""Compares what `shunt topo` says of a machine with what nvidia-smi says: device-topo.py SHUNT.

Every GPU's index, UUID, PCI address, memory and compute capability, and every cell of the matrix of `nvidia-smi topo
-m` must be the same. The saved form must be read back and drawn, and ranks must come to NVLink or none as the matrix
has it. The exit status is 1 if something differs.
"""

import json
import os
import re
import subprocess
import sys
import tempfile


def run(*command, **environment):
    """What a command prints, errors included where it is to log something."""
    both = subprocess.STDOUT if environment else subprocess.PIPE
    return subprocess.run(command, check=not environment, stdout=subprocess.PIPE, stderr=both, text=True, timeout=30,
                          env={**os.environ, **environment}).stdout


def matrix(text):
    """The cells of nvidia-smi topo -m by pair of names, NICs by the name of their device."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    legend = dict(re.findall(r"^\s*(NIC\d+):\s*(\S+)", text, re.M))
    lines = [line.split() for line in text.splitlines() if line.strip()]
    columns = [name for name in lines[0] if re.fullmatch(r"(GPU|NIC)\d+", name)]
    cells = {}
    for line in lines[1:]:
        if re.fullmatch(r"GPU\d+", line[0]):
            for name, cell in zip(columns, line[1:]):
                cells[line[0], legend.get(name, name)] = cell
    return cells


def main():
    shunt = sys.argv[1]
    text = run(shunt, "topo", "--json")
    machine = json.loads(text)
    wrong = []

    def compare(what, ours, theirs):
        if ours != theirs:
            wrong.append(f"{what}: shunt says {ours}, nvidia-smi {theirs}")

    smi = run("nvidia-smi", "--query-gpu=index,uuid,pci.bus_id,compute_cap,memory.total,driver_version",
              "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in smi.splitlines() if line.strip()]
    compare("number of GPUs", len(machine["gpus"]), len(rows))
    for gpu, (index, uuid, bus, capability, memory, driver) in zip(machine["gpus"], rows):
        name = f"GPU{index}"
        compare(f"{name}: index", gpu["index"], int(index))
        compare(f"{name}: UUID", gpu["uuid"], uuid)
        compare(f"{name}: address", gpu["pci"], bus.lower()[4:])
        compare(f"{name}: compute capability", gpu["capability"], capability)
        if abs((gpu["memory"] >> 20) - int(memory)) > int(memory) // 50:  # what the driver keeps counts or does not
            compare(f"{name}: MiB", gpu["memory"] >> 20, int(memory))
        compare("driver", machine["driver"], driver)
    ours = {}
    for i, a in enumerate(machine["gpus"]):
        for j, b in enumerate(machine["gpus"]):
            path = machine["gpu_paths"][i][j]
            kind = f"NV{path['nvlinks']}" if path["nvlinks"] else path["pcie"]
            ours[f"GPU{a['index']}", f"GPU{b['index']}"] = "X" if i == j else kind
        for n, nic in enumerate(machine["nics"]):
            for hca in nic["infiniband"]:
                ours[f"GPU{a['index']}", hca["name"]] = machine["nic_paths"][i][n]
    cells = matrix(run("nvidia-smi", "topo", "-m"))
    for pair, cell in cells.items():
        compare(f"{pair[0]} to {pair[1]}", ours.get(pair), cell)

    with tempfile.TemporaryDirectory() as folder:
        saved, picture = folder + "/machine.json", folder + "/machine.svg"
        with open(saved, "w") as file:
            file.write(text)
        again = run(shunt, "topo", "--from", saved, "--json", "--svg", picture)
        if again != text:
            wrong.append("the saved machine is not read back as it was written")
        with open(picture) as file:
            if "GPU0" not in file.read():
                wrong.append("the picture lacks GPU0")
    visible = [i for i, gpu in enumerate(machine["gpus"]) if gpu["ordinal"] >= 0]
    visible.sort(key=lambda i: machine["gpus"][i]["ordinal"])
    if len(visible) > 1 and os.path.exists("bin/gpu"):
        path = machine["gpu_paths"][visible[0]][visible[1]]
        log = run(shunt, "run", "-n", "2", "bin/gpu", SHUNT_LOG="info")  # an example: it reduces on GPUs
        if ("without NVLink" in log) != (path["nvlinks"] == 0):
            wrong.append(f"shunt says {path['nvlinks']} NVLinks, two ranks say\n{log}")
        if ("do not reach each other's memory" in log) != (path["access"] == "no"):
            wrong.append(f"shunt says peer access {path['access']}, two ranks say\n{log}")
    else:
        print("two ranks were not tried: that needs two GPUs and bin/gpu")

    print(run(shunt, "topo"), end="")
    print(f"{len(rows)} GPUs and {len(cells)} cells compared with nvidia-smi, {len(wrong)} differ", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
