"""The check that holds a wheel to its tag, and the package's command."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from shunt import _command

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("wheel_check", PACKAGE / "wheel_check.py")
wheel_check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wheel_check)

TAG = ("manylinux_2_28", "x86_64")
DUMP = """
  Machine:                           Advanced Micro Devices X86-64
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x0000000000000001 (NEEDED)             Shared library: [{library}]
Version needs section '.gnu.version_r' contains 2 entries:
  000000: Version: 1  File: libc.so.6  Cnt: 2
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 3
  0x0020:   Name: {version}  Flags: none  Version: 2
"""


@pytest.mark.parametrize("version, allowed", [
    ("GLIBC_2.28", True), ("GLIBC_2.29", False), ("GLIBC_2.34", False), ("GLIBC_PRIVATE", False), ("GCC_3.0", True),
    ("GLIBCXX_3.4.24", True), ("GLIBCXX_3.4.25", False), ("CXXABI_1.3.11", True), ("CXXABI_1.3.12", False),
])
def test_versions_of_symbols(version, allowed):
    found = wheel_check.problems_of("shunt/x", DUMP.format(library="libm.so.6", version=version), *TAG)
    assert (found == []) is allowed and all(version in problem for problem in found)


@pytest.mark.parametrize("name, library, allowed", [
    ("shunt/lib/libshunt.so", "libcuda.so.1", False), ("shunt/lib/libshunt.so", "libtorch.so", False),
    ("shunt/torch/lib/x.so", "libtorch.so", True), ("shunt/torch/lib/x.so", "libcudart.so.12", False),
    ("shunt/lib/libshunt.so", "ld-linux-x86-64.so.2", True), ("shunt/lib/libshunt.so", "libresolv.so.2", True),
])
def test_libraries(name, library, allowed):
    assert (wheel_check.problems_of(name, DUMP.format(library=library, version="GLIBC_2.17"), *TAG) == []) is allowed


def test_another_machine():
    assert wheel_check.problems_of("x", DUMP.replace("X86-64", "AArch64").format(library="libc.so.6", version="GLIBC_2.17"), *TAG)


def wheel(path: pathlib.Path, **files: bytes) -> pathlib.Path:
    made = path / "shunt_ccl-0-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made


def test_wheels(tmp_path):
    assert "carries no ELF file" in wheel_check.check(wheel(tmp_path, a=b"text"))[0]
    assert "another tag" in wheel_check.check(tmp_path / "shunt-0-py3-none-linux_x86_64.whl")[0]
    if shutil.which("cc") is None or shutil.which("readelf") is None:
        return  # the rest is of a real file, for which it takes both
    source, output = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text("void beyond(void); void f(void) { beyond(); }")
    (tmp_path / "map").write_text("GLIBC_2.99 { beyond; };")
    (tmp_path / "b.c").write_text("void beyond(void) {}")
    for command in (["b.c", "-Wl,--version-script=map", "-Wl,-soname,libc.so.6", "-o", "b.so"], ["a.c", "b.so", "-o", "a.so"]):
        subprocess.run(["cc", "-shared", "-fPIC", *command], cwd=tmp_path, check=True)
    found = wheel_check.check(wheel(tmp_path, **{"shunt/bin/a": output.read_bytes()}))
    assert any("needs GLIBC_2.99; manylinux_2_28 has GLIBC_2.28 at most" in problem for problem in found)
    assert "shunt/bin/a is not executable" in found


def test_command(tmp_path, monkeypatch):
    fake = tmp_path / "shunt"
    fake.write_text('#!/bin/sh\necho "$0" "$@"\nexit 7\n')
    fake.chmod(0o755)
    done = subprocess.run([sys.executable, "-m", "shunt", "run", "--x", "a b"], cwd=PACKAGE, capture_output=True, text=True,
                          env={"SHUNT_COMMAND": str(fake)})
    assert (done.returncode, done.stdout) == (7, f"{fake} run --x a b\n"), done.stderr
    monkeypatch.delenv("SHUNT_COMMAND", raising=False)
    with pytest.raises(FileNotFoundError, match="SHUNT_COMMAND names the one of make build"):
        _command.path()
