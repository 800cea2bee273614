"""Compiles the backend for the running interpreter and its torch: python -m shunt.torch.build --output FOLDER.

Needs g++ (or $CXX) with C++20 (GCC 10, Clang 10 or newer) and Python's headers; no CUDA toolkit and no ninja. Takes
about half a minute. With --headers it compiles for other versions of CPython, of which only the headers are needed.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
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
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "csrc"

#: The sources that include Python.h. The others are the same for every CPython.
OF_PYTHON = ("module.cpp", "python.cpp")

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


@dataclasses.dataclass(frozen=True)
class Python:
    """A version of CPython: the folder of its headers, and the end of its extensions' names."""

    include: Path
    soabi: str


def running() -> Python:
    """The running interpreter."""
    return Python(Path(sysconfig.get_path("include")), sysconfig.get_config_var("SOABI"))


def of_headers(include: Path) -> Python:
    """The CPython with these headers, on the running interpreter's platform."""
    try:
        text = (include / "patchlevel.h").read_text()
        config = (include / "pyconfig.h").read_text()
    except OSError as error:
        raise ImportError(f"shunt.torch cannot be compiled for the CPython of {include}: {error}") from None
    major, minor = (re.search(rf"^#define\s+PY_{part}_VERSION\s+(\d+)", text, re.MULTILINE)
                    for part in ("MAJOR", "MINOR"))
    if major is None or minor is None:
        raise ImportError(f"{include / 'patchlevel.h'} does not say which CPython it is of")
    threads = "t" if re.search(r"^#define\s+Py_GIL_DISABLED\s+1", config, re.MULTILINE) else ""
    platform = running().soabi.split("-", 2)[2]
    return Python(include, f"cpython-{major[1]}{minor[1]}{threads}-{platform}")


def check(python: Python) -> None:
    """Raises ImportError for a CPython that the backend cannot be compiled for."""
    if re.match(r"cpython-\d+t-", python.soabi):
        raise ImportError(f"shunt.torch does not support free-threaded CPython ({python.soabi}); use one with the GIL")
    if not (python.include / "Python.h").exists():
        raise ImportError(f"shunt.torch cannot be compiled: there is no Python.h in {python.include}; install Python's "
                          "headers")


def file_name(python: Python | None = None) -> str:
    """The name of the extension for this interpreter, or another, and torch."""
    return f"shunt_torch-{torch_minor()}-{(python or running()).soabi}.so"


def sources() -> str:
    """A hash of everything that the extension is compiled from, but for torch's and Python's headers."""
    whole = hashlib.sha256()
    for path in [*sorted(SOURCES.glob("*.[ch]pp")), *_headers(), Path(__file__)]:
        whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


def digest() -> str:
    """A hash of everything that the extension is compiled from."""
    return hashlib.sha256(f"{torch_version()} {sources()}".encode()).hexdigest()[:16]


def cache() -> Path:
    """Returns the path of the extension for this interpreter, torch and source, in the cache."""
    if not (root := os.environ.get("SHUNT_TORCH_CACHE")):
        try:
            of_user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        except RuntimeError as error:  # no HOME, and a user whom the system does not know
            raise ImportError(f"shunt.torch has no folder for what it compiles: {str(error).rstrip('.')}; set "
                              "SHUNT_TORCH_CACHE to one") from None  # fmt: skip
        root = of_user / "shunt" / "torch-ext"
    return Path(root) / digest() / file_name()


def _headers() -> list[Path]:
    return [found[0]
            for name in ("shunt.h", "shunt_tables.h") if (found := [d / name for d in HEADERS if (d / name).exists()])]


def compiler() -> list[str]:
    """The command line of the C++ compiler, without arguments."""
    found = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(found[0]) is None:
        raise ImportError(
            f"shunt.torch has no extension for torch {torch_version()} and CPython {sysconfig.get_python_version()}, "
            f"and cannot compile one: there is no {found[0]}; install g++ or set CXX"
        )
    return found


def compile_command(source: Path, output: Path, python: Python | None) -> list[str]:
    """The command line that compiles a source file. Without python there is no Python.h for it."""
    root = torch_root()
    headers = _headers()
    if len(headers) != 2:
        raise ImportError("shunt.torch cannot be compiled: shunt.h or shunt_tables.h is missing; expected them in "
                          f"{HEADERS[0]}")
    includes = [SOURCES, *dict.fromkeys(h.parent for h in headers)]
    system = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include",
              *([python.include] if python else [])]
    return [
        *compiler(), "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra",
        "-D_GLIBCXX_USE_CXX11_ABI=1", "-DTORCH_API_INCLUDE_EXTENSION_H",  # as every torch since 2.7
        f'-DSHUNT_TORCH_SOURCES="{sources()}"',
        *(f"-I{d}" for d in includes), *(f"-isystem{d}" for d in system),
        "-c", str(source), "-o", str(output),
    ]  # fmt: skip


def link_command(objects: list[Path], output: Path) -> list[str]:
    """The command line that links compiled sources."""
    return [
        *compiler(), "-shared", *map(str, objects), "-o", str(output),
        f"-L{torch_root() / 'lib'}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10",
        # torch's own: some compilers link the archive by themselves, and streams of two libstdc++ in a process crash.
        "-l:libstdc++.so.6",
    ]  # fmt: skip


def _run(command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})  # see _errors
    if ran.returncode:
        raise ImportError(f"shunt.torch cannot be compiled for torch {torch_version()}:\n{_errors(ran.stderr)}")
    if ran.stderr:
        print(ran.stderr, file=sys.stderr)


def compile_to(outputs: dict[Path, Python], put: Callable[[Path, Path], None] = os.replace) -> None:
    """Compiles the extension for each CPython, or raises ImportError with the compiler's errors. What is made is put in
    its place by put. All files are in one folder."""
    for python in outputs.values():
        check(python)
    folder = next(iter(outputs)).parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        # Torch's headers are what takes the time, so there are two translation units: one for all, and one for each
        # CPython.
        parts: dict[str, list[str]] = {"all": [], "python": []}
        for path in sorted(SOURCES.glob("*.cpp")):
            parts["python" if path.name in OF_PYTHON else "all"].append(f'#include "{path.name}"\n')
        for part, lines in parts.items():
            Path(work, f"shunt_torch_{part}.cpp").write_text("".join(lines))

        def compiled(part: str, python: Python | None) -> Path:
            made = Path(work, f"{part}-{python.soabi if python else ''}.o")
            _run(compile_command(Path(work, f"shunt_torch_{part}.cpp"), made, python))
            return made

        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            common = pool.submit(compiled, "all", None)
            own = {output: pool.submit(compiled, "python", python) for output, python in outputs.items()}
            try:
                for output, part in own.items():
                    made = Path(work, output.name)
                    _run(link_command([common.result(), part.result()], made))
                    put(made, output)
            finally:
                pool.shutdown(cancel_futures=True)


def _errors(text: str) -> str:
    """The lines of a compiler's output, in English, that say what is wrong. Of a linker it says only that it failed."""
    lines = [line for line in text.splitlines()
             if "error" in line and not re.search("error: (ld returned|linker command failed)", line)]
    return "\n".join(lines[:20]) or text[-2000:]


def _keep(made: Path, path: Path) -> None:
    """Puts a file into the cache. One that another host has put there meanwhile stays: its processes have it mapped,
    and where the folder is shared they would lose what they run."""
    try:
        os.link(made, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        os.replace(made, path)


def cached() -> Path:
    """The extension in the cache; compiles it first if need be, once among all processes."""
    path = cache()
    if os.path.exists(path):  # unlike Path.exists, False where the folder cannot be searched
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.parent / "lock", "w")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ImportError(f"shunt.torch cannot keep what it compiles: {error}; set SHUNT_TORCH_CACHE to a folder that "
                          "can be written") from None  # fmt: skip
    with lock:
        with contextlib.suppress(OSError):  # a file system without locks: several processes may compile it
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            compile_to({path: running()}, _keep)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m shunt.torch.build", description=__doc__)
    parser.add_argument("--output", type=Path, help="folder for the extension; default: the cache")
    parser.add_argument("--headers", type=Path, nargs="+", metavar="FOLDER",
                        help="compile for the versions of CPython that these folders have Python.h of; default: the "
                        "running one")  # fmt: skip
    given = parser.parse_args()
    if given.headers and not given.output:
        parser.error("--headers needs --output")
    if not given.output:
        print(cached())
        return
    outputs = {given.output / file_name(python): python for python in map(of_headers, given.headers or [])}
    outputs = outputs or {given.output / file_name(): running()}
    if len(outputs) < len(given.headers or []):
        parser.error(f"--headers names one version of CPython twice: {', '.join(map(str, given.headers))}")
    compile_to(outputs)
    print(*outputs, sep="\n")


if __name__ == "__main__":
    main()
