"""Puts what scripts/portable.sh has built, the headers and the licenses into the wheel, compiles _calls.c and
tags it: any Python 3, PORTABLE_ARCH (unset: this machine), glibc 2.28 or newer. Everything else is in pyproject.toml.

Nothing is written into the source tree but ../build and, for editable installs and `build_ext --inplace`,
shunt/_calls.abi3.so. scripts/wheel.sh builds the wheel; python/wheel_check.py holds it to its tag.
"""

import os
import platform
import re
import shutil
import sys
import sysconfig

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.path.join(ROOT, "build", "python")

MACHINE = os.environ.get("PORTABLE_ARCH") or platform.machine()

#: bin/ and lib/, as scripts/portable.sh builds them, and extensions of shunt.torch.
PORTABLE = os.path.join(ROOT, "build", f"portable-{MACHINE}")

HEADERS = ["capi/include/shunt.h", "plugin/shunt_tables.h", "plugin/shunt_transport.h", "plugin/shunt_ring.h"]


class WithLibrary(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            return
        if not os.path.isfile(os.path.join(PORTABLE, "lib", "libshunt.so")):
            raise SystemExit(f"{PORTABLE} has no lib/libshunt.so; build the wheel with `make wheel`")
        package = os.path.join(self.build_lib, "shunt")
        for folder in ("bin", "lib", "torch/lib"):
            built = os.path.join(PORTABLE, folder)
            if os.path.isdir(built):
                shutil.copytree(built, os.path.join(package, folder), dirs_exist_ok=True)
        # Linked programs look for the library's SONAME, and a wheel holds no links: -lshunt finds a text of linkers'.
        library = os.path.join(package, "lib", "libshunt.so")
        os.rename(library, library + ".1")
        with open(library, "w") as file:
            file.write("/* For linkers, as in -lshunt. The library is libshunt.so.1. */\nINPUT(libshunt.so.1)\n")
        os.makedirs(os.path.join(package, "include"), exist_ok=True)
        for name in HEADERS:
            shutil.copy(os.path.join(ROOT, name), os.path.join(package, "include"))


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", f"manylinux_2_28_{MACHINE}"


def without_runpath(command: list[str]) -> list[str]:
    """A linker's command line without the options that name folders to search at run time."""
    left = []
    naming = False  # the next word for the linker is such a folder
    words = iter(command)
    for word in words:
        marker, given = "", word
        if word == "-Xlinker":
            marker, given = "-Xlinker", next(words, "")
        elif word.startswith("-Wl,"):
            marker, given = "-Wl,", word[4:]
        elif not naming and not word.startswith("-R"):
            left.append(word)
            continue
        kept = []
        for part in given.split(",") if marker == "-Wl," else [given]:
            if naming:
                naming = False
            elif part in ("-rpath", "--rpath", "-R"):
                naming = True
            elif not re.match(r"--?rpath=|-R", part):
                kept.append(part)
        if kept:
            left += [marker, *kept] if marker == "-Xlinker" else [marker + ",".join(kept)]
    return left


class BuildExt(build_ext):
    """Links without the flags for run time that the interpreter was linked with: an interpreter in a folder of its own
    hands the folder of its libpython on to all extensions, and this one needs no libpython."""

    def build_extensions(self):
        self.compiler.linker_so = without_runpath(self.compiler.linker_so)
        super().build_extensions()


class Binary(Distribution):
    """A distribution that belongs to a platform."""

    def has_ext_modules(self):
        return True


# Built for the stable ABI of 3.11, which free-threaded interpreters do not have. Where
# it is missing calls go through ctypes, so the wheel is still for every Python 3.
calls = Extension("shunt._calls", ["shunt/_calls.c"], extra_compile_args=["-O2", "-Wall", "-Wextra"],
                  extra_link_args=["-s"], py_limited_api=True)
if sys.version_info < (3, 11) or sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("shunt._calls is left out: it is built with CPython from 3.11 on, with the GIL", file=sys.stderr)
    calls = None

os.makedirs(BUILD, exist_ok=True)
if calls and MACHINE != platform.machine():
    # Debian's pyconfig.h includes a file of the processor's. The limited API is the same on both.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    mine = f"/usr/include/{platform.machine()}-linux-gnu/{version}/pyconfig.h"
    folder = os.path.join(BUILD, "include", f"{MACHINE}-linux-gnu", version)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "pyconfig.h"), "w") as file:
        file.write(f'#include "{mine}"\n')
    calls.include_dirs = [os.path.join(BUILD, "include")]
setup(
    ext_modules=[calls] if calls else [],
    cmdclass={"build_py": WithLibrary, "build_ext": BuildExt, "bdist_wheel": Wheel},
    distclass=Binary,
    options={"build": {"build_base": BUILD}, "egg_info": {"egg_base": BUILD}},
)
