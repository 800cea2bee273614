"""Memory of GPUs: what is read of other libraries' arrays, without a GPU; and
programs on GPUs where there are two."""

import ctypes
import os
import pathlib
import subprocess
import sys
import types

import pytest

import shunt
from fake_tensors import Exchange, FakeTensor
from shunt import _allocator, _buffers, _device, _library, _operations, _quick, _window
from shunt._tables import Code, DType, MemoryKind, Op

HERE = pathlib.Path(__file__).resolve().parent


class Array:
    def __init__(self, **changes):
        self.__cuda_array_interface__ = {"shape": (3, 4), "typestr": "<f4", "data": (0x7F0000001000, False),
                                         "version": 3, **changes}


def describe(obj, writable=True, dtype=None):
    return _buffers.describe(obj, "send", writable, dtype, cuda=True)


def test_array_interface():
    memory = describe(Array(stream=7))
    assert (memory.address, memory.count, memory.dtype, memory.stream) == (0x7F0000001000, 12, DType.FLOAT32, 7)
    assert describe(Array(strides=(16, 4), stream=None)).stream is None
    assert describe(Array(shape=())).count == 1
    empty = describe(Array(shape=(0, 4), strides=(8, 8), data=(0, False)))
    assert (empty.address, empty.count) == (None, 0)
    assert describe(Array(shape=(1, 4), strides=(999, 4))).count == 4
    for typestr, dtype in (("<i8", DType.INT64), ("|u1", DType.UINT8), ("<f2", DType.FLOAT16), ("=f8", DType.FLOAT64)):
        assert describe(Array(typestr=typestr)).dtype is dtype
    assert describe(Array(typestr="<V2"), dtype="bfloat16").dtype is DType.BFLOAT16
    assert describe(Array(typestr="|u1", shape=(8,)), dtype="float32").count == 2
    assert describe(Array(data=(4096, True)), writable=False).address == 4096


@pytest.mark.parametrize("changes, text", [
    ({"data": (4096, True)}, "read-only"),
    ({"strides": (4, 12)}, "not C-contiguous"),
    ({"strides": (32, 4)}, "not C-contiguous"),
    ({"typestr": ">f4"}, "foreign byte order"),
    ({"typestr": "<V2"}, "is none of Shunt's dtypes"),
    ({"typestr": "|b1"}, "is none of Shunt's dtypes"),
    ({"typestr": "<c8"}, "is none of Shunt's dtypes"),
    ({"typestr": "f"}, "cannot be read"),
    ({"typestr": None}, "cannot be read"),
    ({"shape": (-1,)}, "cannot be read"),
    ({"shape": None}, "cannot be read"),
    ({"data": 4096}, "cannot be read"),
    ({"data": ("there", False)}, "cannot be read"),
    ({"mask": object()}, "masked"),
    ({"stream": 0}, "names stream 0"),
])
def test_array_interface_is_refused(changes, text):
    with pytest.raises(shunt.InvalidArgumentError, match=text):
        describe(Array(**changes))


def test_host_memory_is_refused_on_a_gpu():
    np = pytest.importorskip("numpy")
    for obj in (np.zeros(4), bytearray(8), 3):
        with pytest.raises(shunt.UnsupportedError, match="lies in host memory"):
            describe(obj)


class Stream:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Core:
    def __cuda_stream__(self):
        return 0, 99


def test_streams():
    assert _device.stream_of(0) == 0
    assert _device.stream_of(1 << 40) == 1 << 40
    assert _device.stream_of(Stream(cuda_stream=5)) == 5
    assert _device.stream_of(Stream(ptr=6)) == 6
    assert _device.stream_of(Stream(__cuda_stream__=(0, 8))) == 8
    assert _device.stream_of(Core()) == 99
    for bad in ("7", -1, 1 << 64, True, object(), 1.5, Stream(cuda_stream=-1), Stream(ptr=1 << 64),
                Stream(__cuda_stream__=(0, -1)), Stream(cuda_stream=True)):
        with pytest.raises(shunt.InvalidArgumentError, match="stream"):
            _device.stream_of(bad)


@pytest.fixture(params=["with an exchange", "without"])
def torch(request, way, monkeypatch):
    """torch from 2.10 on, and before, which is always the full path."""
    if request.param == "with an exchange":
        exchange = Exchange()  # lives as long as this fixture
        monkeypatch.setattr(FakeTensor, "__dlpack_c_exchange_api__", exchange.capsule, raising=False)
    module = types.ModuleType("torch")
    module.Tensor = FakeTensor
    module.bfloat16, module.int64, module.int32 = "bfloat16", "int64", "int32"
    module.quick = (way, request.param) == ("quick", "with an exchange")
    module.cuda = types.SimpleNamespace(
        current_stream=lambda device=None: types.SimpleNamespace(cuda_stream=4711), is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", module)
    yield module


def test_tensors_of_torch(torch):
    memory = describe(FakeTensor())
    assert (memory.address, memory.count, memory.dtype, memory.stream) == (0x7F0000002000, 6, DType.BFLOAT16, 4711)
    assert _device.current_stream() == 4711
    with pytest.raises(shunt.InvalidArgumentError, match="not contiguous"):
        describe(FakeTensor(contiguous=False))
    with pytest.raises(shunt.InvalidArgumentError, match="is none of Shunt's dtypes"):
        describe(FakeTensor(dtype="complex32"))
    for view in ("conj", "neg"):
        for cuda in (True, False):
            with pytest.raises(shunt.InvalidArgumentError, match=r"call resolve_conj\(\)"):
                describe(FakeTensor(f"{view} of complex64", cuda=cuda))
    with pytest.raises(shunt.UnsupportedError, match="lies in host memory"):
        describe(FakeTensor(cuda=False))


class Parameter(FakeTensor):
    pass


def noted(argument):
    """An argument as it is during the call: of an operation, a copy."""
    if isinstance(argument, ctypes.POINTER(_library.Operation)):
        return _library.Operation.from_buffer_copy(argument.contents)
    return argument


class Noting:
    """A library that only notes what it is asked, by function."""

    def __init__(self, asked):
        self._asked, self._callbacks = asked, []

    def __getattr__(self, name):
        note = ctypes.CFUNCTYPE(ctypes.c_int32,
                                *_library._PROTOTYPES[name])(
                                    lambda *arguments: self._asked.append((name, *map(noted, arguments))) or 0)
        self._callbacks.append(note)
        setattr(self, name, _quick.function(note))
        return getattr(self, name)


class Quick(shunt.Communicator):
    """A communicator of no library."""

    def __init__(self, rank=0):
        self.on_device, self._rank, self._world = True, rank, 2
        self._groups, self._handle, self.asked = {}, None, []
        self._lib, self._arrays = Noting(self.asked), _device
        self._all_reduce = self._lib.shunt_all_reduce

    def _alive(self):
        return 1


def test_all_reduce_of_tensors(torch):
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 4712 + device)
    comm, send, recv = Quick(), FakeTensor(), FakeTensor()
    assert comm.all_reduce(send, recv) is recv  # shows what a tensor is
    assert comm.asked.pop()[0] == "shunt_run"
    for given, want in ((None, 4712), (7, 7), (Stream(cuda_stream=8), 8)):
        assert comm.all_reduce(send, recv, stream=given) is recv
        asked = comm.asked.pop()
        if torch.quick:
            assert asked == ("shunt_all_reduce", None, 0x7F0000002000, 0x7F0000002000, 6, DType.BFLOAT16, 0, want)
        else:
            assert asked[0] == "shunt_run"
    assert comm.all_reduce(send) is send
    assert comm.asked.pop()[0] == ("shunt_all_reduce" if torch.quick else "shunt_run")
    with pytest.raises(shunt.InvalidArgumentError, match="is no CUstream"):
        comm.all_reduce(send, stream=-1)
    send.device = 1
    comm.all_reduce(send, recv)
    asked = comm.asked.pop()
    assert not torch.quick or asked[-1] == 4713, "the stream is of the first tensor's GPU"
    for other in (Parameter(), FakeTensor(count=0)):
        assert comm.all_reduce(other) is other
        assert comm.asked.pop()[0] == "shunt_run"
    for wrong, error, text in ((FakeTensor(contiguous=False), shunt.InvalidArgumentError, "not contiguous"),
                               (FakeTensor(cuda=False), shunt.UnsupportedError, "host memory"),
                               (FakeTensor(negative=True), shunt.InvalidArgumentError, "the negative of its memory"),
                               (FakeTensor(dtype="bfloat16x2"), shunt.InvalidArgumentError,
                                "is none of Shunt's dtypes"),
                               (FakeTensor(dtype="float4"), shunt.InvalidArgumentError, "is none of Shunt's dtypes"),
                               (FakeTensor(dtype="complex32"), shunt.InvalidArgumentError,
                                "is none of Shunt's dtypes")):
        with pytest.raises(error, match=text):
            comm.all_reduce(wrong, recv)
        with pytest.raises(error, match=text):
            comm.all_reduce(send, wrong)
    assert {asked[0] for asked in comm.asked} <= {"shunt_cancel"}, "a refused call runs nothing"


@pytest.mark.parametrize("way", ["quick"], indirect=True)
@pytest.mark.parametrize("torch", ["with an exchange"], indirect=True)
def test_every_collective_of_tensors_is_quick(torch):
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 4712 + device)
    one, two = FakeTensor(), FakeTensor()
    _device._learn(torch)
    at, n, kind = one.data_ptr(), one.numel(), DType.BFLOAT16
    on_root, elsewhere = Quick(0), Quick(1)
    double = FakeTensor(count=2 * n)
    window = _window.Window(on_root, 77, None, 0, True)
    for stream, number in ((None, 4712), (9, 9)):
        for comm, call, want in (
            (on_root, lambda c: c.reduce(one, two, 0, "max", stream=stream),
             ("reduce", None, at, at, n, kind, Op.MAX, 0, number)),
            (elsewhere, lambda c: c.reduce(one, None, 0, stream=stream),
             ("reduce", None, at, None, n, kind, 0, 0, number)),
            (on_root, lambda c: c.broadcast(one, 1, stream=stream), ("broadcast", None, at, at, n, kind, 1, number)),
            (on_root, lambda c: c.all_gather(one, double, stream=stream),
             ("all_gather", None, at, at, n, kind, number)),
            (on_root, lambda c: c.reduce_scatter(double, one, stream=stream),
             ("reduce_scatter", None, at, at, n, kind, 0, number)),
            (on_root, lambda c: c.all_to_all(one, two, stream=stream),
             ("all_to_all", None, at, at, n // 2, kind, number)),
            (on_root, lambda c: c.gather(one, double, 0, stream=stream), ("gather", None, at, at, n, kind, 0, number)),
            (elsewhere, lambda c: c.gather(one, None, 0, stream=stream),
             ("gather", None, at, None, n, kind, 0, number)),
            (on_root, lambda c: c.scatter(double, one, 0, stream=stream),
             ("scatter", None, at, at, n, kind, 0, number)),
            (elsewhere, lambda c: c.scatter(None, one, 0, stream=stream),
             ("scatter", None, None, at, n, kind, 0, number)),
            (elsewhere, lambda c: c.gather_v(one, root=0, stream=stream),
             ("gather_v", None, at, n, None, None, None, kind, 0, number)),
            (elsewhere, lambda c: c.scatter_v(None, one, root=0, stream=stream),
             ("scatter_v", None, None, None, None, at, n, kind, 0, number)),
            (on_root, lambda c: c.send(one, 1, stream=stream), ("send", None, at, n, kind, 1, number)),
            (on_root, lambda c: c.recv(one, 1, stream=stream), ("recv", None, at, n, kind, 1, number)),
            (on_root, lambda c: window.put(one, 1, 8, stream=stream), ("put", None, 77, at, n, kind, 1, 8, number)),
            (on_root, lambda c: window.get(one, 1, 8, stream=stream), ("get", None, 77, at, n, kind, 1, 8, number)),
        ):
            call(comm)
            assert comm.asked.pop() == ("shunt_" + want[0], *want[1:])
        for call, name, where in (
            (lambda c: c.all_gather_v(one, double, [n, n], [n, 0], stream=stream), "all_gather_v", 4),
            (lambda c: c.reduce_scatter_v(double, one, [n, n], stream=stream), "reduce_scatter_v", 4),
            (lambda c: c.all_to_all_v(one, [2, 3], two, (3, 1), stream=stream), "all_to_all_v", 3),
            (lambda c: c.gather_v(one, double, [n, n], root=0, stream=stream), "gather_v", 5),
            (lambda c: c.scatter_v(double, one, [n, n], root=0, stream=stream), "scatter_v", 3),
        ):
            call(on_root)
            asked = on_root.asked.pop()
            assert (asked[0], asked[-1]) == ("shunt_" + name, number) and asked[where]
    assert on_root.asked == elsewhere.asked == []


class Comm:
    """A communicator as far as streams are concerned."""

    on_device, rank, world = True, 0, 2
    _stream, _noting = shunt.Communicator._stream, shunt.Communicator._noting


def test_an_operation_runs_in_the_stream_of_its_first_buffer():
    comm = Comm()

    def stream(operation, given=None):
        comm._stream(operation, given)
        return operation.operation.stream

    reduce = lambda **changes: _operations.all_reduce(comm, Array(**changes), Array(stream=3))
    assert stream(reduce(stream=2)) == 2
    assert stream(reduce()) == 3
    assert stream(reduce(stream=2), 9) == 9
    assert stream(_operations.broadcast(comm, Array(stream=8))) == 8
    assert stream(_operations.broadcast(comm, Array())) is None
    assert stream(_operations.barrier(comm)) is None


def test_a_barrier_runs_in_the_current_stream_of_torch(torch):
    comm, barrier = Comm(), _operations.barrier(Comm())
    comm._stream(barrier, None)
    assert barrier.operation.stream == 4711


class OfDLPack:
    """A tensor of a GPU that lends itself through DLPack."""

    def __init__(self, device=2, strides=None, shape=(2, 3), code=2, bits=32, refused=()):
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * 2)(*strides) if strides else None
        from shunt._dlpack import _Tensor

        self.tensor = _Tensor(data=0x7F0000003000, device_type=device, device_id=1, ndim=len(shape), code=code,
                              bits=bits, lanes=1, shape=self.shape, strides=self.strides, byte_offset=16)
        self.asked, self.refused = None, refused

    def __dlpack_device__(self):
        return self.tensor.device_type, 1

    def __dlpack__(self, stream=None):
        self.asked = stream
        if stream in self.refused:
            raise RuntimeError(f"invalid handle {stream}")
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_dlpack(monkeypatch):
    tensor = OfDLPack()
    memory = describe(tensor)
    assert (memory.address, memory.count, memory.dtype, memory.stream) == (0x7F0000003010, 6, DType.FLOAT32, None)
    assert tensor.asked == -1, "nothing has to wait"
    tensor = OfDLPack(refused=[-1])
    assert describe(tensor).address == 0x7F0000003010 and tensor.asked == 1, "as jax, which knows streams alone"
    with pytest.raises(shunt.InvalidArgumentError, match="cannot be lent through DLPack: invalid handle -1"):
        describe(OfDLPack(refused=[-1, 1]))
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(Array=OfDLPack))
    with pytest.raises(shunt.InvalidArgumentError, match="OfDLPack is read-only"):  # though its capsule does not say so
        describe(tensor)
    assert describe(tensor, writable=False).address == 0x7F0000003010
    with pytest.raises(shunt.InvalidArgumentError, match="not contiguous"):
        describe(OfDLPack(strides=(1, 2)))
    with pytest.raises(shunt.UnsupportedError, match="lies in host memory"):
        describe(OfDLPack(device=1))


@pytest.mark.parametrize("stream", [-1, "7", Stream(cuda_stream=-1), Stream(ptr=1 << 64)])
def test_a_refused_stream_is_told_to_who_waits(torch, stream):
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 4712)
    comm = Quick()
    comm._handle = 1
    send, recv, whole = FakeTensor(), FakeTensor(), FakeTensor(count=12)
    calls = {"all_reduce": (send, recv), "broadcast": (send,), "all_gather": (send, whole), "barrier": (),
             "all_gather_v": (send, whole, [6, 6]), "gather_v": (send, whole, [6, 6]), "send": (send, 1),
             "recv": (recv, 1)}
    for name, arguments in calls.items():
        with pytest.raises(shunt.InvalidArgumentError, match=f"{name} on rank 0: stream "):
            getattr(comm, name)(*arguments, stream=stream)
        assert [asked[:3] for asked in comm.asked] == [("shunt_note_refusal", 1, name.encode())]
        comm.asked.clear()


def test_gpu_options_are_checked(comm, monkeypatch):
    for arguments, text in (({"memory": "disk"}, "unknown memory 'disk'"),
                            ({"device": 0}, "want a GPU's number with memory cuda"),
                            ({"memory": "cuda", "device": -1}, "want a GPU's number")):
        with pytest.raises(shunt.InvalidArgumentError, match=text):
            shunt.init(0, 1, **arguments)
    assert comm.memory is MemoryKind.HOST
    comm.synchronize()
    for call in (lambda: comm.barrier(stream=1), lambda: comm.start("barrier", stream=1),
                 lambda: comm.all_reduce(bytearray(8), dtype="int8", stream=1)):
        with pytest.raises(shunt.InvalidArgumentError, match="stream= is for"):
            call()
    with comm.window(8) as window, pytest.raises(AttributeError):
        window.__cuda_array_interface__


def test_no_driver_is_named():
    done = subprocess.run([sys.executable, "-c", "import shunt; shunt.init(0, 1, memory='cuda')"], capture_output=True,
                          text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(HERE.parent),
                               "SHUNT_LIBCUDA": "libcuda-that-is-not-there.so"})
    assert "UnsupportedError" in done.stderr and "no CUDA driver" in done.stderr, done.stderr


def gpus():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as err:
        pytest.skip(f"no CUDA driver: {err}")
    count = ctypes.c_int()
    for call, arguments in ((driver.cuInit, (0,)), (driver.cuDeviceGetCount, (ctypes.byref(count),))):
        if error := call(*arguments):
            pytest.skip(f"no CUDA device: {call.__name__} gave error {error}")
    return count.value


@pytest.mark.parametrize("size", [2, 4])
def test_on_gpus(world, size):
    if gpus() < size:
        pytest.skip(f"needs {size} GPUs, there are {gpus()}")
    results = world.finish([subprocess.Popen(
        [sys.executable, str(HERE / "gpu_programs.py"), "all"],
        env={**os.environ, "PYTHONPATH": str(HERE.parent), "SHUNT_RANK": str(rank), "SHUNT_WORLD": str(size),
             "SHUNT_ID": f"file://{world.directory}/gpus"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(size)],
                           timeout=180)
    for rank, (status, _, err) in enumerate(results):
        assert status == 0, f"rank {rank}: {err}"


def test_allocators_serve_gpus():
    with shunt.init(rank=0, world=1) as comm:
        with pytest.raises(shunt.UnsupportedError, match="allocators serve memory of CUDA devices"):
            comm.allocator()
        for size in (-1, 1 << 62):
            with pytest.raises(shunt.InvalidArgumentError, match="segment_bytes"):
                comm.allocator(symmetric=True, segment_bytes=size)


class Allocated:
    """libshunt's allocator, as far as _allocator calls it."""

    def __init__(self, *ends):
        self.calls, self.ends = [], list(ends)

    def shunt_last_error(self, _):
        return b"as was asked for"

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name.removeprefix("shunt_allocator_"), *arguments))
            if name == "shunt_allocator_destroy":
                return self.ends.pop(0) if self.ends else 0
            if name == "shunt_allocator_alloc":
                arguments[3]._obj.value = 0x7000
            return 0

        return call


def test_an_allocator_that_ends_with_an_error(monkeypatch):
    lib = Allocated(Code.INVALID_ARGUMENT, Code.TIMEOUT, Code.DEVICE)
    monkeypatch.setattr(_library, "library", lambda: lib)
    allocator = _allocator.Allocator(types.SimpleNamespace(rank=3, _end=None), 77, False)
    for error, state in ((shunt.InvalidArgumentError, "plain"), (shunt.TimeoutError, "plain"),
                         (shunt.DeviceError, "closed")):
        with pytest.raises(error):
            allocator.close()
        assert repr(allocator) == f"<Allocator {state} on rank 3>"
    allocator.close()
    assert [call[0] for call in lib.calls] == ["destroy"] * 3


def test_what_an_allocator_calls(monkeypatch):
    lib = Allocated()
    monkeypatch.setattr(_library, "library", lambda: lib)
    allocator = _allocator.Allocator(types.SimpleNamespace(rank=3, _end=None), 77, True)
    assert allocator.alloc(100, stream=5) == 0x7000
    allocator.record_stream(0x7000, 6)
    allocator.free(0x7000, stream=5)
    allocator.reserve(1 << 20)
    allocator.trim()
    assert allocator.stats == shunt.AllocatorStats(0, 0, 0, 0, 0)
    for size in (0, -1, 1 << 62):
        with pytest.raises(shunt.InvalidArgumentError, match="alloc: size"):
            allocator.alloc(size, stream=5)
    with pytest.raises(shunt.InvalidArgumentError):
        allocator.free(1.5)
    assert repr(allocator) == "<Allocator symmetric on rank 3>"
    allocator.close()
    allocator.close()
    assert repr(allocator) == "<Allocator closed on rank 3>"
    names = [call[0] for call in lib.calls]
    assert names == ["alloc", "record_stream", "free", "reserve", "trim", "get_stats", "destroy"]
    assert lib.calls[0][1:4] == (77, 100, 5)
    assert lib.calls[1][1:] == (77, 0x7000, 6) and lib.calls[2][1:] == (77, 0x7000, 5)
    with pytest.raises(shunt.ClosedError, match="the allocator is closed"):
        allocator.alloc(1)
