"""The cases: functions that every rank of a world runs, found by name in the modules of torch_tests.cases."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable

#: Sizes of the worlds that a case runs in unless it names others.
WORLDS = (2, 3, 4)


class Skip(Exception):
    """What a case raises on every rank when the backend, the truth or the device lacks what it tests."""


@dataclasses.dataclass(frozen=True)
class Case:
    module: str
    name: str
    function: Callable
    values: tuple = ()
    worlds: tuple[int, ...] = WORLDS
    seconds: float = 30
    slow: bool = False
    breaks: bool = False
    dies: bool = False

    def runs(self, size: int, slow: bool) -> bool:
        """Whether it runs in a world of this size: with slow in each of its own, else in one, of 3 ranks where it
        can."""
        if slow:
            return size in self.worlds
        return not self.slow and size == (3 if 3 in self.worlds else self.worlds[0])

    @property
    def key(self) -> str:
        return "/".join([f"{self.module}.{self.name}", *(str(v).removeprefix("torch.") for v in self.values)])


_found: dict[str, Case] = {}


def case(*, each: tuple | list = ((),), worlds: tuple[int, ...] = WORLDS, seconds: float = 30, slow: bool = False,
         breaks: bool = False, dies: bool = False):
    """Registers f(w, *values) for each of the tuples of values.

    seconds is its deadline; slow ones run only with --slow; breaks says that the
    processes are of no use after it (a communicator is aborted); dies, that the last rank
    ends in it and does not reply.
    """
    def register(function: Callable) -> Callable:
        module = function.__module__.rpartition(".")[2]
        for values in each:
            values = values if isinstance(values, tuple) else (values,)
            one = Case(module, function.__name__, function, values, worlds, seconds, slow, breaks or dies, dies)
            if one.key in _found:
                raise ValueError(f"two cases are named {one.key}")
            _found[one.key] = one
        return function

    return register


def cases() -> dict[str, Case]:
    """Every case by its key, in the order of the files."""
    if not _found:
        from torch_tests import cases as package
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return _found
