"""Options and the one pool of processes."""

import pytest

from torch_tests.pool import Lacking, Pool, Setting


def pytest_addoption(parser):
    group = parser.getgroup("torch")
    group.addoption("--device", default="cpu", choices=["cpu", "cuda"], help="where tensors are")
    group.addoption("--backend", default="shunt", help="the backend that is tested")
    group.addoption("--truth", default=None, help="the backend whose results are right: gloo, on GPUs nccl")
    group.addoption("--worlds", default="2,3,4", help="numbers of ranks")
    group.addoption("--slow", action="store_true", help="run each case in all its worlds, and those that CI leaves out")


def setting(config) -> Setting:
    device = config.getoption("--device")
    return Setting(device, config.getoption("--backend"),
                   config.getoption("--truth") or {"cpu": "gloo", "cuda": "nccl"}[device])


@pytest.fixture(scope="session")
def pool(request):
    pool = Pool(setting(request.config))
    yield pool
    pool.close()


@pytest.fixture
def run(pool):
    """run(case, size): a case that every rank skipped is skipped here, by the same reason."""
    def run(case, size, **arguments):
        try:
            pool.run(case, size, **arguments)
        except Lacking as lacking:
            pytest.skip(str(lacking))
    return run
