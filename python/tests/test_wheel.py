"""The check that holds a wheel to its tag, and the package's command."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from shunt import _command

PACKAGE = pathlib.Path(__file__).resolve().parents[1]


def load(name: str, path: pathlib.Path):
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


wheel_check = load("wheel_check", PACKAGE / "wheel_check.py")
torch_build = load("torch_build", PACKAGE / "shunt" / "torch" / "build.py")  # not by its package, which imports torch

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
    ("shunt/lib/libshunt.so", "ld-linux-aarch64.so.1", True),
])
def test_libraries(name, library, allowed):
    assert (wheel_check.problems_of(name, DUMP.format(library=library, version="GLIBC_2.17"), *TAG) == []) is allowed


@pytest.mark.parametrize("section, allowed", [(".debug_info", False), (".debug_line_str", False), (".dynstr", True)])
def test_debug_information(section, allowed):
    """It names files of the machine that built it, compressed too."""
    line = f"  [31] {section}       PROGBITS        0000000000000000 36b5c38 071379 00   C  0   0  1\n"
    dump = DUMP.format(library="libm.so.6", version="GLIBC_2.17") + line
    assert (wheel_check.problems_of("shunt/x", dump, *TAG) == []) is allowed


@pytest.mark.parametrize("name, allowed", [("libshunt.so", False), ("libshunt.so.1", True), ("shunt.so", False)])
def test_names_of_libraries(name, allowed):
    """A wheel holds no links, so a file has the name that programs look for which are linked with it."""
    line = " 0x000000000000000e (SONAME)             Library soname: [libshunt.so.1]\n"
    dump = DUMP.format(library="libm.so.6", version="GLIBC_2.17") + line
    assert (wheel_check.problems_of(f"shunt/lib/{name}", dump, *TAG) == []) is allowed


@pytest.mark.parametrize("folders, allowed", [
    ("/home/me/lib", False), ("$ORIGIN", True), ("$ORIGIN/../lib:${ORIGIN}", True), ("$ORIGIN/..:/usr/lib", False),
    ("$ORIGINAL", False), ("", False),
])
@pytest.mark.parametrize("kind", ["RUNPATH", "RPATH"])
def test_folders_of_the_machine_that_built_it(kind, folders, allowed):
    line = f" 0x000000000000001d ({kind})            Library runpath: [{folders}]\n"
    dump = DUMP.format(library="libm.so.6", version="GLIBC_2.17") + line
    assert (wheel_check.problems_of("shunt/x", dump, *TAG) == []) is allowed


def test_the_interpreters_flags_for_run_time(tmp_path):
    """An extension does not search the folder of the libpython that the interpreter was linked with."""
    if sys.version_info < (3, 11) or sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("shunt._calls is built with CPython from 3.11 on, with the GIL")
    if shutil.which("cc") is None or shutil.which("readelf") is None:
        pytest.skip("no compiler: it takes cc and readelf")
    flags = ("-Wl,-rpath,/a -Wl,-z,now,-rpath=/b -Wl,-R,/c -Wl,-rpath -Wl,/d -Xlinker -rpath -Xlinker /e -Xlinker -z "
             "-Xlinker relro -R/f -Wl,--enable-new-dtags,--rpath,/g,-z,noexecstack")
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--build-lib", tmp_path, "--build-temp", tmp_path],
                   cwd=PACKAGE, check=True, capture_output=True,
                   env={**os.environ, "CC": "cc", "LDSHARED": f"cc -shared {flags}", "CFLAGS": "-O0 -g"})
    (made,) = tmp_path.glob("shunt/_calls*.so")
    dump = subprocess.run(["readelf", "-dW", made], check=True, capture_output=True, text=True).stdout
    assert "RPATH" not in dump and "RUNPATH" not in dump
    assert "NOW" in dump  # other flags of the linker are kept
    assert str(PACKAGE).encode() not in made.read_bytes()


@pytest.mark.parametrize("machine, named", [("x86_64", "Advanced Micro Devices X86-64"), ("aarch64", "AArch64")])
@pytest.mark.parametrize("tagged", ["x86_64", "aarch64"])
def test_machines(machine, named, tagged):
    dump = DUMP.replace("Advanced Micro Devices X86-64", named).format(library="libc.so.6", version="GLIBC_2.17")
    found = wheel_check.problems_of("x", dump, TAG[0], tagged)
    assert found == ([] if machine == tagged else [f"x is not for {tagged}"])


@pytest.mark.parametrize("arch, goarch", [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", None)])
def test_processors_of_the_build(arch, goarch):
    script = PACKAGE.parent / "scripts" / "portable-go.sh"
    environment = {**os.environ, "PORTABLE_ARCH": arch, "PYTHON": sys.executable}
    ran = subprocess.run(["sh", script, "env"], env=environment, capture_output=True, text=True)
    if goarch is None:
        assert ran.returncode == 2
        assert ran.stderr == "portable-go: no build for processor riscv64: x86_64 and aarch64 are known\n"
    else:
        assert {f"GOARCH={goarch}", f"PORTABLE_ARCH={arch}", "CGO_ENABLED=1"} <= set(ran.stdout.splitlines())


def wheel(path: pathlib.Path, **files: bytes) -> pathlib.Path:
    made = path / "shunt_ccl-0-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made


def test_pages_install_the_wheel_of_this_processor(tmp_path):
    """pip refuses the other one, and make wheel ARCH=... puts that beside it."""
    here = f"dist/shunt_ccl-0-py3-none-manylinux_2_28_{os.uname().machine}.whl"
    (tmp_path / "dist").mkdir()
    for name in (here, "dist/shunt_ccl-0-py3-none-manylinux_2_28_another.whl"):
        (tmp_path / name).touch()
    root = PACKAGE.parent
    found = [(page, line) for page in (root / "README.md", *root.glob("docs/**/*.md"))
             for line in re.findall(r"pip install [^#&`\n]*dist/[^#&`\n]*", page.read_text())]
    assert {page.name for page, _ in found} >= {"README.md", "start.md"}
    for page, line in found:
        words = subprocess.run(["sh", "-c", f"echo {line}"], cwd=tmp_path, check=True, capture_output=True, text=True)
        assert [word for word in words.stdout.split() if "dist/" in word] == [here], f"{page}: {line}"


def test_wheels(tmp_path):
    assert "carries no ELF file" in wheel_check.check(wheel(tmp_path, a=b"text"))[0]
    assert "another tag" in wheel_check.check(tmp_path / "shunt-0-py3-none-linux_x86_64.whl")[0]
    if shutil.which("cc") is None or shutil.which("readelf") is None:
        return  # the rest is of a real file, for which it takes both
    source, output = tmp_path / "a.c", tmp_path / "a.so"
    source.write_text("void beyond(void); void f(void) { beyond(); }")
    (tmp_path / "map").write_text("GLIBC_2.99 { beyond; };")
    (tmp_path / "b.c").write_text("void beyond(void) {}")
    for command in (["b.c", "-Wl,--version-script=map", "-Wl,-soname,libc.so.6", "-o", "b.so"],
                    ["a.c", "b.so", "-o", "a.so"]):
        subprocess.run(["cc", "-shared", "-fPIC", *command], cwd=tmp_path, check=True)
    found = wheel_check.check(wheel(tmp_path, **{"shunt/bin/a": output.read_bytes(),
                                                 "shunt/torch/lib/a.so": output.read_bytes()}))
    assert any("shunt/torch/lib/a.so has another name than" in problem for problem in found)
    assert any("needs GLIBC_2.99; manylinux_2_28 has GLIBC_2.28 at most" in problem for problem in found)
    assert "shunt/bin/a is not executable" in found


@pytest.mark.parametrize("folder", wheel_check.FOLDERS)
def test_folders_in_a_wheel(tmp_path, folder):
    """No file of any kind names a folder of the machine that built it, but the name may be a part of another's."""
    text = "shunt/text names {}, a folder of the machine that built it".format
    named = wheel(tmp_path, **{"shunt/text": f"at {folder}x.c\0".encode(), "shunt/other": f"/of{folder}x.c".encode()})
    found = [problem for problem in wheel_check.check(named) if "names" in problem]
    assert found == [text(f) for f in wheel_check.FOLDERS if f in folder]


def test_users_whose_home_is_the_root_or_unknown(monkeypatch):
    """As in containers that run with a number of their own: names that every machine has may be in a wheel."""
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    checkout = f"{PACKAGE.parent}/"
    for home, folders in (("/", [checkout]), ("", [checkout]), ("/home/me", [checkout, "/home/me/"])):
        monkeypatch.setenv("HOME", home)
        assert wheel_check.own_folders() == folders, home
    monkeypatch.setattr(pathlib.Path, "home", unknown)
    assert wheel_check.own_folders() == [checkout]


def test_folders_in_extensions_of_torch(tmp_path):
    """portable-cxx.sh cuts the folders of headers off the names of files, which torch's assertions print."""
    if shutil.which("g++") is None:
        pytest.skip("no compiler: it takes g++")
    for kind in ("I", "isystem"):
        (tmp_path / kind / "below").mkdir(parents=True)
        (tmp_path / kind / "below" / f"{kind}.h").write_text(f"const char *{kind}() {{ return __FILE__; }}\n")
    (tmp_path / "a.cpp").write_text("#include <below/I.h>\n#include <below/isystem.h>\n")
    subprocess.run(["bash", PACKAGE.parent / "scripts" / "portable-cxx.sh", f"-I{tmp_path}/I",
                    f"-isystem{tmp_path}/isystem", "-c", tmp_path / "a.cpp", "-o", tmp_path / "a.o"], check=True)
    built = (tmp_path / "a.o").read_bytes()
    assert b"./below/I.h" in built and b"./below/isystem.h" in built and str(tmp_path).encode() not in built


def extension(torch: str, python: str, sources: str = "0123456789abcdef") -> bytes:
    common = f"shunt.torch {sources} for torch {torch}".encode()
    return b"\x7fELF" + common + b"\0\0" + common + f" and CPython {python}".encode() + b"\0"


NAME = "shunt/torch/lib/shunt_torch-{}-cpython-{}-x86_64-linux-gnu.so"


def test_extensions_of_torch(capsys):
    files = {NAME.format("2.9", "39"): extension("2.9.1", "3.9"),
             NAME.format("2.11", "310"): extension("2.11.0+cu130", "3.10"),
             NAME.format("2.11", "39"): extension("2.11.0", "3.9")}  # fmt: skip
    assert wheel_check.extension_problems(files, "x86_64") == []
    assert capsys.readouterr().out.splitlines() == ["  shunt.torch for torch 2.9: CPython 3.9; not 3.10",
                                                    "  shunt.torch for torch 2.11: CPython 3.9, 3.10"]  # fmt: skip


@pytest.mark.parametrize("name, data, text", [
    (NAME.format("2.11", "312"), extension("2.12.0", "3.12"), "its name says torch 2.11 and CPython 3.12"),
    (NAME.format("2.11", "312"), extension("2.11.0", "3.11"), "its name says torch 2.11 and CPython 3.12"),
    (NAME.format("2.11", "312"), b"\x7fELF", "its name says torch 2.11 and CPython 3.12"),
    (NAME.format("2.11", "313t"), extension("2.11.0", "3.13"), "has another name than"),
    ("shunt/torch/lib/shunt_torch-2.11.so", extension("2.11.0", "3.13"), "has another name than"),
    (NAME.format("2.11", "312").replace("x86_64", "aarch64"), extension("2.11.0", "3.12"), "is not for x86_64"),
    (NAME.format("2.11", "312"), extension("2.11.0", "3.12", sources="f" * 16), "were built from different sources"),
])
def test_wrong_extensions_of_torch(name, data, text):
    good = {NAME.format("2.11", "310"): extension("2.11.0", "3.10")}
    (problem,) = wheel_check.extension_problems({**good, name: data}, "x86_64")
    assert text in problem and name in problem


def headers(folder: pathlib.Path, minor: int, config: str = "") -> pathlib.Path:
    folder.mkdir()
    (folder / "patchlevel.h").write_text(
        f"/* Version */\n#define PY_MAJOR_VERSION        3\n#define PY_MINOR_VERSION        {minor}\n")
    (folder / "pyconfig.h").write_text(config)
    (folder / "Python.h").touch()
    return folder


def test_headers_of_another_python(tmp_path):
    here = torch_build.of_headers(headers(tmp_path / "here", sys.version_info.minor))
    assert here.soabi == torch_build.running().soabi  # the name that this interpreter looks for
    other = torch_build.of_headers(headers(tmp_path / "other", 99, "/* #undef Py_GIL_DISABLED */"))
    torch_build.check(other)
    assert other.soabi.startswith("cpython-399-") and other.soabi.split("-")[2:] == here.soabi.split("-")[2:]

    threads = torch_build.of_headers(headers(tmp_path / "threads", 99, "#define Py_GIL_DISABLED 1"))
    with pytest.raises(ImportError, match="does not support free-threaded CPython .cpython-399t-"):
        torch_build.check(threads)
    with pytest.raises(ImportError, match="for the CPython of .*nonesuch"):
        torch_build.of_headers(tmp_path / "nonesuch")
    (tmp_path / "other" / "Python.h").unlink()
    with pytest.raises(ImportError, match="no Python.h in .*other"):
        torch_build.check(other)
    (tmp_path / "other" / "patchlevel.h").write_text("")
    with pytest.raises(ImportError, match="patchlevel.h does not say which CPython"):
        torch_build.of_headers(tmp_path / "other")


def test_finding_headers(tmp_path):
    def find(*versions: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([PACKAGE.parent / "scripts" / "pythons.sh", *versions], capture_output=True, text=True,
                              env={"PATH": "/usr/bin:/bin", **env})  # fmt: skip

    folder = headers(tmp_path / "headers", 99)
    done = find("3.99", "3.98", PYTHONS=str(folder))
    assert (done.returncode, done.stdout.split()) == (0, [str(folder)])
    assert done.stderr == "pythons: missing: no headers of CPython 3.98; name them in PYTHONS\n"
    for bad, text in (("/nonesuch", "names /nonesuch, which is not found"), (str(tmp_path), "which has no Python.h")):
        done = find("3.99", PYTHONS=bad)
        assert done.returncode != 0 and text in done.stderr and done.stdout == ""


def test_command(tmp_path, monkeypatch):
    fake = tmp_path / "shunt"
    fake.write_text('#!/bin/sh\necho "$0" "$@"\nexit 7\n')
    fake.chmod(0o755)
    done = subprocess.run([sys.executable, "-m", "shunt", "run", "--x", "a b"], cwd=PACKAGE, capture_output=True,
                          text=True,
                          env={"SHUNT_COMMAND": str(fake)})
    assert (done.returncode, done.stdout) == (7, f"{fake} run --x a b\n"), done.stderr
    monkeypatch.delenv("SHUNT_COMMAND", raising=False)
    with pytest.raises(FileNotFoundError, match="SHUNT_COMMAND names the one of make build"):
        _command.path()


@pytest.mark.parametrize("named", ["bin/shunt", "link", "shunt"])
def test_the_command_is_not_the_script_that_runs_it(tmp_path, named):
    """pip's script beside the interpreter, which SHUNT_COMMAND may name for examples: by its path, a link, its name."""
    carried, script = tmp_path / "shunt" / "bin" / "shunt", tmp_path / "bin" / "shunt"
    for file, text in ((carried, '#!/bin/sh\necho carried "$@"\n'),
                       (script, f"#!{sys.executable}\nfrom shunt._command import main\nmain()\n")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
        file.chmod(0o755)
    (tmp_path / "link").symlink_to(script)
    (tmp_path / "shunt" / "__init__.py").touch()
    shutil.copy(_command.__file__, tmp_path / "shunt")
    done = subprocess.run([script, "run"], capture_output=True, text=True, timeout=30,
                          env={"PYTHONPATH": str(tmp_path), "PATH": f"{script.parent}:/usr/bin:/bin",
                               "SHUNT_COMMAND": named if named == "shunt" else str(tmp_path / named)})
    assert (done.returncode, done.stdout) == (0, "carried run\n"), done.stderr
