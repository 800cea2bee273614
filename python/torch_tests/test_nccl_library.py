"""torch itself over Shunt's libnccl.so.2, as far as it goes without a GPU."""

import os
import pathlib
import subprocess
import sys

import pytest

LIBRARY = pathlib.Path(os.environ.get("SHUNT_LIBRARY", "bin/libshunt.so")).resolve().parent / "nccl" / "libnccl.so.2"

# torch.cuda.nccl.version of newer torch is that of the header it was compiled with.
PROGRAM = """
import ctypes
import torch
version = ctypes.c_int()
assert ctypes.CDLL(None).ncclGetVersion(ctypes.byref(version)) == 0 and version.value // 100 == 228, version
print(torch.cuda.nccl.unique_id()[:4])
"""


@pytest.mark.skipif(not LIBRARY.is_file(), reason="no libnccl.so.2 beside libshunt.so: make build")
def test_torch_takes_the_library(tmp_path: pathlib.Path) -> None:
    env = dict(os.environ, LD_PRELOAD=str(LIBRARY), SHUNT_NCCL_REPORT_DIR=str(tmp_path))
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "b'SHID'\n"  # a unique id of Shunt's, by torch's own call
    assert any(file.suffix == ".loaded" for file in tmp_path.iterdir())
