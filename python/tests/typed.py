# What type checkers must see, read by test_home.py: lines with "# E:" are errors with that text, no other line is one.
from array import array
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import shunt

F32 = npt.NDArray[np.float32]


def f(comm: shunt.Communicator, x: F32, y: F32, numbers: "array[int]", room: bytearray) -> None:
    assert_type(comm.all_reduce(x), F32)
    assert_type(comm.all_reduce(x, room), bytearray)
    assert_type(comm.all_reduce(3.0), float)
    assert_type(comm.all_reduce(3), int)
    assert_type(comm.all_reduce(3, op="max"), int)
    assert_type(comm.all_reduce(3, op="avg"), float)
    assert_type(comm.all_reduce(3, op=shunt.Op.PREMUL_SUM, scalar=0.5), float)
    assert_type(comm.broadcast(numbers), "array[int]")
    assert_type(comm.broadcast(1.5, 1), float)
    assert_type(comm.all_reduce(np.float32(1)), np.float32)
    assert_type(comm.all_reduce(np.int64(1), op="max"), np.int64)
    assert_type(comm.all_reduce(np.float64(1)), np.float64)
    assert_type(comm.broadcast(np.uint8(1)), np.uint8)
    assert_type(comm.all_reduce(x, op="avg"), F32)
    assert_type(comm.all_reduce(np.float32(1), op="avg"), np.float32)
    assert_type(comm.all_reduce(np.int64(1), op="avg"), Any)  # a float64
    assert_type(comm.window(8).get(x, 1), F32)
    assert_type(comm.window(8).get(room, 1), bytearray)
    assert_type(comm.all_gather(x, y), F32)
    assert_type(comm.all_to_all_v(x, [1], y, [1]), F32)
    assert_type(comm.all_gather_v(x, y, np.ones(2, "int64"), range(2)), F32)
    assert_type(comm.reduce_scatter_v(x, y, numbers, (0, 1)), F32)
    assert_type(comm.gather_v(x, y, np.ones(2, "int64")), F32 | None)
    assert_type(comm.scatter_v(x, y, [np.int64(1), 2]), F32)
    assert_type(comm.all_to_all_v(x, np.ones(2, "int64"), y, range(2)), F32)
    assert_type(comm.reduce(x), F32 | None)
    assert_type(comm.gather(x, room), bytearray | None)
    assert_type(comm.recv(room, 1), bytearray)
    assert_type(comm.size, int)
    assert_type(comm.start("all_reduce", x), shunt.Work)
    assert_type(comm.all_gather_object({}), list[Any])
    comm.register(memoryview(room))
    comm.all_reduce("text")  # E: No overload variant
    comm.all_reduce([1.0, 2.0])  # E: No overload variant
    comm.all_gather(x, 3)  # E: cannot be
    comm.send({"a": 1}, 1)  # E: Argument 1
    comm.all_reduce(x, op=1.5)  # E: No overload variant
    comm.recv(None, 1)  # E: cannot be
    comm.all_gather_v(x, y, [1, 2.0])  # E: List item 1
    comm.all_gather_v(x, y, {1, 2})  # E: Argument 3
    comm.all_gather_v(x, y, 2)  # E: Argument 3
