"""Tensors in host memory as buffers of shunt.Communicator: each kind by the quick path and by the full one, which must
not differ in what they take nor in what they say."""

import warnings

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode

import shunt
from shunt import _buffers, _quick


class Sub(torch.Tensor):
    pass


def fake():
    with FakeTensorMode():
        return torch.ones(3)


def freed():
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def of_inference():
    with torch.inference_mode():
        return torch.ones(3)


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)


def nested(layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


COMPLEX = torch.ones(3, dtype=torch.complex64)
GRADIENT = "cannot be lent through DLPack: Can't export tensors that require gradient"
LAYOUT = "cannot be lent through DLPack: Can't export tensors with layout other than torch.strided"
NEGATIVE = "tensor stands for the conjugate or the negative of its memory"
NOT_OURS = "is none of Shunt's dtypes"
NO_MEMORY = "of shape [3] has no memory"

#: How to make each kind, and what is said of it; None: it is taken.
KINDS = {
    "of two dimensions": (lambda: torch.ones(2, 3), None),
    "of none": (lambda: torch.tensor(1.0), None),
    "empty": (lambda: torch.ones(0), None),
    "empty and strided": (lambda: torch.ones(0, 3).t(), None),
    "a part": (lambda: torch.ones(9)[4:], None),
    "of one row": (lambda: torch.ones(1, 3).t(), None),
    "expanded to one": (lambda: torch.ones(1).expand(1), None),
    "strided": (lambda: torch.ones(6)[::2], "not contiguous"),
    "transposed": (lambda: torch.ones(2, 3).t(), "not contiguous"),
    "expanded": (lambda: torch.ones(1).expand(3), "not contiguous"),
    "channels last": (lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), "not contiguous"),
    "negative": (lambda: torch._neg_view(torch.ones(3)), NEGATIVE),
    "negative of one": (lambda: torch.ones(1, dtype=torch.complex64).conj().imag, NEGATIVE),
    "conjugate": (lambda: COMPLEX.conj(), NEGATIVE),
    "complex": (lambda: COMPLEX, NOT_OURS),
    "bool": (lambda: torch.ones(3, dtype=torch.bool), NOT_OURS),
    "int16": (lambda: torch.ones(3, dtype=torch.int16), NOT_OURS),
    "uint16": (lambda: torch.ones(3, dtype=torch.uint16), NOT_OURS),
    "float8_e4m3fnuz": (lambda: torch.ones(3).to(torch.float8_e4m3fnuz), NOT_OURS),
    "with gradient": (lambda: torch.ones(3, requires_grad=True), GRADIENT),
    "computed with gradient": (lambda: torch.ones(3, requires_grad=True) * 2, GRADIENT),
    "detached": (lambda: torch.ones(3, requires_grad=True).detach(), None),
    "parameter": (lambda: torch.nn.Parameter(torch.ones(3)), GRADIENT),
    "data of a parameter": (lambda: torch.nn.Parameter(torch.ones(3)).data, None),
    "frozen parameter": (lambda: torch.nn.Parameter(torch.ones(3), requires_grad=False), None),
    "subclass": (lambda: torch.ones(3).as_subclass(Sub), None),
    "of inference": (of_inference, None),
    "lazily copied": (lambda: torch._lazy_clone(torch.ones(3)), None),
    "shared": (lambda: torch.ones(3).share_memory_(), None),
    "sparse": (lambda: torch.ones(3).to_sparse(), LAYOUT),
    "of compressed rows": (lambda: torch.ones(3, 3).to_sparse_csr(), LAYOUT),
    "of mkldnn": (lambda: torch.ones(3).to_mkldnn(), LAYOUT),
    "jagged": (lambda: nested(torch.jagged), LAYOUT),
    "nested": (lambda: nested(torch.strided), "cannot be lent through DLPack"),
    "quantized": (quantized, "cannot be lent through DLPack: QUInt/QInt types are not supported"),
    "meta": (lambda: torch.ones(3, device="meta"), "cannot be lent through DLPack: Cannot pack tensors on meta"),
    "fake": (fake, NO_MEMORY),
    "functional": (lambda: torch._to_functional_tensor(torch.ones(3)), NO_MEMORY),
    "lazy zeros": (lambda: torch._efficientzerotensor(3), NO_MEMORY),
    "freed": (freed, NO_MEMORY),
    **{str(dtype).removeprefix("torch."): (lambda dtype=dtype: torch.ones(3).to(dtype), None) for dtype in (
        torch.int8, torch.uint8, torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16, torch.bfloat16,
        torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2)},
}


@pytest.fixture(params=["quick", "full"])
def comm(request, monkeypatch):
    with shunt.init(0, 1) as comm:
        comm.all_reduce(torch.ones(1))  # shows what a tensor is
        if request.param == "full":
            monkeypatch.setattr(_buffers, "quick", _quick.nothing)
            monkeypatch.setattr(_buffers, "described", _quick.nothing)
        elif _buffers.described(torch.ones(1)) is None:
            pytest.skip("torch before 2.10, or an interpreter without shunt._calls, has no quick path for tensors")
        yield comm


CALLS = {
    "all_reduce": lambda comm, given: comm.all_reduce(given),
    "all_reduce into": lambda comm, given: comm.all_reduce(torch.ones(given.shape, dtype=given.dtype), given),
    "broadcast": lambda comm, given: comm.broadcast(given),
    "all_gather_v": lambda comm, given: comm.all_gather_v(given, given, [given.numel()]),
    "start": lambda comm, given: comm.start("all_reduce", given).wait(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["all_reduce", "start"])
def test_every_kind_of_tensor(comm, call, kind):
    make, refusal = KINDS[kind]
    given = make()
    if refusal is None:
        before = given.tolist()
        assert CALLS[call](comm, given) is given
        assert given.tolist() == before
        return
    with pytest.raises(shunt.InvalidArgumentError) as refused:
        CALLS[call](comm, given)
    assert str(refused.value).startswith("all_reduce on rank 0: send: ") and refusal in str(refused.value)


@pytest.mark.parametrize("call", CALLS)
def test_the_memory_of_a_tensor_is_what_a_call_works_on(comm, call):
    for given in (torch.arange(6, dtype=torch.float64).reshape(2, 3), torch.arange(9.0)[4:]):
        was = given.clone()
        assert CALLS[call](comm, given) is given
        assert torch.equal(given, torch.ones_like(was) if call.endswith("into") else was)


def test_results_go_between_tensors(comm):
    send, recv = torch.arange(4.0), torch.zeros(4)
    assert comm.all_reduce(send, recv, op="max") is recv and torch.equal(send, recv)
    assert torch.equal(comm.all_reduce(send, recv, "premul_sum", scalar=2), 2 * send)
    array = torch.zeros(4).numpy()
    assert comm.all_reduce(send, array) is array and array.tolist() == [0, 1, 2, 3]
    assert comm.all_reduce(array, recv) is recv and torch.equal(recv, send)
    with pytest.raises(shunt.InvalidArgumentError, match="send holds float32, recv holds float64"):
        comm.all_reduce(send, torch.zeros(4, dtype=torch.float64))
    with pytest.raises(shunt.InvalidArgumentError, match="recv has 3 elements, want 4"):
        comm.all_reduce(send, torch.zeros(3))


def test_under_transforms_and_modes(comm):
    x = torch.ones(3)

    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    for mode in (Mode(), FakeTensorMode(), torch.device("cpu"), torch.device("meta"), torch.no_grad(),
                 torch.inference_mode()):
        with mode:
            assert comm.all_reduce(x) is x and comm.start("all_reduce", x).wait() is x
    for transformed, refusal in (
        (lambda: torch.func.vmap(comm.all_reduce)(torch.ones(2, 3)), "doesn't have storage"),
        (lambda: torch.func.jvp(comm.all_reduce, (x,), (x,)), "doesn't have storage"),
        (lambda: torch.func.grad(lambda x: comm.all_reduce(x).sum())(x), "require gradient"),
        (lambda: torch.func.functionalize(lambda x: comm.all_reduce(x))(x), "has no memory"),
    ):
        with pytest.raises(shunt.InvalidArgumentError, match=refusal):
            transformed()


def test_an_operation_keeps_the_memory_that_a_tensor_had(comm):
    x = torch.ones(1 << 16)
    at = x.data_ptr()
    prepared = _buffers.describe(x, "send", True)
    x.data = torch.zeros(1)
    others = [torch.zeros(1 << 16) for _ in range(16)]
    assert prepared.address == at and at not in [other.data_ptr() for other in others]
