"""Checks that a wheel keeps the promise of its manylinux tag, and prints what it carries: wheel_check.py FILE...

Of each ELF file: the versions of symbols that it needs from glibc, libstdc++ and libgcc, and the libraries that it
needs, against what the tag allows (PEP 600 and auditwheel's policy of the same name); that it has no RUNPATH of the
machine that built it; and that it is found by the name that programs which are linked with it look for. auditwheel
itself refuses extensions of torch, since torch's libraries are in no wheel but torch's.

Of every file: that it names no folder of the machine that built it.

Of the extensions of shunt.torch: that each is for the torch and CPython that its name says, and that all were built
from the same sources.
"""

import contextlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

#: The newest version of each name that a tag allows.
ALLOWED = {"manylinux_2_28": {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}}

LIBRARIES = re.compile(r"lib(c|m|dl|pthread|rt|resolv|gcc_s|stdc\+\+)\.so\.\d+|ld-linux-[\w-]+\.so\.\d")
#: What the process has loaded before the extension of shunt.torch.
TORCHS = re.compile(r"lib(torch|torch_cpu|torch_python|c10)\.so")

#: The name of an extension of shunt.torch, and what is in it: once for all versions of CPython, once for its own.
EXTENSION = re.compile(r"shunt/torch/lib/shunt_torch-(\d+\.\d+)-cpython-3(\d+)-(\w+)-linux-gnu\.so")
BUILT = re.compile(rb"shunt\.torch ([0-9a-f]{16}) for torch (\d+\.\d+)[\w.+]*(?: and CPython (\d+\.\d+))?\0")

MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}


def own_folders() -> list[str]:
    """What the names of the folders begin with that only the machine that builds the wheel has."""
    found = [Path(__file__).resolve().parents[1]]
    with contextlib.suppress(RuntimeError):  # no HOME, and a user whom the system does not know
        found.append(Path.home())
    return [f"{folder}/" for folder in found if len(folder.parts) > 1]  # every machine has /


FOLDERS = own_folders()

#: PyPI takes files of up to 100 MB.
LARGEST = 100_000_000


def problems_of(name: str, dump: str, tag: str, machine: str) -> list[str]:
    """What is wrong with one ELF file, by the text that `readelf -hdSVW` prints of it."""
    found = []
    if MACHINES[machine] not in dump:
        found.append(f"{name} is not for {machine}")
    if " .debug_" in dump:
        found.append(f"{name} has debug information, which names files of the machine that built it")
    needs = dump[dump.index("Version needs section") :] if "Version needs section" in dump else ""
    for kind, text in re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_(\w[\w.]*)", needs):
        if not text[0].isdigit():
            found += [f"{name} needs {kind}_{text}"] if text == "PRIVATE" else []
        elif tuple(map(int, text.split("."))) > ALLOWED[tag][kind]:
            found.append(f"{name} needs {kind}_{text}; {tag} has {kind}_{'.'.join(map(str, ALLOWED[tag][kind]))} at "
                         "most")
    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", dump):
        if not LIBRARIES.fullmatch(library) and not (name.startswith("shunt/torch/") and TORCHS.fullmatch(library)):
            found.append(f"{name} needs {library}, which the wheel does not carry")
    for soname in re.findall(r"\(SONAME\).*\[(.*)\]", dump):
        if soname != name.rpartition("/")[2]:
            found.append(f"{name} has another name than {soname}, by which programs linked with it look for it")
    for kind, folders in re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", dump):
        if not all(re.fullmatch(r"\$ORIGIN(/.*)?|\$\{ORIGIN\}(/.*)?", folder) for folder in folders.split(":")):
            found.append(f"{name} has {kind} {folders}, a folder of the machine that built it; want none, or $ORIGIN")
    return found


def extension_problems(files: dict[str, bytes], machine: str) -> list[str]:
    """What is wrong with the extensions of shunt.torch, by their names in the wheel. Prints which there are."""
    found = []
    made: dict[str, list[str]] = {}
    sources: dict[str, str] = {}
    for name, data in files.items():
        named = EXTENSION.fullmatch(name)
        if named is None:
            found.append(f"{name} has another name than shunt_torch-TORCH-cpython-VERSION-{machine}-linux-gnu.so, by "
                         "which it is looked up")
            continue
        torch, minor = named[1], int(named[2])
        if named[3] != machine:
            found.append(f"{name} is not for {machine}")
        built = [[part.decode() for part in parts] for parts in BUILT.findall(data)]
        if sorted(python for _, _, python in built) != ["", f"3.{minor}"] or {t for _, t, _ in built} != {torch}:
            found.append(f"{name} was built for {built}; its name says torch {torch} and CPython 3.{minor}")
        for source, _, _ in built:
            sources.setdefault(source, name)
        made.setdefault(torch, []).append(f"3.{minor}")
    if len(sources) > 1:
        found.append("extensions were built from different sources: "
                     f"{', '.join(f'{name} from {s}' for s, name in sources.items())}")
    minors = {minor for of_torch in made.values() for minor in of_torch}
    for torch in sorted(made, key=numbers):
        have = sorted(made[torch], key=numbers)
        lacks = sorted(minors.difference(have), key=numbers)
        print(f"  shunt.torch for torch {torch}: CPython {', '.join(have)}"
              + (f"; not {', '.join(lacks)}" if lacks else ""))
    return found


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def check(wheel: Path) -> list[str]:
    """What is wrong with a wheel. Prints its content."""
    named = re.fullmatch(r".*-(manylinux_\d+_\d+)_(\w+)\.whl", wheel.name)
    if named is None or named[1] not in ALLOWED or named[2] not in MACHINES:
        return [f"{wheel.name} has another tag than {', '.join(ALLOWED)}"]
    found = []
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.1f} MB")
    if size > LARGEST:
        found.append(f"{wheel.name} has {size} bytes; PyPI takes {LARGEST}")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        elves = 0
        extensions = {}
        for entry in archive.infolist():
            data = archive.read(entry)
            if entry.file_size > 100_000:
                print(f"  {entry.filename}: {entry.file_size / 1e6:.1f} MB, packed {entry.compress_size / 1e6:.1f} MB")
            found += [f"{entry.filename} names {folder}, a folder of the machine that built it"
                      for folder in FOLDERS if re.search(rb"(?<![\w.-])" + re.escape(folder.encode()), data)]
            if not data.startswith(b"\x7fELF"):
                continue
            elves += 1
            if entry.filename.startswith("shunt/torch/"):
                extensions[entry.filename] = data
            file = Path(folder, "elf")
            file.write_bytes(data)
            dump = subprocess.run(["readelf", "-hdSVW", file], check=True, capture_output=True, text=True).stdout
            found += problems_of(entry.filename, dump, named[1], named[2])
            if "/bin/" in entry.filename and not entry.external_attr >> 16 & 0o111:
                found.append(f"{entry.filename} is not executable")
        found += extension_problems(extensions, named[2])
    if not elves:
        found.append(f"{wheel.name} carries no ELF file")
    return found


def main() -> None:
    found = [problem for name in sys.argv[1:] for problem in check(Path(name))]
    if found or not sys.argv[1:]:
        raise SystemExit("\n".join(found) or __doc__)


if __name__ == "__main__":
    main()
