"""Compiles _calls.c, puts libshunt.so into the wheel and tags it: any Python 3, this
platform, the glibc that both need. Everything else is in pyproject.toml.

SHUNT_LIBRARY names the library; capi/build.sh builds one. Nothing is written into
the source tree but ../build and, for editable installs and `build_ext --inplace`,
shunt/_calls.abi3.so.
"""

import os
import platform
import re
import shutil
import sys
import sysconfig

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(os.path.dirname(HERE), "build", "python")


def library():
    path = os.environ.get("SHUNT_LIBRARY")
    if not path or not os.path.isfile(path):
        raise SystemExit(f"SHUNT_LIBRARY is {path!r}; want the path of libshunt.so, which capi/build.sh builds")
    return path


def needed_glibc(path):
    """The newest GLIBC_x.y version that the library's symbols name."""
    with open(path, "rb") as f:
        versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", f.read())
    return max((int(major), int(minor)) for major, minor in versions)


class WithLibrary(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:
            into = os.path.join(self.build_lib, "shunt", "lib")
            os.makedirs(into, exist_ok=True)
            shutil.copy(library(), os.path.join(into, "libshunt.so"))
            for name in ("LICENSE", "THIRD_PARTY_NOTICES"):  # of what is linked into it
                shutil.copy(os.path.join(os.path.dirname(HERE), name), into)


class Wheel(bdist_wheel):
    def get_tag(self):
        built = self.get_finalized_command("build_ext").get_outputs()
        major, minor = max((2, 17), *map(needed_glibc, [library(), *built]))
        return "py3", "none", f"manylinux_{major}_{minor}_{platform.machine()}"


class Binary(Distribution):
    """A distribution that belongs to a platform."""

    def has_ext_modules(self):
        return True


# Built for the stable ABI of 3.11, which free-threaded interpreters do not have. Where
# it is missing calls go through ctypes, so the wheel is still for every Python 3.
calls = Extension("shunt._calls", ["shunt/_calls.c"], extra_compile_args=["-O2", "-Wall", "-Wextra"], py_limited_api=True)
if sys.version_info < (3, 11) or sysconfig.get_config_var("Py_GIL_DISABLED"):
    print("shunt._calls is left out: it is built with CPython from 3.11 on, with the GIL", file=sys.stderr)
    calls = None

os.makedirs(BUILD, exist_ok=True)
setup(
    ext_modules=[calls] if calls else [],
    cmdclass={"build_py": WithLibrary, "bdist_wheel": Wheel},
    distclass=Binary,
    options={"build": {"build_base": BUILD}, "egg_info": {"egg_base": BUILD}},
)
