"""Counts of all_to_all_v in memory of GPUs: what is made of the arrays, without a GPU."""

import ctypes
import gc
import types
import weakref

import pytest

import shunt
from shunt import _device, _operations
from shunt._tables import DType
from fake_tensors import FakeTensor
from test_device import Array, Comm, OfDLPack, Parameter, Quick, torch  # noqa: F401


def counts_at(at, **changes):
    """A tensor of counts of a world of 2."""
    return FakeTensor(**{"dtype": "int64", "count": 2, "shape": (2,), "at": at, **changes})


def told(asked):
    """What the library gets of an all_to_all_v with counts on the GPU, in the order
    of shunt_all_to_all_v_on_device, whichever function it was."""
    name, handle, *rest = asked
    if name == "shunt_all_to_all_v_on_device":
        return tuple(rest)
    assert name == "shunt_run"
    operation, = rest
    assert operation.counts_on_device == 1
    at = [ctypes.cast(pointer, ctypes.c_void_p).value for pointer in (
        operation.send_counts, operation.send_displs, operation.recv_counts, operation.recv_displs)]
    return (operation.send, operation.send_capacity, *at[:2], operation.recv, operation.recv_capacity, *at[2:],
            operation.dtype, operation.stream)


def test_counts_in_tensors_go_as_addresses(torch):
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 4712 + device)
    _device._learn(torch)
    comm, send, recv = Quick(), FakeTensor(count=9), FakeTensor(count=7, at=0x7F0000009000)
    to, come, there, here = (counts_at(0x7F0000003000 + 16 * i) for i in range(4))
    at = [t.data_ptr() for t in (to, come, there, here)]
    for stream, number in ((None, 4712), (9, 9)):
        for displs, want in (((), (None, None)), ((there, here), (at[2], at[3])), ((None, here), (None, at[3]))):
            assert comm.all_to_all_v(send, to, recv, come, *displs, stream=stream) is recv
            quick = comm.asked[-1][0] == "shunt_all_to_all_v_on_device"
            assert quick == torch.quick
            assert told(comm.asked.pop()) == (send.data_ptr(), 9, at[0], want[0], recv.data_ptr(), 7, at[1], want[1],
                                              DType.BFLOAT16, number)
    for other in (Parameter(dtype="int64", count=2, shape=(2,)), Array(shape=(2,), typestr="<i8")):
        assert comm.all_to_all_v(send, other, recv, come) is recv
        assert comm.asked.pop()[0] == "shunt_run"
    assert comm.asked == []


@pytest.mark.parametrize("changes, text", [
    ({"send_counts": counts_at(4096, dtype="int32")}, "send_counts: FakeTensor of int32, want int64"),
    ({"recv_counts": counts_at(4096, dtype="bfloat16")}, "recv_counts: FakeTensor of bfloat16, want int64"),
    ({"send_displs": counts_at(4096, dtype="float")}, "send_displs: FakeTensor of float, want int64"),
    ({"recv_displs": counts_at(4096, count=3, shape=(3,))}, "3 recv_displs for a world of 2"),
    ({"send_counts": counts_at(4096, count=0, shape=(0,))}, "0 send_counts for a world of 2"),
    ({"send_counts": counts_at(4096, shape=(2, 1))}, "send_counts: FakeTensor of 2 dimensions, want 1"),
    ({"recv_counts": counts_at(4096, shape=(), count=1)}, "recv_counts: FakeTensor of 0 dimensions, want 1"),
    ({"recv_counts": counts_at(4096, contiguous=False)}, "recv_counts: tensor of shape .* is not contiguous"),
    ({"recv_counts": [1, 2]},
     "recv_counts is a list on the host, but send_counts lies on the GPU; want all there, or none"),
    ({"send_counts": (1, 2)}, "send_counts is a tuple on the host, but recv_counts lies on the GPU"),
    ({"send_counts": counts_at(4096, cuda=False)},
     "send_counts is a FakeTensor on the host, but recv_counts lies on the GPU"),
    ({"send_counts": [1, 2], "recv_counts": [1, 2], "recv_displs": counts_at(4096)},
     "send_counts is a list on the host, but recv_displs lies on the GPU"),
    ({"recv_displs": [0, 1]}, "recv_displs is a list on the host"),
    ({"recv_counts": None}, "recv_counts is None, want one for each rank"),
    ({"send_counts": None, "recv_counts": None, "send_displs": counts_at(4096)}, "send_counts is None"),
    ({"send_counts": Array(shape=(2,), typestr="<u8")}, "send_counts: Array of <u8, want int64"),
    ({"send_counts": Array(shape=(1, 2), typestr="<i8")}, "send_counts: Array of 2 dimensions, want 1"),
    ({"send_counts": Array(shape=(2,), typestr="<i8", strides=(16,))},
     "send_counts: Array of shape .* is not C-contiguous"),
])
def test_counts_on_a_gpu_are_refused(torch, changes, text):
    _device._learn(torch)
    comm, buffer = Quick(), FakeTensor(count=9)
    given = {"send_counts": counts_at(4096), "recv_counts": counts_at(8192), **changes}
    with pytest.raises(shunt.InvalidArgumentError, match=text) as caught:
        comm.all_to_all_v(buffer, recv=FakeTensor(), **given)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(shunt.InvalidArgumentError, match=text):
        comm.start("all_to_all_v", buffer, recv=FakeTensor(), **given)
    assert comm.asked == []


def test_counts_lie_on_the_gpu_of_the_buffers(torch):
    _device._learn(torch)
    comm, far = Quick(), counts_at(4096)
    far.device = 1
    for given, text in (((far, counts_at(8192)), "send_counts: FakeTensor lies on GPU 1, but send on GPU 0"),
                        ((counts_at(8192), OfDLPack(code=0, bits=64, shape=(2,))),
                         "recv_counts: OfDLPack lies on GPU 1, but send on GPU 0")):
        with pytest.raises(shunt.InvalidArgumentError, match=text):
            comm.all_to_all_v(FakeTensor(), given[0], FakeTensor(), given[1])
    assert comm.asked == []
    managed = OfDLPack(device=13, code=0, bits=64, shape=(2,))
    comm.all_to_all_v(FakeTensor(), counts_at(8192), FakeTensor(), managed)
    assert comm.asked.pop()[0] == "shunt_run"


def test_counts_on_a_gpu_are_of_rows_of_elements(torch):
    _device._learn(torch)
    comm, to, come = Quick(), counts_at(0x7F0000003000), counts_at(0x7F0000003010)

    class Wide(FakeTensor):  # what Shunt moves as two elements each
        element_size = lambda self: 16

    class Complex128(str):
        itemsize = 16

    for kind, dtype, row, shunts in ((FakeTensor, "bfloat16", 3, 1), (Wide, Complex128("complex128"), 1, 2),
                                     (Wide, Complex128("complex128"), 3, 2)):
        send, recv = kind(count=12, dtype=dtype), kind(count=6, dtype=dtype, at=0x7F0000009000)
        comm.all_to_all_v(send, to, recv, come, row=row)
        name, _, operation = comm.asked.pop()
        assert (name, operation.counts_on_device, operation.count) == ("shunt_run", 1, row * shunts)
        assert (operation.send_capacity, operation.recv_capacity) == (12 * shunts, 6 * shunts)


def test_an_operation_with_counts_on_a_gpu_keeps_them():
    arrays = [Array(shape=(2,), typestr="<i8", data=(0x7F0000004000 + 16 * i, i == 1), stream=i or None)
              for i in range(4)]
    kept = [weakref.ref(array) for array in arrays]
    prepared = _operations.all_to_all_v(Comm(), Array(), arrays[0], Array(shape=(5,)), arrays[1], arrays[2], arrays[3])
    operation = prepared.operation
    addresses = [ctypes.cast(pointer, ctypes.c_void_p).value
                 for pointer in (operation.send_counts, operation.recv_counts, operation.send_displs,
                                 operation.recv_displs)]
    assert addresses == [0x7F0000004000 + 16 * i for i in range(4)]
    assert (operation.counts_on_device, operation.reserved, operation.send_capacity, operation.recv_capacity,
            operation.count) == (1, 0, 12, 5, 1)
    Comm()._stream(prepared, None)
    assert operation.stream == 2, "that of the first array that names one, after the buffers"
    bytes_of = lambda n: Array(typestr="|u1", shape=(n,))
    packed = _operations.all_to_all_v(Comm(), bytes_of(8), arrays[0], bytes_of(24), arrays[1],
                                      dtype="float32").operation
    assert (packed.send_capacity, packed.recv_capacity) == (2, 6), "in elements"
    assert not packed.send_displs and not packed.recv_displs
    del arrays, packed
    gc.collect()
    assert all(ref() is not None for ref in kept)
    del prepared, operation
    gc.collect()
    assert all(ref() is None for ref in kept)
