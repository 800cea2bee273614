"""The quick path of calls, by itself: shunt._calls."""

import ctypes
import gc
import sys

import numpy as np
import pytest

from conftest import NO_CALLS
from fake_tensors import Exchange, FakeTensor
from shunt import _library, _quick
from shunt._tables import DType, Op

P, Q, U, I = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32, ctypes.c_int32
COLLECTIVE = [P, P, P, Q, U, U, P]  # as shunt_all_reduce
TYPES = {np.dtype("f4"): DType.FLOAT32, np.dtype("f8"): DType.FLOAT64}


class Noted:
    """A function in C that notes its arguments and returns a status."""

    def __init__(self, *kinds, status=0):
        self.asked = []
        self.callback = ctypes.CFUNCTYPE(I, *kinds)(lambda *arguments: self.asked.append(arguments) or status)
        self.function = _quick.function(self.callback)


@pytest.fixture
def in_c():
    if _quick._calls is None:
        pytest.skip(NO_CALLS)
    return _quick._calls


def test_functions_of_the_library_are_in_c_where_they_take_numbers(in_c):
    lib = _library.library()
    own = type(in_c.function(1, ""))
    for name, kinds in _library._PROTOTYPES.items():
        plain = set(kinds) <= set(_quick._KINDS)
        assert isinstance(getattr(lib, name), own) == plain, name
    assert isinstance(lib.shunt_all_to_all_v, own) and not isinstance(lib.shunt_run, own)


EXTREMES = {P: (None, 0, 1, (1 << 64) - 1), Q: (-(1 << 63), -1, (1 << 63) - 1), U: (0, Op.MAX, (1 << 32) - 1),
            I: (-(1 << 31), -1, (1 << 31) - 1)}


@pytest.mark.parametrize("name",
                         [name for name, kinds in _library._PROTOTYPES.items() if set(kinds) <= set(_quick._KINDS)])
def test_arguments_arrive(way, name):
    kinds = _library._PROTOTYPES[name]
    noted = Noted(*kinds, status=-1)
    for turn in range(4):
        given = [EXTREMES[kind][(turn + i) % len(EXTREMES[kind])] for i, kind in enumerate(kinds)]
        assert noted.function(*given) == -1
        assert noted.asked.pop() == tuple(None if kind is P and value == 0 else value
                                          for kind, value in zip(kinds, given))


@pytest.mark.parametrize("kind, value, error", [
    ("p", -1, OverflowError), ("p", 1 << 64, OverflowError), ("p", 1.0, TypeError), ("p", "1", TypeError),
    ("p", b"1", TypeError),
    ("q", 1 << 63, OverflowError), ("q", -(1 << 63) - 1, OverflowError), ("q", 1.5, TypeError), ("q", None, TypeError),
    ("I", -1, OverflowError), ("I", 1 << 32, OverflowError), ("I", 1 << 70, OverflowError), ("I", "sum", TypeError),
    ("I", None, TypeError),
    ("i", 1 << 31, OverflowError), ("i", -(1 << 31) - 1, OverflowError), ("i", np.float32(1), TypeError),
    ("i", object(), TypeError),
])
def test_a_number_that_does_not_fit_is_refused(in_c, kind, value, error):
    noted = Noted({"p": P, "q": Q, "I": U, "i": I}[kind])
    assert noted.function(1) == 0
    with pytest.raises(error):
        noted.function(value)
    assert noted.asked == [(1,)]


def test_wrong_use_of_the_module_is_refused(in_c):
    noted, x = Noted(*COLLECTIVE), np.ones(4)
    for arguments in ((), (1,), (1,) * 6, (1,) * 8):
        with pytest.raises(TypeError, match="want 7"):
            noted.function(*arguments)
    for address, kinds in ((0, "p"), (1, "x"), (1, "pqIi%"), (1, "p" * 12)):
        with pytest.raises(ValueError, match="no function"):
            in_c.function(address, kinds)
    for arguments in ((), (1,), ("1", "p"), (1, 2)):
        with pytest.raises(TypeError):
            in_c.function(*arguments)
    for arguments in ((), (1, {}), (np.ndarray, []), (np.ndarray, {}, 1)):
        with pytest.raises(TypeError):
            in_c.arrays(*arguments)
    exchange = Exchange().capsule
    for arguments in ((np.ndarray, {}, 1, {}, exchange), (np.ndarray, {}, FakeTensor, [], exchange),
                      (np.ndarray, {}, FakeTensor, {}, object()), (np.ndarray, {}, FakeTensor, {}, exchange, 1)):
        with pytest.raises((TypeError, ValueError)):
            in_c.arrays(*arguments)
    for arguments in ((np.ndarray, {}), (np.ndarray, {}, object(), object()), (1, {}, object(), object())):
        with pytest.raises((TypeError, ValueError)):
            in_c.tensors(*arguments)
    described, quick = in_c.arrays(np.ndarray, TYPES)
    sends_of = Noted(P, P, Q, U, I, P).function
    for function in (None, 3, len, described, noted.callback, sends_of):
        with pytest.raises(TypeError, match="function of a collective"):
            quick(1, function, x, x, 1, 1, None, 0)
    for arguments, error in (((), TypeError), ((1, noted.function, x, x, 1, 1), TypeError),
                             ((1, noted.function, x, x, 1, 1, None), TypeError),
                             ((1, noted.function, x, x, 1, 1, None, 0, 0), TypeError),
                             ((1, noted.function, x, x, "1", 1, None, 0), TypeError),
                             ((1, noted.function, x, x, 1, 1 << 63, None, 0), OverflowError),
                             ((1, noted.function, x, x, 1, 1, None, -1), OverflowError),
                             (("1", noted.function, x, x, 1, 1, None, 0), TypeError),
                             ((1, noted.function, x, x, 1, 1, None, None), TypeError)):
        with pytest.raises(error):
            quick(*arguments)
    assert noted.asked == []
    wrong = in_c.arrays(np.ndarray, {np.dtype("f4"): "float32", np.dtype("f8"): 1 << 40})[1]
    for array, error in ((x.astype("f4"), TypeError), (x, OverflowError)):
        with pytest.raises(error):
            wrong(1, noted.function, array, array, 1, 1, None, 0)


def frozen(array):
    array.flags.writeable = False
    return array


class Subclass(np.ndarray):
    pass


STRANGE = {
    "list": [1.0], "None": None, "bytes": bytearray(8), "subclass": np.zeros(4, "f4").view(Subclass),
    "empty": np.zeros(0, "f4"),
    "dtype": np.zeros(4, "i2"), "swapped": np.zeros(4, ">f4"), "strided": np.zeros(8, "f4")[::2],
    "transposed": np.zeros((3, 4), "f4").T,
    "broadcast": np.broadcast_to(np.float32(1), 4), "read-only": frozen(np.zeros(4, "f4")), "objects": np.zeros(4, "O"),
    "scalar": np.float32(1),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_arrays_take_the_full_path(in_c, name):
    described, quick = _quick.arrays(np.ndarray, TYPES)
    noted, good, strange = Noted(*COLLECTIVE), np.ones(4, "f4"), STRANGE[name]
    assert described(strange) is None
    for send, recv, blocks in ((strange, good, (1, 1)), (good, strange, (1, 1)), (strange, strange, (1, 1)),
                               (strange, None, (1, 0)), (None, strange, (0, 1))):
        assert quick(7, noted.function, send, recv, *blocks, None, 0) is None
    assert noted.asked == []


def test_arrays_are_described(in_c):
    described, _ = _quick.arrays(np.ndarray, TYPES)
    for array in (np.zeros(4, "f4"), np.zeros((2, 3)), np.zeros((), "f8"), np.zeros((3, 1), "f4").T,
                  np.zeros(9, "f4")[5:], np.zeros((4, 4), "f4")[1]):
        address, count, dtype, gpu = described(array)
        assert (address, count, gpu) == (array.ctypes.data, array.size, None)
        assert dtype is TYPES[array.dtype]


def test_blocks(in_c):
    _, quick = _quick.arrays(np.ndarray, TYPES)
    noted = Noted(*COLLECTIVE, status=5)
    six, two, wide = np.ones(6, "f4"), np.ones(2, "f4"), np.ones(6, "f8")
    at, to = six.ctypes.data, two.ctypes.data
    for send, recv, blocks, want in (
        (six, six, (1, 1), (at, at, 6)), (six, two, (3, 1), (at, to, 2)), (two, six, (1, 3), (to, at, 2)),
        (six, six, (3, 3), (at, at, 2)),
        (six, None, (1, 0), (at, None, 6)), (None, six, (0, 3), (None, at, 2)), (two, two, (2, 0), (to, None, 1)),
    ):
        assert quick(7, noted.function, send, recv, *blocks, None, Op.MIN) == 5
        assert noted.asked.pop() == (7, *want, DType.FLOAT32, Op.MIN, None)
    for send, recv, blocks in ((six, two, (1, 1)), (six, two, (1, 3)), (six, six, (4, 4)), (two, six, (1, 4)),
                               (six, six, (1, 3)), (six, wide, (1, 1))):
        assert quick(7, noted.function, send, recv, *blocks, None, 0) is None
    assert quick(7, noted.function, six, six, 1, 1, 9, 0) is None, "host memory has no streams"
    assert noted.asked == []


HOST_TENSORS = {
    "another dtype": FakeTensor("int32", cuda=False), "of a GPU": FakeTensor(),
    "empty": FakeTensor(cuda=False, count=0),
    "strided": FakeTensor(cuda=False, contiguous=False), "negative": FakeTensor(cuda=False, negative=True),
    "with gradients": FakeTensor(cuda=False, requires_grad=True), "without memory": FakeTensor(cuda=False, at=0),
    "in vectors": FakeTensor("bfloat16x2", cuda=False), "not lent": FakeTensor("float4", cuda=False),
    "subclass": type("Sub", (FakeTensor,), {})(cuda=False),
}


@pytest.mark.parametrize("numpy", [True, False], ids=["beside numpy", "without numpy"])
def test_tensors_in_host_memory(in_c, numpy, monkeypatch):
    exchange = Exchange()
    monkeypatch.setattr(FakeTensor, "__dlpack_c_exchange_api__", exchange.capsule, raising=False)
    described, quick = _quick.arrays(np.ndarray if numpy else None, TYPES, FakeTensor, {4 << 8 | 16: DType.BFLOAT16})
    noted, good, x = Noted(*COLLECTIVE, status=5), FakeTensor(cuda=False), np.ones(6, "f4")
    at = good.data_ptr()
    assert described(good) == (at, 6, DType.BFLOAT16, None)
    other = FakeTensor(cuda=False, at=at + 64)
    for recv, blocks, want in ((good, (1, 1), (at, at, 6)), (other, (3, 3), (at, at + 64, 2)),
                               (None, (1, 0), (at, None, 6))):
        assert quick(7, noted.function, good, recv, *blocks, None, Op.MIN) == 5
        assert noted.asked.pop() == (7, *want, DType.BFLOAT16, Op.MIN, None)
    assert quick(7, noted.function, good, good, 1, 1, 9, 0) is None, "host memory has no streams"
    assert (described(x) is not None) == numpy
    for name, strange in {**HOST_TENSORS, "array": x}.items():
        if name != "array":
            assert described(strange) is None, name
        for send, recv in ((strange, good), (good, strange)):
            assert quick(7, noted.function, send, recv, 1, 1, None, 0) is None, name
    assert noted.asked == []


def test_what_a_tensor_raises_goes_on(in_c):
    """A mode of torch runs code of the program when a tensor is asked."""
    class Raising(FakeTensor):
        def is_neg(self):
            raise KeyboardInterrupt

    class Refusing(FakeTensor):
        requires_grad = property(lambda self: 1 / 0, lambda self, value: None)

    for kind, error in ((Raising, KeyboardInterrupt), (Refusing, ZeroDivisionError)):
        exchange, tensor = Exchange(), kind(cuda=False)
        described, quick = in_c.arrays(np.ndarray, {}, kind, {4 << 8 | 16: DType.BFLOAT16}, exchange.capsule)
        noted = Noted(*COLLECTIVE)
        with pytest.raises(error):
            described(tensor)
        with pytest.raises(error):
            quick(7, noted.function, tensor, tensor, 1, 1, None, 0)
        assert noted.asked == []


def test_nothing_leaks(in_c):
    """Neither references nor memory, in 20,000 calls of each path."""
    noted = Noted(*COLLECTIVE)
    described, quick = in_c.arrays(np.ndarray, TYPES)
    x, y, odd = np.ones(400, "f4"), np.ones(400, "f4"), np.zeros(8, "f4")[::2]
    address = ctypes.cast(noted.callback, P).value
    free = in_c.function(ctypes.cast(ctypes.CDLL(None).getpid, P).value, "")

    def swallow(call, *arguments):
        try:
            call(*arguments)
        except (TypeError, OverflowError, ValueError):
            return
        raise AssertionError("nothing was raised")

    exchange = Exchange()
    tensor, strided = FakeTensor(), FakeTensor(contiguous=False)
    host_tensor, gradients = FakeTensor(cuda=False), FakeTensor(cuda=False, requires_grad=True)
    types_of = {4 << 8 | 16: DType.BFLOAT16}
    host_described, host_quick = in_c.arrays(np.ndarray, TYPES, FakeTensor, types_of, exchange.capsule)
    tensor_described, tensor_quick = in_c.tensors(FakeTensor, {4 << 8 | 16: DType.BFLOAT16}, exchange.capsule, int)
    stream = 1 << 50
    paths = {
        "call": lambda: free(),
        "call with a number too large": lambda: swallow(noted.function, 1, 1, 1, 1 << 70, 1, 1, 1),
        "call with a text": lambda: swallow(noted.function, 1, 1, 1, 1, "1", 1, 1),
        "call with too little": lambda: swallow(noted.function, 1),
        "function": lambda: in_c.function(address, "pppqIIp"),
        "no function": lambda: swallow(in_c.function, address, "x"),
        "arrays": lambda: in_c.arrays(np.ndarray, {}),
        "described": lambda: described(x),
        "not described": lambda: (described(odd), described(None), described([])),
        "quick": lambda: quick(1, getpid, x, y, 1, 1, None, 0),
        "quick in place": lambda: quick(1, getpid, x, x, 1, 1, None, 0),
        "not quick": lambda: (quick(1, getpid, x, odd, 1, 1, None, 0), quick(1, getpid, x, y, 1, 3, None, 0)),
        "quick with a number too large": lambda: swallow(quick, 1, getpid, x, x, 1, 1, None, 1 << 40),
        "quick with a text": lambda: swallow(quick, "1", getpid, x, x, 1, 1, None, 0),
        "tensors": lambda: in_c.tensors(FakeTensor, {}, exchange.capsule, len),
        "arrays and tensors": lambda: in_c.arrays(np.ndarray, {}, FakeTensor, types_of, exchange.capsule),
        "host tensor": lambda: (host_described(host_tensor), host_described(gradients), host_described(tensor)),
        "quick host tensor": lambda: (host_quick(1, getpid, host_tensor, host_tensor, 1, 1, None, 0),
                                      host_quick(1, getpid, x, y, 1, 1, None, 0)),
        "tensor": lambda: (tensor_described(tensor), tensor_described(strided)),
        "quick tensor": lambda: tensor_quick(1, getpid, tensor, tensor, 1, 1, None, 0),
        "quick tensor in a stream": lambda: (tensor_quick(1, getpid, tensor, tensor, 1, 1, stream, 0),
                                             tensor_quick(1, getpid, tensor, tensor, 1, 1, "1099511627776", 0)),
        "quick without a function": lambda: swallow(quick, 1, len, x, x, 1, 1, None, 0),
    }
    getpid = in_c.function(ctypes.cast(ctypes.CDLL(None).getpid, P).value, "pppqIIp")
    watched = (None, x, y, odd, np.ndarray, x.dtype, DType.FLOAT32, TYPES, getpid, free, described, quick, swallow,
               tensor, stream, host_tensor, gradients, host_described, host_quick, types_of,
               tensor_described, exchange.capsule, DType.BFLOAT16)
    for name, path in paths.items():
        for _ in range(100):
            path()
        gc.collect()
        references, blocks = [sys.getrefcount(o) for o in watched], sys.getallocatedblocks()
        for _ in range(20_000):
            path()
        gc.collect()
        grown = [after - before for after, before in zip([sys.getrefcount(o) for o in watched], references)]
        assert all(abs(n) < 100 for n in grown), f"{name}: references grew by {grown}"
        assert sys.getallocatedblocks() - blocks < 1000, name


WAITING = """
    import ctypes, threading
    import numpy as np
    from shunt import _calls
    from shunt._tables import DType
    libc = ctypes.CDLL(None)
    semaphore = ctypes.create_string_buffer(64)
    at = ctypes.addressof(semaphore)
    assert libc.sem_init(semaphore, 0, 0) == 0
    wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
    call, collective, x = _calls.function(wait, "p"), _calls.function(wait, "pppqIp"), np.ones(4)
    quick = _calls.arrays(np.ndarray, {x.dtype: DType.FLOAT64})[1]
    for waits in (lambda: call(at), lambda: quick(at, collective, x, x, 1, 1, None)):
        waiting = threading.Event()
        def post():
            waiting.wait()
            libc.sem_post(semaphore)
        thread = threading.Thread(target=post, daemon=True)
        thread.start()
        waiting.set()
        assert waits() == 0
        thread.join()
"""


def test_other_threads_run_during_a_call(in_c, python):
    """The semaphore is posted by a thread that waits for the GIL."""
    done = python(WAITING, timeout=20)
    assert done.returncode == 0, done.stderr


def test_an_exchange_of_another_version_is_left_alone(in_c, monkeypatch):
    versions = Exchange(major=2), Exchange(major=0)
    for exchange in (versions[0].capsule, versions[1].capsule, object(), 4711):
        monkeypatch.setattr(FakeTensor, "__dlpack_c_exchange_api__", exchange, raising=False)
        assert _quick.tensors(FakeTensor, {}, int) == (_quick.nothing, _quick.nothing)
        described, quick = _quick.arrays(np.ndarray, TYPES, FakeTensor, {4 << 8 | 16: DType.BFLOAT16})
        assert described(FakeTensor(cuda=False)) is None and described(np.ones(2)) is not None


def test_without_the_module_everything_is_there(python):
    done = python("""
        import sys
        sys.modules["shunt._calls"] = None
        import numpy as np, shunt
        from shunt import _library, _quick
        assert _quick._calls is None
        with shunt.init(0, 1) as comm:
            x = np.ones(3)
            comm.broadcast(x)
            assert comm.all_reduce(x) is x and comm.all_gather(x, np.zeros(3)).tolist() == [1, 1, 1]
        assert type(_library.library().shunt_all_reduce).__module__ == "ctypes"
    """)
    assert done.returncode == 0, done.stderr


def test_interpreters_before_the_stable_abi_do_without(python):
    done = python("""
        import sys
        sys.version_info = (3, 10, 0)
        from shunt import _quick
        assert _quick._calls is None and "shunt._calls" not in sys.modules
    """)
    assert done.returncode == 0, done.stderr
