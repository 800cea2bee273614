"""What importing shunt.torch says: of variables of torch's nccl backend, of a missing compiler, of another torch."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
GROUPS = """
import torch.distributed as dist, shunt.torch
dist.init_process_group("cpu:shunt", rank=0, world_size=1, store=dist.HashStore())
dist.new_group()
"""

#: The module that finds the file, before the package loads that.
BUILD = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("shunt.torch.build", sys.argv[1])
build = importlib.util.module_from_spec(spec)
sys.modules["shunt.torch.build"] = build
spec.loader.exec_module(build)
"""


def python(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_NCCL_")}
    env |= {"PYTHONPATH": str(ROOT), **variables}
    return subprocess.run([sys.executable, "-c", program, *arguments], env=env, capture_output=True, text=True,
                          timeout=100)


def test_variables_without_a_meaning_are_named_once():
    ran = python(GROUPS, TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_TRACE_BUFFER_SIZE="9",
                 TORCH_NCCL_ASYNC_ERROR_HANDLING="1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("TORCH_NCCL_BLOCKING_WAIT, TORCH_NCCL_TRACE_BUFFER_SIZE set up torch's") == 1, ran.stderr
    assert "ASYNC" not in ran.stderr, ran.stderr


def test_nothing_is_said_of_what_torchrun_sets():
    ran = python(GROUPS, TORCH_NCCL_ASYNC_ERROR_HANDLING="1")
    assert ran.returncode == 0 and "TORCH_NCCL" not in ran.stderr, ran.stderr


def test_a_missing_compiler_is_named(tmp_path):
    ran = python("import shunt.torch", SHUNT_TORCH_CACHE=str(tmp_path), PATH=str(tmp_path), CXX="")
    assert ran.returncode == 1, ran.stderr
    last = ran.stderr.splitlines()[-1]
    for words in ("ImportError", "torch 2.", "CPython", "there is no g++", "install g++ or set CXX"):
        assert words in last, ran.stderr


def test_an_extension_of_another_torch_is_refused():
    """A file is found by its name; what it was built for counts."""
    ran = python(BUILD + """
path = build.cached()
build.cached, build.torch_version = lambda: path, lambda: "2.99.0"
import shunt.torch
""", str(ROOT / "shunt" / "torch" / "build.py"))
    assert ran.returncode == 1, ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert "ImportError" in last and "was built for torch" in last and "this is torch 2.99.0" in last, ran.stderr


def imported(tmp_path: pathlib.Path, torch: str, prebuilt: bytes | None) -> str:
    """The error of an import under a version of torch, with a file in the package and one in the cache that are no
    programs."""
    package, cache = tmp_path / "package" / "file.so", tmp_path / "cache" / "file.so"
    for file, text in (package, prebuilt), (cache, b"text"):
        file.parent.mkdir()
        if text is not None:
            file.write_bytes(text)
    ran = python(BUILD + """
torch, package, cache = sys.argv[2:]
build.torch_version, build.file_name, build.cached = lambda: torch, lambda: package, lambda: pathlib.Path(cache)
import shunt.torch
""", str(ROOT / "shunt" / "torch" / "build.py"), torch, str(package), str(cache))
    assert ran.returncode == 1, ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ") and (str(package) in last) != (str(cache) in last), ran.stderr
    return last


@pytest.mark.parametrize("torch, built_for, taken", [
    ("2.11.0", "2.11.1", True), ("2.11.0+cu130", "2.11.0", True), ("2.11.0+cpu.cxx11.abi", "2.11.0", True),
    ("2.11.0a0+1a2b3c.nv25.12", "2.11.0", False), ("2.11.0.dev20260101+cu130", "2.11.0", False),
    ("2.11.0rc1", "2.11.0", False), ("2.11.0a0+1a2b3c.nv25.12", "2.11.0a0+1a2b3c.nv25.12", True),
    ("2.11.0a0+1a2b3c.nv25.1", "2.11.0a0+1a2b3c.nv25.12", False), ("2.11.0", None, False),
])
def test_the_packages_file_is_for_releases_and_the_torch_that_it_was_built_for(tmp_path, torch, built_for, taken):
    prebuilt = None if built_for is None else f"shunt.torch 0123456789abcdef for torch {built_for}\0".encode()
    assert (str(tmp_path / "package") in imported(tmp_path, torch, prebuilt)) is taken


def test_a_cache_whose_file_cannot_be_loaded_is_named_with_the_variable(tmp_path):
    """As where programs may not run. Of the package's own file the variable says nothing."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    last = imported(tmp_path / "a", "2.11.0", None)
    assert f"compiled into {tmp_path}/a/cache: " in last and "set SHUNT_TORCH_CACHE" in last, last
    assert "SHUNT_TORCH_CACHE" not in imported(tmp_path / "b", "2.11.0", b"text")


def test_a_folder_that_cannot_be_written_is_named_with_the_variable():
    ran = python("import shunt.torch", SHUNT_TORCH_CACHE="", XDG_CACHE_HOME="/proc/nowhere")
    assert ran.returncode == 1, ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert "ImportError" in last and "/proc/nowhere" in last and "SHUNT_TORCH_CACHE" in last, ran.stderr


def test_users_without_a_home_name_the_folder():
    """As in containers that run with a number of their own."""
    nobody = """
import os, pwd
def unknown(uid): raise KeyError(uid)
pwd.getpwuid = unknown
os.environ.pop("HOME", None)
os.environ["USER"] = os.environ["LOGNAME"] = "nobody"  # torch asks for the name
from shunt.torch import build
"""
    assert (ran := python(nobody + "build.cached()", SHUNT_TORCH_CACHE="/proc/nowhere")).returncode == 1
    assert "/proc/nowhere" in ran.stderr.splitlines()[-1], ran.stderr
    ran = python(nobody + "build.cached()", SHUNT_TORCH_CACHE="", XDG_CACHE_HOME="")
    assert ran.returncode == 1, ran.stderr
    last = ran.stderr.splitlines()[-1]
    assert "ImportError" in last and "SHUNT_TORCH_CACHE" in last, ran.stderr
