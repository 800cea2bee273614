"""Compiles the backend for the running interpreter and its torch: python -m shunt.torch.build --output FOLDER.

Needs g++ (or $CXX) with C++20 (GCC 10, Clang 10 or newer) and Python's headers; no CUDA toolkit and no ninja. Takes about half a minute.
"""

import argparse
import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "csrc"

#: Where libshunt's headers are: in the package, or in the repository.
HEADERS = (HERE.parent / "include", HERE.parents[2] / "capi" / "include", HERE.parents[2] / "plugin")


@functools.cache
def torch_root() -> Path:
    """Where torch is. It is not imported: its headers and libraries are enough to compile."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ImportError("shunt.torch needs torch, which is not installed")
    return Path(spec.origin).parent


@functools.cache
def torch_version() -> str:
    """torch.__version__."""
    text = (torch_root() / "version.py").read_text()
    found = re.search(r"""^__version__ = ['"]([^'"]+)""", text, re.MULTILINE)
    if found is None:
        raise ImportError(f"{torch_root() / 'version.py'} does not say which torch it is")
    return found[1]


def torch_minor() -> str:
    """The part of torch's version that its ABI changes with, such as "2.11"."""
    return ".".join(torch_version().split(".")[:2])


def file_name() -> str:
    """The name of the extension for this interpreter and torch."""
    return f"shunt_torch-{torch_minor()}-{sysconfig.get_config_var('SOABI')}.so"


def digest() -> str:
    """A hash of everything that the extension is compiled from."""
    whole = hashlib.sha256(torch_version().encode())
    for path in [*sorted(SOURCES.glob("*.[ch]pp")), *_headers(), Path(__file__)]:
        whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


def cache() -> Path:
    """Returns the path of the extension for this interpreter, torch and source, in the cache."""
    named = os.environ.get("SHUNT_TORCH_CACHE")
    root = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shunt" / "torch-ext"
    return root / digest() / file_name()


def _headers() -> list[Path]:
    return [found[0] for name in ("shunt.h", "shunt_tables.h") if (found := [d / name for d in HEADERS if (d / name).exists()])]


def command(source: str, output: str) -> list[str]:
    """The compiler's command line."""
    root = torch_root()
    compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(compiler[0]) is None:
        raise ImportError(
            f"shunt.torch has no extension for torch {torch_version()} and CPython {sysconfig.get_python_version()}, "
            f"and cannot compile one: there is no {compiler[0]}; install g++ or set CXX"
        )
    headers = _headers()
    if len(headers) != 2:
        raise ImportError(f"shunt.torch cannot be compiled: shunt.h or shunt_tables.h is missing; expected them in {HEADERS[0]}")
    python = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(python, "Python.h")):
        raise ImportError(f"shunt.torch cannot be compiled: there is no Python.h in {python}; install Python's headers")
    includes = [SOURCES, *dict.fromkeys(h.parent for h in headers)]
    system = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include", Path(python)]
    return [
        *compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra",
        "-D_GLIBCXX_USE_CXX11_ABI=1", "-DTORCH_API_INCLUDE_EXTENSION_H",  # as every torch since 2.7
        *(f"-I{d}" for d in includes), *(f"-isystem{d}" for d in system),
        source, "-o", output,
        f"-L{root / 'lib'}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10",
        # torch's own: some compilers link the archive by themselves, and streams of two libstdc++ in a process crash.
        "-l:libstdc++.so.6",
    ]  # fmt: skip


def compile_to(output: Path) -> Path:
    """Compiles the extension to the file output, or raises ImportError with the compiler's errors."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as work:
        # One translation unit: torch's headers are what takes the time.
        whole = Path(work) / "shunt_torch.cpp"
        whole.write_text("".join(f'#include "{path.name}"\n' for path in sorted(SOURCES.glob("*.cpp"))))
        made = Path(work) / output.name
        ran = subprocess.run(command(str(whole), str(made)), capture_output=True, text=True)
        if ran.returncode:
            raise ImportError(f"shunt.torch cannot be compiled for this torch:\n{_errors(ran.stderr)}")
        if ran.stderr:
            print(ran.stderr, file=sys.stderr)
        os.replace(made, output)
    return output


def _errors(text: str) -> str:
    """The lines of a compiler's output that say what is wrong."""
    lines = [line for line in text.splitlines() if "error" in line]
    return "\n".join(lines[:20]) or text[-2000:]


def cached() -> Path:
    """The extension in the cache; compiles it first if need be, once among all processes."""
    path = cache()
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return path if path.exists() else compile_to(path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shunt.torch.build", description=__doc__)
    parser.add_argument("--output", type=Path, help="folder for the extension; default: the cache")
    folder = parser.parse_args().output
    print(compile_to(folder / file_name()) if folder else cached())


if __name__ == "__main__":
    main()
