"""Tensors of a torch that is not there."""

import ctypes

from shunt import _dlpack


class FakeTensor:
    """As much of torch.Tensor as is looked at."""

    DLPACK = {"bfloat16": (4, 16, 1), "bfloat16x2": (4, 16, 2), "complex32": (5, 32, 1), "int64": (0, 64, 1),
              "int32": (0, 32, 1)}

    def __init__(self, dtype="bfloat16", contiguous=True, cuda=True, count=6, shape=(2, 3), at=0x7F0000002000,
                 negative=False, requires_grad=False):
        self.dtype, self.is_cuda, self.device, self.shape = dtype, cuda, 0, shape
        self.negative, self.requires_grad = negative, requires_grad
        self._contiguous, self._count, self._at = contiguous, count, at

    def read(self, *what):
        raise AssertionError("a tensor of a GPU was read, which waits for the GPU")

    __len__ = __iter__ = __getitem__ = __index__ = __bool__ = tolist = item = read

    def dim(self):
        return len(self.shape)

    def is_contiguous(self):
        return self._contiguous

    def is_conj(self):
        return self.dtype == "conj of complex64"

    def is_neg(self):
        return self.negative or self.dtype == "neg of complex64"

    def numel(self):
        return self._count

    def element_size(self):
        return 2

    def get_device(self):
        return self.device

    def data_ptr(self):
        return self._at


class Exchange:
    """What is behind __dlpack_c_exchange_api__ of FakeTensor's, as dlpack.h has it."""

    def __init__(self, major=1):
        def look(tensor, into):
            if tensor.dtype not in FakeTensor.DLPACK:
                return -1
            code, bits, lanes = FakeTensor.DLPACK[tensor.dtype]
            tensor.extent = (ctypes.c_int64 * 2)(1, tensor.numel())
            tensor.steps = (ctypes.c_int64 * 2)(99, 1 if tensor.is_contiguous() else 2)
            at = tensor.data_ptr()
            into[0] = _dlpack._Tensor(data=at and at - 16, byte_offset=16 if at else 0,
                                      device_type=2 if tensor.is_cuda else 1, device_id=tensor.get_device(),
                                      ndim=2, code=code, bits=bits, lanes=lanes, shape=tensor.extent,
                                      strides=tensor.steps)
            return 0

        def current_stream(kind, gpu, into):
            assert kind == 2
            into[0] = 4712 + gpu
            return 0

        self.look = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_dlpack._Tensor))(look)
        self.current_stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32,
                                                ctypes.POINTER(ctypes.c_void_p))(current_stream)
        functions = [ctypes.cast(f, ctypes.c_void_p).value for f in (self.look, self.current_stream)]
        self.struct = (ctypes.c_uint64 * 7)(3 << 32 | major, 0, 0, 0, 0, *functions)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = new(ctypes.addressof(self.struct), b"dlpack_exchange_api", None)
