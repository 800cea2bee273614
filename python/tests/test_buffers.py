"""Buffers of the standard library: which are taken, what is said of the others, and that none moves or goes while a
call waits."""

import array
import ctypes
import mmap
import os
import re
import tempfile
import threading
from multiprocessing import shared_memory

import numpy as np
import pytest

import shunt
from shunt import _buffers


class Pair(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int32), ("b", ctypes.c_float)]


class Either(ctypes.Union):
    _fields_ = [("a", ctypes.c_int32), ("b", ctypes.c_float)]


def released():
    view = memoryview(bytearray(8))
    view.release()
    return view


def unmapped():
    memory = mmap.mmap(-1, 64)
    memory.close()
    return memory


def of_a_file(access):
    with tempfile.TemporaryFile() as file:
        file.write(bytes(4096))
        file.flush()
        return mmap.mmap(file.fileno(), 4096, access=access)


def cast(code, shape=None, room=16):
    view = memoryview(bytearray(room))
    return view.cast(code) if shape is None else view.cast("B").cast(code, shape)


NOT_OURS = "is none of Shunt's dtypes"

#: What is made, and what all_reduce says of it; None: it is taken.
BUFFERS = {
    **{f"array of {code}": (lambda code=code: array.array(code, [1, 2]), None) for code in "bBiIlLqQfd"},
    **{f"array of {code}": (lambda code=code: array.array(code, [1, 2]), NOT_OURS) for code in "hH"},
    "empty array": (lambda: array.array("d"), None),
    "bytes": (lambda: bytes(8), "bytes is read-only"),
    "bytearray": (lambda: bytearray(8), None),
    "empty bytearray": (lambda: bytearray(), None),
    "view": (lambda: cast("d"), None),
    "view of two dimensions": (lambda: cast("f", (2, 2)), None),
    "view of none": (lambda: cast("d", (), 8), None),
    "part of a view": (lambda: cast("i")[1:3], None),
    "strided view": (lambda: cast("i")[::2], "not C-contiguous"),
    "reversed view": (lambda: cast("i")[::-1], "not C-contiguous"),
    "strided view of one": (lambda: cast("i")[0:1:2], None),
    "strided view of none": (lambda: cast("i")[4::2], None),
    "read-only view": (lambda: cast("d").toreadonly(), "read-only"),
    "view of bool": (lambda: cast("?"), NOT_OURS),
    "view of char": (lambda: cast("c"), NOT_OURS),
    "released view": (released, "memoryview lends no memory: operation forbidden on released memoryview"),
    "mapping": (lambda: mmap.mmap(-1, 64), None),
    "mapping of a file": (lambda: of_a_file(mmap.ACCESS_COPY), None),
    "read-only mapping": (lambda: of_a_file(mmap.ACCESS_READ), "read-only"),
    "closed mapping": (unmapped, "mmap lends no memory: mmap closed"),
    "ctypes array": (lambda: (ctypes.c_double * 2)(), None),
    "ctypes array of two dimensions": (lambda: ((ctypes.c_float * 2) * 3)(), None),
    "ctypes array of none": (lambda: (ctypes.c_double * 0)(), None),
    "ctypes number": (lambda: ctypes.c_int64(7), None),
    "ctypes array of foreign order": (lambda: (ctypes.c_int32.__ctype_be__ * 4)(), "foreign byte order"),
    "ctypes bool": (lambda: (ctypes.c_bool * 4)(), NOT_OURS),
    "ctypes char": (lambda: ctypes.create_string_buffer(8), NOT_OURS),
    "ctypes long double": (lambda: (ctypes.c_longdouble * 4)(), NOT_OURS),
    "ctypes pointer": (lambda: (ctypes.c_void_p * 2)(), NOT_OURS),
    "ctypes structure": (lambda: Pair(), NOT_OURS),
    "ctypes structures": (lambda: (Pair * 2)(), NOT_OURS),
    "ctypes union": (lambda: Either(b=1.0), NOT_OURS),
    "ctypes unions": (lambda: (Either * 2)(), NOT_OURS),
    "memory of a file in numpy": (lambda: np.memmap(tempfile.TemporaryFile(), "f4", "w+", shape=(4,)), None),
    "generator": (lambda: (i for i in ()), "generator is no buffer"),
    "type": (lambda: int, "type is no buffer"),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_every_kind_of_buffer(comm, kind):
    make, refusal = BUFFERS[kind]
    for what, call in (("send", lambda b: comm.all_reduce(b)), ("send", lambda b: comm.start("all_reduce", b).wait()),
                       ("recv", lambda b: comm.all_reduce(np.zeros(4), b))):
        given = make()
        if refusal is None and what == "send":
            before = bytes(memoryview(given).cast("B")) if memoryview(given).nbytes else b""
            assert call(given) is given
            assert (bytes(memoryview(given).cast("B")) if before else b"") == before
        elif refusal is not None:
            with pytest.raises(shunt.InvalidArgumentError) as refused:
                call(given)
            assert str(refused.value).startswith(f"all_reduce on rank 0: {what}: ") and refusal in str(refused.value)


@pytest.mark.parametrize("make", [released, unmapped], ids=["released view", "closed mapping"])
def test_what_lends_no_memory_is_named_by_every_call(comm, make):
    with comm.window(64) as window:
        for call in (lambda: comm.broadcast(make()), lambda: comm.send(make(), 0), lambda: window.put(make(), 0),
                     lambda: comm.register(make()), lambda: comm.broadcast(make(), dtype="uint8"),
                     lambda: comm.all_gather(make(), bytearray(8))):
            with pytest.raises(shunt.InvalidArgumentError, match="lends no memory"):
                call()


def test_what_a_union_holds_must_be_said(comm):
    union = Either(b=1.5)
    assert comm.all_reduce(union, dtype="float32") is union and union.b == 1.5
    with pytest.raises(shunt.InvalidArgumentError, match="cannot hold float64"):
        comm.all_reduce(union, dtype="float64")


def shared(size):
    memory = shared_memory.SharedMemory(create=True, size=size)
    memory.unlink()
    return memory


#: A buffer of 64 bytes, its owner, and what would take the memory from below it.
MOVING = {
    "bytearray": (lambda: bytearray(64), lambda owner: owner, lambda owner: owner.extend(b"more" * 1000)),
    "array": (lambda: array.array("d", [0.0] * 8), lambda owner: owner, lambda owner: owner.append(1.0)),
    "mapping": (lambda: mmap.mmap(-1, 64), lambda owner: owner, lambda owner: owner.close()),
    "view": (lambda: bytearray(64), lambda owner: memoryview(owner).cast("d"), lambda owner: owner.clear()),
    "shared memory": (lambda: shared(64), lambda owner: owner.buf[:64], lambda owner: owner.close()),
}


@pytest.mark.parametrize("kind", MOVING)
@pytest.mark.parametrize("started", [False, True], ids=["blocking", "started"])
def test_memory_stays_while_a_call_waits(pair, kind, started):
    make, buffer_of, take = MOVING[kind]
    owner = make()
    buffer = buffer_of(owner)
    sent = np.arange(8.0) if memoryview(buffer).itemsize == 8 else np.arange(64, dtype="u1")
    work = pair[0].start("recv", buffer, 1) if started else None
    thread = threading.Thread(target=work.wait if work else pair[0].recv, args=() if work else (buffer, 1))
    thread.start()
    while not pair[0].records() or pair[0].records()[-1]["state"] != "running":
        os.sched_yield()
    with pytest.raises(BufferError):
        take(owner)
    pair[1].send(sent, 0)
    thread.join()
    assert bytes(memoryview(buffer).cast("B")) == sent.tobytes()
    del buffer, work, thread
    take(owner)


PAIR = [("a", "i4"), ("b", "f4")]


@pytest.mark.parametrize("mine, theirs", [
    (np.zeros(2, PAIR), np.zeros(2, np.dtype(PAIR, align=True))),
    (np.zeros(2, np.dtype(PAIR, align=True)), np.zeros(2, PAIR).view(np.recarray)),
    (np.zeros(2, "int16"), array.array("h", [1, 1])),
    (memoryview(np.zeros(2, "uint16")), np.zeros(2, "uint16")),
    (np.zeros(2, "bool"), memoryview(np.ones(2, "bool"))),
    (memoryview(np.zeros(2, "complex128")), np.ones(2, "complex128")),
    (memoryview(np.zeros(2, "complex64")), np.ones(2, "complex64")),
    (np.zeros(2, [("a", "i4")]), np.zeros(2, np.dtype([("a", "i4")], align=True))),
])
def test_equal_types_are_equal_whatever_their_texts(comm, mine, theirs):
    for send, recv in ((mine, theirs), (theirs, mine)):
        _buffers._moved_dtypes.clear()
        comm.all_gather(send, recv)
        assert recv.tobytes() == send.tobytes()


@pytest.mark.parametrize("dtype", ["bool", "int16", "complex64", "complex128", "datetime64[s]", "longdouble", "S1",
                                   "S2", "S4", "S8", "S16", "U1", "U2", "U4", "V8", "u1,u1", "u1,u1,u1,u1", "u2,u2",
                                   PAIR, np.dtype(PAIR, align=True)])
def test_what_numpy_calls_aligned_moves(comm, dtype):
    dtype, memory = np.dtype(dtype), np.arange(100, dtype="u1")
    sent = memory[dtype.alignment:][:2 * dtype.itemsize].view(dtype)
    came = np.zeros(100, "u1")[dtype.alignment:][:2 * dtype.itemsize].view(dtype)
    assert sent.flags.aligned and came.flags.aligned
    comm.all_gather(sent, came)
    comm.broadcast(sent)
    assert came.tobytes() == sent.tobytes() == memory.tobytes()[dtype.alignment:][:2 * dtype.itemsize]


@pytest.mark.parametrize("name", ["bool", "int16", "uint16", "complex64", "complex128"])
def test_a_type_that_only_moves_has_a_name(comm, name):
    own = np.arange(4).astype(name)
    raw = own.view("u1")
    for dtype in (name, name.upper(), np.dtype(name), np.dtype(name).type):
        for sent, came in ((own, np.zeros_like(own)), (raw, np.zeros_like(raw)), (bytes(raw), bytearray(len(raw)))):
            comm.all_gather(sent, came, dtype=dtype)
            assert bytes(came) == bytes(sent)
    came = np.zeros(5, name)
    comm.all_gather_v(raw, came.view("u1"), [4], [1], dtype=name)  # counts are of elements of that type
    assert (came[1:] == own).all() and came[0] == 0
    with pytest.raises(shunt.InvalidArgumentError, match="elements of 8 bytes .*cannot hold" if own.itemsize != 8 else
                       "elements of 4 bytes .*cannot hold"):
        comm.broadcast(np.zeros(4, "f4" if own.itemsize == 8 else "f8"), dtype=name)
    with pytest.raises(shunt.InvalidArgumentError, match="unknown dtype"):
        comm.all_reduce(own, dtype=name)
    with pytest.raises(shunt.InvalidArgumentError, match="unknown dtype"):
        comm.broadcast(own, dtype="boolean")


@pytest.mark.parametrize("send, recv, told", [
    (np.zeros(2, "int16"), array.array("H", [1, 1]), "send holds int16, recv holds uint16"),
    (np.zeros(2, "V4"), np.zeros(2, "uint32"), "send holds |V4, recv holds uint32"),
    (np.zeros(2, PAIR), np.zeros(2, "V8"), "recv holds |V8"),
])
def test_types_that_differ_are_refused(comm, send, recv, told):
    with pytest.raises(shunt.InvalidArgumentError, match=re.escape(told)):
        comm.all_gather(send, recv)


def test_a_field_may_be_called_mask(comm):
    records = np.ones(2, [("mask", "i4"), ("x", "f4")]).view(np.recarray)
    assert comm.broadcast(records) is records
