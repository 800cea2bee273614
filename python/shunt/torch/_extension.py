"""Finding and loading the compiled part."""

import importlib.machinery
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import torch  # noqa: F401  the extension's libraries

from . import build


def _fits(prebuilt: Path) -> bool:
    """Whether there is a file of this torch. All releases of a minor version have one ABI; that of any other torch, as
    in NVIDIA's containers, is its own."""
    if not os.path.exists(prebuilt):
        return False
    version = build.torch_version()
    return bool(re.fullmatch(r"\d+\.\d+\.\d+(\+[\w.]+)?", version)) or (
        f" for torch {version}\0".encode() in prebuilt.read_bytes())


def _load() -> Any:
    prebuilt = Path(__file__).parent / "lib" / build.file_name()
    fits = _fits(prebuilt)
    path = prebuilt if fits else build.cached()
    name = __package__ + "._C"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError as error:
        if fits:
            raise
        raise ImportError(f"{error}; it was compiled into {path.parent}: if programs may not run there (noexec), set "
                          "SHUNT_TORCH_CACHE to another folder") from None  # fmt: skip
    loader.exec_module(module)
    built = ".".join(module.torch_version.split(".")[:2])
    if built != build.torch_minor():
        raise ImportError(f"{path} was built for torch {built}; this is torch {build.torch_version()}: remove it")
    sys.modules[name] = module
    return module


C: Any = _load()
