"""Errors name the call, the rank and the argument, and count in the caller's elements."""

import types

import numpy as np
import pytest

from shunt import InvalidArgumentError, _operations

f4 = np.zeros(4, "float32")


class Sized:
    """Has a length, and the given entries; none is had by its number."""

    def __init__(self, *entries):
        self.entries = entries

    def __len__(self):
        return 1

    def __iter__(self):
        return iter(self.entries)


class Unsaid:
    """Does not say where it lies."""

    def __dlpack_device__(self):
        raise BufferError("it is nowhere")

    __dlpack__ = __dlpack_device__


HUGE = 10**400

#: What is called with a communicator of one rank, and how the text begins.
CALLS = {
    "average": (lambda c: c.all_reduce(HUGE, op="avg"), f"all_reduce on rank 0: {HUGE} does not fit 64 bits"),
    "scaled": (lambda c: c.all_reduce(HUGE, op="premul_sum", scalar=1), f"all_reduce on rank 0: {HUGE} does not fit"),
    "count": (lambda c: c.all_gather_v(f4, f4, Sized(0.5)), "all_gather_v on rank 0: counts: entry 0 is 0.5, want"),
    "counts": (lambda c: c.all_gather_v(f4, f4, Sized(1, 2, 3)), "all_gather_v on rank 0: there are 3 counts for"),
    "no counts": (lambda c: c.all_gather_v(f4, f4, np.array(4)), "all_gather_v on rank 0: counts is array(4), want"),
    "device": (lambda c: c.all_reduce(Unsaid()), "all_reduce on rank 0: send: Unsaid cannot be lent through DLPack"),
    "timeout": (lambda c: c.start("barrier").wait(HUGE), f"wait: timeout is {HUGE}, which is too large"),
    "put": (lambda c: c.window(8).put([1], 0), "put on rank 0: data: list is no buffer"),
    "put offset": (lambda c: c.window(8).put(f4, 0, "x"), "put on rank 0: offset is 'x', want a whole number"),
    "get": (lambda c: c.window(8).get(b"1", 0), "get on rank 0: buffer: bytes is read-only"),
    "signal": (lambda c: c.window(8).signal(1), "signal on rank 0: peer 1 is not a rank"),
    "wait": (lambda c: c.window(8).wait(0, "x"), "wait on rank 0: times is 'x', want a whole number"),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_error_names_its_call(comm, name):
    call, text = CALLS[name]
    with pytest.raises(InvalidArgumentError) as raised:
        call(comm)
    assert str(raised.value).startswith(text)


def test_a_rank_that_waits_for_a_put_hears_why_it_does_not_come(pair):
    noted = []
    pair[0]._note_refusal = lambda call, error: noted.append((call, str(error)))
    for call in (_operations.put, _operations.get):
        with pytest.raises(InvalidArgumentError):
            call(pair[0], 0, [1], 1, 0)
    assert [call for call, _ in noted] == ["put", "get"] and all("list is no buffer" in text for _, text in noted)


@pytest.mark.parametrize("element", ["float32", "complex128", "V12"])
def test_lengths_are_in_elements_of_the_caller(element):
    place = types.SimpleNamespace(on_device=False, rank=0, world=2, _note_refusal=lambda *_: None)
    three, five = np.zeros(3, element), np.zeros(5, element)
    for call, text in ((_operations.all_gather, "recv has 5 elements, want 6: world 2 times the 3 of send"),
                       (_operations.gather, "recv has 5 elements, want 6: world 2 times the 3 of send"),
                       (lambda *a: _operations.scatter(place, five, three),
                        "send has 5 elements, want 6: world 2 times the 3 of recv")):
        with pytest.raises(InvalidArgumentError, match=text):
            call(place, three, five)
