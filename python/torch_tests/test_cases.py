"""Every case: in one world, and with --slow in worlds of 2, 3 and 4 ranks."""

from torch_tests.pool import Failure
from torch_tests.registry import cases


def pytest_generate_tests(metafunc):
    if {"key", "size"} <= set(metafunc.fixturenames):
        worlds = [int(n) for n in metafunc.config.getoption("--worlds").split(",")]
        slow = metafunc.config.getoption("--slow")
        # A world is made once: all its cases follow each other.
        chosen = [(size, key) for size in worlds for key, case in cases().items() if case.runs(size, slow)]
        metafunc.parametrize("size, key", chosen, ids=[f"{size}-{key}" for size, key in chosen])


def test_case(run, size, key):
    try:
        run(cases()[key], size)
    except Failure as failure:
        raise AssertionError(str(failure)) from None
