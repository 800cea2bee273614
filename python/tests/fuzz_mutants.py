"""Broken libraries for test_torchfuzz.py: MUTANT names one, of which rank 1 is after a few calls."""

import ctypes
import os
import signal
import time

import numpy

#: Calls of rank 1 that are right.
AFTER = 20


def install(shunt, rank):
    kind = shunt.Communicator
    wrong = globals()[os.environ["MUTANT"]]
    for name in ("all_reduce", "all_gather", "all_to_all_v", "reduce_scatter"):
        setattr(kind, name, broken(getattr(kind, name), wrong, rank))


def broken(call, wrong, rank):
    def method(comm, *buffers, **given):
        method.calls += 1
        if wrong is everybody_hangs and method.calls >= AFTER:
            time.sleep(1000)
        if rank == 1 and method.calls >= AFTER:
            return wrong(lambda: call(comm, *buffers, **given), *[b for b in buffers if isinstance(b, numpy.ndarray)])
        return call(comm, *buffers, **given)

    method.calls = 0
    return method


def flip(address):
    byte = ctypes.c_uint8.from_address(address)
    byte.value ^= 1


def a_result_has_a_wrong_bit(call, *buffers):
    result = call()
    if result.nbytes:
        flip(result.ctypes.data + result.nbytes // 2)
    return result


def a_byte_behind_is_written(call, *buffers):
    result = call()
    flip(result.ctypes.data + result.nbytes)
    return result


def a_byte_before_is_written(call, *buffers):
    result = call()
    if result.ctypes.data > result.base.ctypes.data:
        flip(result.ctypes.data - 1)
    return result


def the_send_buffer_is_changed(call, send, *others):
    result = call()
    if send.nbytes:
        flip(send.ctypes.data)
    return result


def an_old_result_stays(call, *buffers):
    old = buffers[-1].copy()
    result = call()
    result[...] = old
    return result


def it_raises(call, *buffers):
    raise ZeroDivisionError("of the mutant")


def it_crashes(call, *buffers):
    os.kill(os.getpid(), signal.SIGSEGV)


def it_exits(call, *buffers):
    os._exit(3)


def it_hangs(call, *buffers):
    time.sleep(1000)


def everybody_hangs(call, *buffers):
    raise AssertionError("not reached")


kept: list = []


def it_leaks_memory(call, *buffers):
    kept.append(numpy.ones(1 << 22, "uint8"))
    return call()


def it_leaks_files(call, *buffers):
    kept.append(os.open("/dev/null", os.O_RDONLY))
    return call()
