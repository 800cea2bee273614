"""Finding and loading the compiled part."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch  # noqa: F401  the extension's libraries

from . import build


def _load() -> Any:
    prebuilt = Path(__file__).parent / "lib" / build.file_name()
    path = str(prebuilt if prebuilt.exists() else build.cached())
    name = __package__ + "._C"
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    built = ".".join(module.torch_version.split(".")[:2])
    if built != build.torch_minor():
        raise ImportError(f"{path} was built for torch {built}; this is torch {build.torch_version()}: remove it")
    sys.modules[name] = module
    return module


C: Any = _load()
