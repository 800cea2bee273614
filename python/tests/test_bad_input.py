"""Wrong calls: each raises the right exception with a text that helps."""

import array
import copy
import ctypes
import enum
import io
import pickle
import types

import ml_dtypes
import numpy as np
import pytest

import shunt
from shunt import _buffers, _operations

f4 = np.zeros(4, "float32")
INVALID = shunt.InvalidArgumentError


class Foreign(ctypes.BigEndianStructure):
    _fields_ = [("a", ctypes.c_int)]


# (call, exception, part of its text)
TABLE = [
    # what is no buffer, or not the right kind
    (lambda c: c.all_reduce([1, 2, 3]), INVALID, "list is no buffer"),
    (lambda c: c.all_reduce(None), INVALID, "NoneType is no buffer"),
    (lambda c: c.all_reduce(3.5j), INVALID, "complex is no buffer"),
    (lambda c: c.all_reduce("text"), INVALID, "str is no buffer"),
    (lambda c: c.all_reduce(b"1234"), INVALID, "bytes is read-only"),
    (lambda c: c.all_reduce(np.zeros((4, 4), "float32").T), INVALID, "not C-contiguous"),
    (lambda c: c.all_reduce(np.zeros(8, "float32")[::2]), INVALID, "not C-contiguous"),
    (lambda c: c.all_reduce(memoryview(bytearray(8))[::2]), INVALID, "not C-contiguous"),
    (lambda c: c.all_reduce(np.broadcast_to(np.float32(1), 4)), INVALID, "not C-contiguous"),
    (lambda c: c.all_reduce(f4, frozen(f4)), INVALID, "read-only"),
    (lambda c: c.all_reduce(f4, dtype="float32", recv=frozen(f4)), INVALID, "read-only"),
    (lambda c: c.broadcast(np.zeros((4, 4), "complex128").T), INVALID, "shape (4, 4) and strides (16, 64) is not"),
    (lambda c: c.broadcast(np.zeros(4, "complex128")[::-1]), INVALID, "not C-contiguous"),
    (lambda c: c.recv(np.zeros((4, 4), "longdouble")[:, 1:], 0), INVALID, "not C-contiguous"),
    (lambda c: c.all_gather(f4, np.zeros((4, 4), "complex64").T), INVALID, "not C-contiguous"),
    (lambda c: c.all_gather(np.zeros(2, "complex128"), frozen(np.zeros(2, "complex128"))), INVALID, "read-only"),
    (lambda c: c.broadcast(Column(np.zeros(2, "complex128"))), INVALID, "Column is no buffer"),
    (lambda c: c.all_reduce(memoryview(np.zeros(2, "complex64"))), INVALID, "format 'Zf' is none of Shunt's dtypes"),
    # dtypes
    (lambda c: c.all_reduce(np.zeros(4, "int16")), INVALID, "int16 is none of Shunt's dtypes"),
    (lambda c: c.all_reduce(np.zeros(4, "bool")), INVALID, "bool is none of Shunt's dtypes"),
    (lambda c: c.all_reduce(np.zeros(4, "complex64")), INVALID, "complex64 is none of Shunt's dtypes"),
    (lambda c: c.all_reduce(bytearray(4), dtype=np.dtype(">f4")), INVALID, "dtype >f4 is of foreign byte order"),
    (lambda c: c.all_reduce(memoryview(np.zeros(1, [("a", ">i4")])), dtype="int32"), INVALID, "foreign byte order"),
    (lambda c: c.all_reduce((Foreign * 1)(), dtype="int32"), INVALID, "foreign byte order"),
    (lambda c: c.all_reduce(np.zeros(4, "datetime64[s]")), INVALID, r"datetime64[s] is none of Shunt's dtypes"),
    (lambda c: c.all_reduce(np.zeros(4, "S8")), INVALID, "is none of Shunt's dtypes"),
    (lambda c: c.all_reduce(np.zeros(4, [("a", "f4"), ("b", "f4")])), INVALID,
     "array of [('a', '<f4'), ('b', '<f4')] is none of Shunt's dtypes"),
    (lambda c: c.broadcast(np.zeros(4, [("a", "f4"), ("b", ">f4")])), INVALID, "foreign byte order"),
    (lambda c: c.broadcast(np.zeros(4, "V0")), INVALID, "is none of Shunt's dtypes"),
    (lambda c: c.all_gather(np.zeros(4, "U3"), np.zeros(4, "U2")), INVALID, "send holds <U3, recv holds <U2"),
    (lambda c: c.all_reduce(np.zeros(4, ml_dtypes.float8_e4m3)), INVALID,
     "float8_e4m3 with infinities (ml_dtypes calls Shunt's float8_e4m3fn) is none of Shunt's dtypes"),
    (lambda c: c.all_reduce(np.zeros(4, "u1"), dtype=ml_dtypes.float8_e4m3), INVALID, "unknown dtype <class"),
    (lambda c: c.all_reduce(np.zeros(4, "u1"), dtype=np.dtype(ml_dtypes.float8_e4m3)), INVALID, "unknown dtype dtype("),
    (lambda c: c.all_reduce(bytearray(12), dtype=float), INVALID, "12 bytes are no whole number of float64"),
    (lambda c: c.broadcast(bytearray(24), dtype="complex128", root=0), INVALID,
     "24 bytes are no whole number of pairs of uint64 of 8 bytes"),
    (lambda c: c.all_to_all(bytearray(4), bytearray(4), dtype="complex64"), INVALID,
     "4 bytes are no whole number of pairs"),
    (lambda c: c.all_reduce(bytearray(12), dtype=int), INVALID, "12 bytes are no whole number of int64"),
    (lambda c: c.all_reduce(np.zeros(4, ">f4")), INVALID, "foreign byte order"),
    (lambda c: c.all_reduce(np.zeros(4, ">f4"), dtype="float32"), INVALID, "foreign byte order"),
    (lambda c: c.all_reduce((ctypes.c_double.__ctype_be__ * 4)()), INVALID, "foreign byte order"),
    (lambda c: c.all_reduce((ctypes.c_double.__ctype_be__ * 4)(), dtype="float64"), INVALID, "foreign byte order"),
    (lambda c: c.all_reduce(np.ma.array([1.0, 2], mask=[0, 1])), INVALID, "MaskedArray is a masked array"),
    (lambda c: c.all_reduce(np.ma.array([1.0, 2]), dtype="float64"), INVALID, "MaskedArray is a masked array"),
    (lambda c: c.all_reduce(f4, np.ma.array([1.0, 2])), INVALID, "MaskedArray is a masked array"),
    (lambda c: c.all_reduce(array.array("h", [1])), INVALID, "format 'h' is none of Shunt's dtypes"),
    (lambda c: c.all_reduce(f4, dtype="float12"), INVALID, "unknown dtype 'float12'; known are int8"),
    (lambda c: c.all_reduce(f4, dtype=99), INVALID, "unknown dtype 99"),
    # 8 bytes in numpy, 4 in torch
    (lambda c: c.all_reduce(f4, dtype="float"), INVALID, "unknown dtype 'float'; known are "),
    (lambda c: c.all_reduce(f4, dtype="float64"), INVALID, "elements of 4 bytes"),
    (lambda c: c.all_reduce(bytearray(7), dtype="float32"), INVALID, "7 bytes are no whole number of float32"),
    (lambda c: c.all_reduce(f4, np.zeros(4, "float64")), INVALID, "send holds float32, recv holds float64"),
    # tensors lent through DLPack
    (lambda c: c.all_reduce(Lent(np.zeros((4, 4), "float32").T)), INVALID, "Lent of shape [4, 4] is not contiguous"),
    (lambda c: c.all_reduce(Lent(frozen(f4))), INVALID, "Lent is read-only"),
    (lambda c: c.all_reduce(Lent(np.zeros(4, "int16"))), INVALID, "is none of Shunt's dtypes"),
    (lambda c: c.all_reduce(Lent(np.zeros(4, "complex128"))), INVALID, "is none of Shunt's dtypes"),
    (lambda c: c.all_reduce(Lent(3)), INVALID, "cannot be lent"),
    (lambda c: c.all_reduce(Lent(f4), dtype="float64"), INVALID, "elements of 4 bytes"),
    # lengths
    (lambda c: c.all_reduce(f4, np.zeros(5, "float32")), INVALID, "recv has 5 elements, want 4"),
    (lambda c: c.reduce(f4, np.zeros(5, "float32")), INVALID, "recv has 5 elements, want 4"),
    (lambda c: c.all_gather(f4, np.zeros(5, "float32")), INVALID, "recv has 5 elements, want 4: world 1 times"),
    (lambda c: c.reduce_scatter(np.zeros(5, "float32"), f4), INVALID, "send has 5 elements, want 4"),
    (lambda c: c.all_to_all(f4, np.zeros(3, "float32")), INVALID, "recv has 3 elements"),
    (lambda c: c.gather(f4, np.zeros(3, "float32")), INVALID, "recv has 3 elements"),
    (lambda c: c.scatter(f4, np.zeros(3, "float32")), INVALID, "send has 4 elements"),
    (lambda c: c.gather(f4), INVALID, "recv is needed on the root"),
    (lambda c: c.scatter(None, f4), INVALID, "send is needed on the root"),
    (lambda c: c.gather_v(f4, f4), INVALID, "counts is needed on the root"),
    # counts and displacements
    (lambda c: c.all_gather_v(f4, f4, [4, 4]), INVALID, "2 counts for a world of 1"),
    (lambda c: c.all_gather_v(f4, f4, []), INVALID, "0 counts for a world of 1"),
    (lambda c: c.all_gather_v(f4, f4, [3]), INVALID, "send has 4 elements, want 3: counts[0]"),
    (lambda c: c.all_gather_v(f4, np.zeros(4, "float32"), [4], [1]), INVALID, "reach to 5"),
    (lambda c: c.all_gather_v(f4, f4, [-4]), INVALID, "entry 0 is -4"),
    (lambda c: c.all_gather_v(f4, f4, [2.0]), INVALID, "entry 0 is 2.0"),
    (lambda c: c.all_gather_v(f4, f4, [1 << 63]), INVALID, "want a number of elements"),
    (lambda c: c.all_gather_v(f4, f4, [4], [-1]), INVALID, "displs: entry 0 is -1"),
    (lambda c: c.all_gather_v(f4, f4, [np.array(4.5)]), INVALID, "entry 0 is array(4.5)"),
    (lambda c: c.all_gather_v(f4, f4, (i for i in [4])), INVALID, "want a sequence of 1 numbers"),
    (lambda c: c.all_gather_v(f4, f4, {4}), INVALID, "counts is {4}, want a sequence of 1 numbers"),
    (lambda c: c.all_gather_v(f4, f4, {4: 4}), INVALID, "counts is {4: 4}, want a sequence of 1 numbers"),
    (lambda c: c.all_to_all_v(f4, map(int, "4"), f4, [4]), INVALID, "send_counts is <map object"),
    (lambda c: c.all_to_all_v(f4, 4, f4, [4]), INVALID, "send_counts is 4, want a sequence of 1 numbers"),
    (lambda c: c.all_to_all_v(f4, [5], f4, [4]), INVALID,
     "send has 4 elements, but counts and displacements reach to 5"),
    (lambda c: c.all_to_all_v(f4, [4], f4, [5]), INVALID, "recv has 4 elements"),
    (lambda c: c.all_to_all_v(f4, None, f4, [4]), INVALID, "send_counts is None"),
    (lambda c: c.all_to_all_v(f4, [1], f4, [1], row=0), INVALID, "row is 0, want the number of elements"),
    (lambda c: c.all_to_all_v(f4, [1], f4, [1], row=1.5), INVALID, "row is 1.5, want the number of elements"),
    (lambda c: c.all_to_all_v(f4, [1], f4, [1], row=1 << 63), INVALID, "row is 9223372036854775808"),
    (lambda c: c.all_to_all_v(f4, [2], f4, [2], row=3), INVALID,
     "send has 4 elements, but counts and displacements reach to 6"),
    (lambda c: c.all_to_all_v(f4, [1 << 62], f4, [1], row=4), INVALID, "send_counts: entry 0 is"),
    (lambda c: c.reduce_scatter_v(f4, f4, [4], [4]), INVALID, "reach to 8"),
    (lambda c: c.scatter_v(f4, f4, [9]), INVALID, "recv has 4 elements, want 9"),
    # memory that overlaps
    (lambda c: c.all_reduce(np.zeros(8, "float32")[:4], f4[:0]), INVALID, "recv has 0 elements"),
    (lambda c: overlap(c), INVALID, "overlap"),
    # ranks and ops
    (lambda c: c.broadcast(f4, 1), INVALID, "root 1 is not a rank of a world of 1"),
    (lambda c: c.broadcast(f4, -1), INVALID, "root -1"),
    (lambda c: c.broadcast(f4, "zero"), INVALID, "root is 'zero'"),
    (lambda c: c.broadcast(f4, 1 << 40), INVALID, "not a rank"),
    (lambda c: c.broadcast(f4, 0.0), INVALID, "root is 0.0, want a rank"),
    (lambda c: c.broadcast(f4, np.array(0.7)), INVALID, "root is array(0.7), want a rank"),
    (lambda c: c.broadcast(f4, np.array([0])), INVALID, "root is array([0]), want a rank"),
    (lambda c: c.send(f4, np.array(0.7)), INVALID, "peer is array(0.7), want a rank"),
    (lambda c: c.send(f4, 1), INVALID, "peer 1 is not a rank"),
    (lambda c: c.send(f4, 0), INVALID, "itself"),
    (lambda c: c.recv(f4, -7), INVALID, "peer -7"),
    (lambda c: c.all_reduce(f4, op="mean"), INVALID, "unknown reduction op 'mean'; known are sum"),
    (lambda c: c.all_reduce(f4, op=[]), INVALID, "unknown reduction op"),
    (lambda c: c.all_reduce(f4, op=OtherOp.MAX), INVALID, "OtherOp.MAX: 4>; known are sum"),
    (lambda c: c.reduce(f4, op=2), INVALID, "unknown reduction op 2"),
    (lambda c: c.reduce_scatter(f4, f4.copy(), True), INVALID, "unknown reduction op True"),
    (lambda c: c.all_reduce(1, op=OtherOp.MAX), INVALID, "unknown reduction op"),
    (lambda c: c.explain("all_reduce", 1, op=1), INVALID, "unknown reduction op 1"),
    (lambda c: c.all_reduce(f4, op="premul_sum"), INVALID, "premul_sum needs scalar="),
    (lambda c: c.all_reduce(f4, scalar=2.0), INVALID, "scalar= goes with op premul_sum only"),
    (lambda c: c.all_reduce(f4, op="premul_sum", scalar="two"), INVALID, "scalar is 'two', want a number"),
    (lambda c: c.all_reduce(f4, op="premul_sum", scalar=10**400), INVALID, "want a number"),
    # the communicator
    (lambda c: c.start("all_deduce", f4), INVALID, "unknown collective 'all_deduce'; known are all_reduce"),
    (lambda c: c.start("close"), INVALID, "unknown collective"),
    *[(lambda c, n=n: c.split(n), INVALID, f"split on rank 0: color {n} is negative") for n in (-1, -5)],
    (lambda c: c.split(1 << 40), INVALID, "does not fit 32 bits"),
    (lambda c: c.split("red"), INVALID, "color is 'red', want a whole number"),
    (lambda c: c.split(1.5), INVALID, "color is 1.5, want a whole number"),
    (lambda c: c.window(-1), INVALID, "-1"),
    (lambda c: c.window(1.5), INVALID, "size is 1.5, want a whole number"),
    (lambda c: c.window(1 << 64), INVALID, "does not fit 64 bits"),
    (lambda c: in_window(c, lambda w: w.put(f4, 0, 1 << 64)), INVALID,
     "offset 18446744073709551616 does not fit 64 bits"),
    (lambda c: in_window(c, lambda w: w.get(f4, 0, "top")), INVALID, "offset is 'top', want a whole number"),
    (lambda c: in_window(c, lambda w: w.wait(0, 1 << 64)), INVALID, "times 18446744073709551616 does not fit 64 bits"),
    (lambda c: in_window(c, lambda w: w.wait(0, -1)), INVALID, "number of signals -1 is negative"),
    (lambda c: in_window(c, lambda w: w.peer_address(0)), INVALID, "is neither in memory of a GPU"),
    (lambda c: in_window(c, lambda w: w.peer_address(7)), INVALID, "peer 7 is not a rank"),
    (lambda c: in_window(c, lambda w: w.peer_address("left")), INVALID, "peer is 'left', want a whole number"),
    (lambda c: c.register(np.zeros(4)).peer_address(1 << 40), INVALID, "does not fit 32 bits"),
    (lambda c: c.register(np.zeros(0)), INVALID, "register on rank 0: the buffer is empty"),
    (lambda c: c.register(np.zeros(0), symmetric=True), INVALID, "register on rank 0: the buffer is empty"),
    (lambda c: c.register([1.0]), INVALID, "buffer: list is no buffer"),
    (lambda c: c.register(np.zeros((4, 4)).T), INVALID, "is not C-contiguous"),
    (lambda c: c.explain("all_deduce", 1), INVALID, "unknown collective"),
    (lambda c: c.explain("all_reduce", -1), INVALID, "-1"),
    (lambda c: c.explain("all_reduce", 1 << 70), INVALID, "does not fit 64 bits"),
    (lambda c: c.explain("all_reduce", "many"), INVALID, "count is 'many', want a whole number"),
    (lambda c: group_of(c, lambda: c.barrier()), INVALID, "group"),
    (lambda c: group_of(c, lambda: c.send(f4, 0)), INVALID, "to itself"),
    # joining
    (lambda c: shunt.init(0), INVALID, "rank and world go together"),
    (lambda c: shunt.init(world=2), INVALID, "rank and world go together"),
    (lambda c: shunt.init(2, 2), INVALID, "rank 2 of world 2"),
    (lambda c: shunt.init("first", 2), INVALID, "rank is 'first', want a whole number"),
    (lambda c: shunt.init(0, 0), INVALID, "rank 0 of world 0"),
    (lambda c: shunt.init(0, 1 << 20), INVALID, "world"),
    (lambda c: shunt.init(0, 2, "carrier pigeon"), INVALID, "carrier pigeon"),
    (lambda c: shunt.init(0, 2, "shunt1AAAA"), INVALID, "unique id"),
    (lambda c: shunt.init(0, 1, timeout=-1), INVALID, "timeout -1"),
    (lambda c: shunt.init(0, 1, timeout=0), INVALID, "timeout 0"),
    (lambda c: shunt.init(0, 1, timeout="5"), INVALID, "timeout is '5', want a number of seconds"),
    (lambda c: shunt.init(0, 1, timeout=float("nan")), INVALID, "timeout is nan, want a number of seconds"),
    (lambda c: shunt.init(0, 1, timeout=float("inf")), INVALID, "inf s; want at least 0.001 and less than 1099"),
    (lambda c: shunt.init(0, 1, id="\udc80"), INVALID, "id is '\\udc80', want a text of UTF-8"),
    (lambda c: shunt.init(0, 1, memory="cuda", device="cuda:0"), INVALID, "device is 'cuda:0', want a whole number"),
    (lambda c: shunt.init(0, 1, memory="cuda", device=0.0), INVALID, "device is 0.0, want a whole number"),
    (lambda c: c.start("barrier").wait("long"), INVALID, "wait: timeout is 'long', want a number of seconds"),
    (lambda c: shunt.init(0, 1, max_sms=0), INVALID, "max_sms 0"),
    (lambda c: shunt.init(0, 1, max_sms=1 << 40), INVALID, "max_sms"),
    (lambda c: shunt.init(0, 1, id="a\0b"), INVALID, "zero characters"),
    (lambda c: shunt.init(0, 1, transports="teleport"), shunt.PluginRejectedError, "teleport"),
    (lambda c: shunt.init(0, 1, transports=["shared:/etc/hostname"]), shunt.PluginRejectedError, "/etc/hostname"),
    (lambda c: shunt.init(0, 1, transports="pigeon:coo"), INVALID, "unknown carrier"),
]


class OtherOp(enum.IntEnum):
    """As torch's ReduceOp: equal to the number of another of Shunt's ops."""

    MAX = 4


class Lent:
    """An array that can only be had through DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        if not isinstance(self.array, np.ndarray):
            raise BufferError("no tensor")
        return self.array.__dlpack__(**options)


class Column:
    """As a column of pandas: a dtype, and no buffer."""

    def __init__(self, array):
        self.dtype = array.dtype


def in_window(comm, body):
    with comm.window(64) as window:
        body(window)


def frozen(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def overlap(comm):
    a = np.zeros(8, "float32")
    comm.all_reduce(a[:4], a[2:6])


def group_of(comm, body):
    with comm.group():
        body()


@pytest.mark.parametrize("case", range(len(TABLE)))
def test_wrong_call(comm, case):
    call, kind, text = TABLE[case]
    with pytest.raises(shunt.ShuntError) as caught:
        call(comm)
    assert type(caught.value) is kind, repr(caught.value)
    assert text in str(caught.value)
    assert caught.value.code is kind.code
    name = call.__code__.co_names[0]
    if name in _operations.STARTABLE:
        assert str(caught.value).startswith(f"{name} on rank 0: ")
    # The communicator has not suffered.
    x = np.full(2, 7.0)
    assert comm.all_reduce(x, np.zeros(2)).tolist() == [7, 7]


@pytest.mark.parametrize("name", ["rank", "world", "size"])
def test_what_a_communicator_is_cannot_be_assigned(comm, name):
    with pytest.raises(AttributeError):
        setattr(comm, name, 7)


class OnDevice:
    __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}


def test_device_memory_is_refused_by_name(comm):
    with pytest.raises(shunt.UnsupportedError, match="OnDevice lies in CUDA memory"):
        comm.all_reduce(OnDevice())
    for counts in ((OnDevice(), [4]), ([4], OnDevice()), (OnDevice(), OnDevice())):
        with pytest.raises(INVALID, match="_counts lies in CUDA memory; this communicator moves host memory"):
            comm.all_to_all_v(f4, counts[0], np.zeros(4, "float32"), counts[1])
    with pytest.raises(INVALID, match="recv_displs lies in CUDA memory"):
        comm.all_to_all_v(f4, [4], np.zeros(4, "float32"), [4], recv_displs=OnDevice())


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_a_process_has_is_not_copied(comm, way):
    things = (comm, comm.window(8), comm.start("barrier"), comm.register(np.zeros(8)), comm.group())
    for thing in things:
        with pytest.raises(TypeError, match=f"a {type(thing).__name__} cannot be copied or pickled"):
            way(thing)
    things[2].wait()
    assert comm.all_reduce(np.ones(2)).tolist() == [1, 1]


def test_closed_communicator(comm):
    part = comm.split(0)
    window = part.window(64)
    part.close()
    calls = (
        lambda: part.all_reduce(np.zeros(1)), part.barrier, lambda: part.split(0), lambda: part.window(8),
        lambda: part.start("barrier"), lambda: part.abort(), lambda: part.shrink(), lambda: window.signal(0),
        lambda: part.group().__enter__(), lambda: part.explain("barrier", 0), lambda: window.memory,
        lambda: part.register(f4), lambda: part.error, part.records, lambda: part.write_records(io.StringIO()),
    )
    for call in calls:
        with pytest.raises(shunt.ClosedError, match="closed"):
            call()


def test_registration_of_host_memory_holds_it_until_it_is_closed(comm):
    part = comm.split(0)
    numbers = array.array("d", [0.0] * 8)
    with part.register(numbers) as registration:
        assert "of 64 bytes" in repr(registration)
        with pytest.raises(BufferError):
            numbers.append(1.0)
    registration.close()
    assert "closed" in repr(registration)
    numbers.append(1.0)
    with part.register(numbers, symmetric=True), pytest.raises(BufferError):
        numbers.append(1.0)
    last = part.register(numbers)
    part.close()
    last.close()
    assert "closed" in repr(last)


class Record(ctypes.Structure):
    _fields_ = [("name", ctypes.c_int64), ("what", ctypes.py_object)]


# Arrays whose elements are, or hold, references to objects of this process.
REFERENCES = {
    "objects": lambda: np.array([[1], [2]] * 2, "O"),
    "no objects": lambda: np.zeros(0, "O"),
    "records of objects": lambda: np.zeros(4, [("O", "i8"), ("b", "O")]),
    "nested records": lambda: np.zeros(4, [("a", [("b", "O", 2)])]),
    "texts": lambda: np.zeros(4, np.dtypes.StringDType()) if hasattr(np.dtypes, "StringDType") else np.zeros(4, "O"),
    "view": lambda: memoryview(np.zeros(4, "O")),
    "view of records": lambda: memoryview(np.zeros(4, [("a", "i8"), ("b", "O")])),
    "ctypes objects": lambda: (ctypes.py_object * 4)(1, 2, 3, 4),
    "ctypes records": lambda: (Record * 4)(),
    "ctypes texts": lambda: (ctypes.c_char_p * 4)(),
    "ctypes wide texts": lambda: (ctypes.c_wchar_p * 4)(),
    "ctypes pointers": lambda: (ctypes.POINTER(ctypes.c_int) * 4)(),
    "ctypes functions": lambda: (ctypes.CFUNCTYPE(ctypes.c_int) * 4)(),
}


@pytest.mark.parametrize("dtype", [None, "int64", "uint8", "float64"])
@pytest.mark.parametrize("kind", REFERENCES)
def test_references_are_never_sent(comm, kind, dtype):
    array, out = REFERENCES[kind](), bytearray(64)
    for call in (lambda: comm.broadcast(array, dtype=dtype), lambda: comm.all_reduce(array, dtype=dtype),
                 lambda: comm.all_gather(array, out, dtype=dtype), lambda: comm.all_gather(out, array, dtype=dtype),
                 lambda: comm.start("broadcast", array, dtype=dtype), lambda: comm.send(array, 0, dtype=dtype)):
        with pytest.raises(shunt.InvalidArgumentError, match="references to objects") as raised:
            call()
        assert "dtype=" not in str(raised.value)


def test_what_looks_like_references_is_sent(comm):
    for sent in (np.zeros(4, [("O", "i8")]), (ctypes.c_void_p * 4)(), np.zeros(4, "V8"), np.zeros(4, "datetime64[s]")):
        comm.broadcast(sent, dtype="int64")
    assert comm.all_reduce(np.ones((), "float32")) == 1
    for dtype in ("complex64", "complex128"):
        sent, came = memoryview(np.full(3, 1 + 2j, dtype)), memoryview(np.zeros(3, dtype))
        comm.all_gather(sent, came)
        assert came.tobytes() == sent.tobytes()


@pytest.mark.parametrize("dtype", [[("key", "i8"), ("at", "f4", 3)], "S3", "U2", "V5", "V8", "clongdouble",
                                   ml_dtypes.float8_e4m3, ml_dtypes.int4], ids=str)
def test_elements_of_any_length_are_moved(comm, dtype):
    sent = np.frombuffer(bytes(range(240)), "uint8")[: 4 * np.dtype(dtype).itemsize].view(dtype)
    for call in (comm.all_gather, comm.all_to_all):
        came = np.zeros(4, dtype)
        assert call(sent, came) is came and came.tobytes() == sent.tobytes()
    came = np.zeros(8, dtype)
    comm.all_gather_v(sent, came, [4], [3])
    assert came[3:7].tobytes() == sent.tobytes() and not any(came[:3].tobytes() + came[7:].tobytes())


@pytest.mark.parametrize("dtype", ["bool", "int16", "complex128", "datetime64[s]", "U3"])
def test_a_type_that_moves_is_looked_at_once(comm, dtype, monkeypatch):
    sent, came = np.array([0, 1, 0]).astype(dtype), np.zeros((1, 3), dtype)
    comm.all_gather(sent, came)
    came[:] = np.zeros(3, dtype)
    with monkeypatch.context() as patch:
        patch.setattr(_buffers, "describe", None)
        assert comm.all_gather(sent, came) is came and (came == sent).all()
        comm.broadcast(frozen(sent))
        for call in (lambda: comm.all_gather(sent, frozen(sent)), lambda: comm.all_gather(sent[::2], came[:2]),
                     lambda: comm.all_gather(sent, np.zeros(4, dtype))):
            with pytest.raises(INVALID, match="read-only|not C-contiguous|recv has 4 elements, want 3"):
                call()
    with pytest.raises(INVALID, match="is none of Shunt's dtypes"):
        comm.all_reduce(sent)


def test_arrays_of_jax_without_a_format(comm, monkeypatch):
    def refuses(obj):
        raise BufferError("Buffers of type BF16 are not supported by the Python buffer protocol.")

    sent, came = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    monkeypatch.setattr(_buffers, "memoryview", refuses, raising=False)
    comm.all_gather(Lent(sent), came)
    assert (came == sent).all()
    for call in (lambda: comm.all_reduce(Lent(sent)), lambda: comm.all_gather(sent, Lent(came))):
        with pytest.raises(INVALID, match="Lent is read-only"):
            call()
    with pytest.raises(INVALID, match="Column is no buffer"):
        comm.all_gather(Column(sent), came)


def test_views_outlive_a_window_and_its_communicator():
    def mappings():
        with open("/proc/self/maps") as file:
            return sum("memfd:" in line for line in file)

    before = mappings()
    comm = shunt.init(0, 1)
    window = comm.window(10000)
    view, rest = np.frombuffer(window.memory[:9996], "float32"), window.memory[9999:]
    view[:] = 2
    with pytest.raises(shunt.InvalidArgumentError):
        window.put(np.zeros(1), 0, 10000)
    window.put(np.full(1, 3, "float32"), 0)
    window.close()
    with pytest.raises(shunt.ClosedError):
        window.memory
    assert view[0] == 3 and view[1:].sum() == 2 * 2498
    comm.close()
    view[:] = 4
    rest[0] = 1
    assert view.sum() == 4 * 2499 and rest[0] == 1 and mappings() == before + 1
    del view, rest
    assert mappings() == before


def test_failed_group_runs_nothing_and_ends(comm):
    with pytest.raises(ZeroDivisionError):
        with comm.group():
            with comm.group():
                comm.recv(np.zeros(1), 0)
                1 / 0
    with comm.group():
        pass
    assert comm.all_reduce(np.ones(1))[0] == 1


def test_buffer_cannot_move_while_in_flight(comm):
    data = bytearray(8)
    work = comm.start("all_reduce", data)
    if not work.done():
        with pytest.raises(BufferError):
            data.extend(b"more")
    work.wait()
    del work
    data.extend(b"more")


def test_a_time_that_is_no_number(comm):
    work = comm.start("all_reduce", np.ones(2))
    for timeout in (float("nan"), np.float32("nan")):
        with pytest.raises(INVALID, match="want a number of seconds"):
            work.wait(timeout)
    assert work.wait() is not None


def test_variables_set_after_the_import_count(monkeypatch):
    """Go's copy of the environment is of the time when the library was loaded; the program's counts."""
    shunt.version()  # the library is loaded
    for name, value in {"RANK": "1", "WORLD": "2", "ID": "tcp://127.0.0.1:1", "TIMEOUT": "0.5s"}.items():
        monkeypatch.setenv(f"SHUNT_{name}", value)
    with pytest.raises(shunt.TimeoutError, match=r"rank 1 of 2 did not find the job's store at tcp://127.0.0.1:1"):
        shunt.init()
    monkeypatch.undo()
    with shunt.init() as comm:
        assert comm.size == 1


@pytest.mark.parametrize("element", ["complex128", "float32", [("a", "i4"), ("b", "i4"), ("c", "i4")]])
def test_blocks_hold_whole_elements(element):
    """What travels as several numbers of Shunt's is not divided between two ranks."""
    place = types.SimpleNamespace(on_device=False, rank=0, world=2, _note_refusal=lambda *_: None)
    for n in range(5):
        x, y = np.zeros(n, element), np.zeros(n, element)
        if n % 2 == 0:
            whole = _operations.all_gather(place, x, np.zeros(2 * n, element)).operation.count
            assert _operations.all_to_all(place, x, y).operation.count * 2 == whole
            continue
        with pytest.raises(INVALID, match=f"send has {n} elements, which do not divide into world 2 blocks"):
            _operations.all_to_all(place, x, y)
