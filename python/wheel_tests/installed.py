"""What an installation of the wheel must do, run by its own Python in an empty directory: installed.py SNIPPET...

Needs numpy beside the wheel, and nothing else: no Go, compiler, checkout or variable. The snippets are README's
programs; each prints the sum of all ranks. Where torch is installed the backend of torch.distributed is tried too.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

RANKS = 2
SUM = "sum 3"  # of 1 and 2

TORCH = """
import torch
import torch.distributed as dist
import shunt.torch

dist.init_process_group("shunt")
x = torch.full((1,), dist.get_rank() + 1.0)
dist.all_reduce(x)
print(f"sum {x.item():g}")
dist.destroy_process_group()
print("extension", shunt.torch._extension.C.__file__)
"""


def run(*command: object, ok: int = 0, **env: str) -> str:
    """Runs a command; returns its output, both streams."""
    done = subprocess.run([str(part) for part in command], env={**os.environ, **env}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300)  # fmt: skip
    text = done.stdout
    assert done.returncode == ok, f"{command}: status {done.returncode}\n{text}"
    return text


def sums(program: Path, **env: str) -> str:
    """Runs a program as two ranks; returns what they logged."""
    text = run("shunt", "run", "-n", RANKS, "--", sys.executable, program, **env)
    assert text.splitlines().count(SUM) == RANKS, text
    return text


def main() -> None:
    for tool in ("go", "cc", "gcc", "g++", "clang", "nvcc"):
        assert shutil.which(tool) is None, f"{tool} is on the PATH, so this proves nothing"
    for name in ("SHUNT_LIBRARY", "SHUNT_COMMAND", "SHUNT_PLUGIN_DIR", "LD_LIBRARY_PATH"):
        assert name not in os.environ, f"{name} is set, so this proves nothing"

    import shunt

    package = Path(shunt.__file__).parent
    assert "site-packages" in package.parts, package

    version = json.loads(run("shunt", "version", "--json"))
    assert version["version"] == shunt.__version__ and re.fullmatch("[0-9a-f]{40}", version["commit"]), version
    assert run(sys.executable, "-m", "shunt", "version") == run("shunt", "version")
    print(run("shunt", "version"), end="")
    run("shunt", "nonsense", ok=2)  # the command's status is the entry's

    for name in ("include/shunt.h", "include/shunt_tables.h", "include/shunt_transport.h", "include/shunt_ring.h",
                 "lib/libshunt.so", "lib/libshunt.so.1", "lib/shunt/nccl/libnccl.so.2"):
        assert (package / name).is_file(), name
    run("shunt", "run", "--nccl", "--", sys.executable, "-c", "")  # which finds it

    for snippet in sys.argv[1:]:
        sums(Path(snippet))
    for spec in ("process:shm", "shared:shm"):
        text = sums(Path(sys.argv[1]), SHUNT_TRANSPORTS=spec, SHUNT_LOG="info")
        assert f"carrier={spec.split(':')[0]}" in text, text
    specs = ["process:shm", "process:cudaipc", "process:nccl", "shared:shm", "shared:nccl"]
    loaded = json.loads(run("shunt", "transports", "--json", *specs))
    assert [r["name"] for r in loaded] == [s.split(":")[1] for s in specs], loaded
    assert "installed: process:cudaipc" in run("shunt", "transports", "process:nonesuch", ok=1)

    rows = json.loads(run("shunt", "bench", "-n", RANKS, "--max", "1K", "--budget", "5ms", "--collective", "all_reduce",
                          "--json"))
    assert rows[0]["rows"] and rows[0]["wrong"] == 0, rows

    if importlib.util.find_spec("torch"):
        program = Path("torch_program.py")
        program.write_text(TORCH)
        text = sums(program, SHUNT_TORCH_CACHE="/nonexistent", CXX="/nonexistent/c++")
        loaded = {line for line in text.splitlines() if line.startswith("extension")}
        version = ".".join(importlib.metadata.version("torch").split(".")[:2])
        name = f"shunt_torch-{version}-{sysconfig.get_config_var('SOABI')}.so"
        assert loaded == {f"extension {package / 'torch' / 'lib' / name}"}, text
        print(f"torch.distributed: by {name} in the wheel, with CPython {sys.version.split()[0]}")
    else:
        print("torch is not installed: not tried")
    print("ok")


main()
