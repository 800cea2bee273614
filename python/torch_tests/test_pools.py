"""The registration of torch's pools, over a library that only notes its calls."""

import contextlib

import pytest
import torch

import shunt.torch  # noqa: F401  it adds the methods to the backend
from shunt import _library
from shunt._tables import Code
from shunt.torch import _memory

HANDLE = 7


class Backend:
    def communicator_handle(self, device):
        return HANDLE


class Pool:
    id = 0, 1


class Library:
    def __init__(self, **statuses):
        self.statuses, self.ended = statuses, []

    def shunt_deregister(self, handle, address):
        self.ended.append(address)
        return self.statuses.get(f"at{address}", Code.OK)


class Failed(Exception):
    pass


def check(status):
    if status:
        raise Failed(status)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("code", [Code.INVALID_ARGUMENT, Code.DEVICE])
def test_every_segment_is_deregistered(monkeypatch, at, code):
    """Also behind one that the pool has freed, which Shunt knows no more, or whose end fails."""
    library = Library(**{f"at{at}": code})
    monkeypatch.setattr(_library, "library", lambda: library)
    monkeypatch.setattr(_library, "check", check)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setitem(_memory._registered, (HANDLE, Pool.id), [1, 2, 3])
    with contextlib.nullcontext() if code == Code.INVALID_ARGUMENT else pytest.raises(Failed):
        _memory._deregister_mem_pool(Backend(), Pool())
    assert library.ended == [1, 2, 3]
