"""How shunt.torch compiles its extension and keeps it, with a compiler that writes a word. It needs no torch."""

import errno
import fcntl
import importlib.util
import os
import pathlib
import sys

import pytest

FILE = pathlib.Path(__file__).resolve().parents[1] / "shunt" / "torch" / "build.py"


@pytest.fixture
def module(monkeypatch):
    """The module, not by its package, which imports torch."""
    spec = importlib.util.spec_from_file_location("torch_build", FILE)
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torch_build", made)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def build(module, tmp_path, monkeypatch):
    """The module, whose torch is a version only. Its compiler writes "made" to each output."""
    (tmp_path / "version.py").write_text("__version__ = '2.11.0+cpu'\n")
    for name, value in {"torch_root": lambda: tmp_path, "check": lambda _: None, "compiler": lambda: ["c++"],
                        "_run": lambda command: output(command).write_text("made")}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setenv("SHUNT_TORCH_CACHE", str(tmp_path / "cache"))
    return module


def output(command: list[str]) -> pathlib.Path:
    return pathlib.Path(command[command.index("-o") + 1])


def test_it_is_compiled_once(build, monkeypatch):
    path = build.cached()
    assert path.read_text() == "made" and sorted(os.listdir(path.parent)) == sorted(["lock", path.name])
    monkeypatch.delattr(build, "_run")
    assert build.cached() == path


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK])
def test_file_systems_without_locks(build, monkeypatch, code):
    """Lustre without flock, NFS without locks: it is compiled all the same."""
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert build.cached().read_text() == "made"


def test_file_systems_without_hard_links(build, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    assert build.cached().read_text() == "made"


def test_what_another_host_has_mapped_stays(build, monkeypatch):
    """It has put its file there while this one compiled: locks do not always reach across hosts."""
    path = build.cache()

    def run(command):
        output(command).write_text("made")
        if not path.exists():
            path.write_text("other")

    monkeypatch.setattr(build, "_run", run)
    assert build.cached() == path
    assert path.read_text() == "other" and sorted(os.listdir(path.parent)) == sorted(["lock", path.name])


def test_a_file_that_is_asked_for_is_new(build, tmp_path, monkeypatch):
    made = tmp_path / "out" / build.file_name()
    made.parent.mkdir()
    made.write_text("old")
    monkeypatch.setattr(sys, "argv", ["build", "--output", str(made.parent)])
    build.main()
    assert made.read_text() == "made"


def test_folders_that_cannot_be_searched(build, tmp_path, monkeypatch):
    """As root's home is for another user of a container."""
    path = build.cache()
    monkeypatch.setattr(build, "cache", lambda: path)
    tmp_path.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:  # who may search every folder
            os.seteuid(65534)
        with pytest.raises(ImportError, match="Permission denied: .*cache.*; set SHUNT_TORCH_CACHE to a folder that"):
            build.cached()
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("driver", ["collect2: error: ld returned 1 exit status",
                                    "clang: error: linker command failed with exit code 1 (use -v to see invocation)"])
def test_why_a_link_fails(module, driver):
    """The driver says only that it failed; the linker's own words need not have that of an error."""
    for why in ("/usr/bin/ld: final link failed: No space left on device", "/usr/bin/ld: cannot find -lc10"):
        assert module._errors(f"{why}\n{driver}\n") == f"{why}\n{driver}\n"


def test_errors_of_a_compiler_are_picked(module):
    wrong = "a.cpp:1:2: error: expected ';'"
    assert module._errors(f"In file included from a.cpp:1:\n{wrong}\n    1 | x\n      |  ^\n") == wrong


def test_a_compiler_is_asked_in_english(module, monkeypatch):
    """Its errors are found by their words."""
    monkeypatch.setattr(module, "torch_version", lambda: "2.11.0")
    for name in ("LANG", "LC_MESSAGES", "LC_ALL"):
        monkeypatch.setenv(name, "de_DE.UTF-8")
    with pytest.raises(ImportError, match="\nlocale C$"):
        module._run(["sh", "-c", 'echo "locale $LC_ALL" >&2; exit 1'])
