"""Reductions: whole numbers exactly, random floats within rounding, every dtype and op that torch has."""

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from torch_tests.compare import rounding
from torch_tests.registry import case

INTS = [torch.int8, torch.uint8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OPS = ["SUM", "PRODUCT", "MIN", "MAX", "AVG"]
PAIRS = [(dtype, op) for dtype in INTS + FLOATS for op in OPS]
#: Counts that go by different algorithms, and none.
COUNTS = [0, 1, 7, 1023, 40_001, 500_003]


def reduced(tensors, op):
    """The exact result, worked out at a greater width and converted once; integers wrap."""
    dtype = tensors[0].dtype
    wide = torch.stack([t.double() if dtype.is_floating_point else t.long() for t in tensors])
    if op == "AVG":
        if dtype.is_floating_point:
            return (wide.sum(0) / len(tensors)).to(dtype)
        return torch.div(wide.sum(0).to(dtype).long(), len(tensors), rounding_mode="trunc").to(dtype)
    f = {"SUM": lambda x: x.sum(0), "PRODUCT": lambda x: x.prod(0), "MIN": lambda x: x.amin(0),
         "MAX": lambda x: x.amax(0),
         "BAND": lambda x: _fold(torch.bitwise_and, x), "BOR": lambda x: _fold(torch.bitwise_or, x),
         "BXOR": lambda x: _fold(torch.bitwise_xor, x)}[op]
    return f(wide).to(dtype)


def _fold(f, rows):
    out = rows[0]
    for row in rows[1:]:
        out = f(out, row)
    return out


def kind(dtype):
    """What data is exact: any integer wraps alike, floats are small whole numbers."""
    return "whole" if dtype.is_floating_point else "bits"


def bound(dtype, op, size):
    """AVG of whole numbers may need rounding: by 3 there is no end of digits."""
    return rounding(dtype, size, 2.0) if op == "AVG" and dtype.is_floating_point else 0.0


@case(each=PAIRS)
def all_reduce(w, dtype, op):
    def run(group):
        t = w.own(1001, dtype, kind(dtype))
        dist.all_reduce(t, op=getattr(ReduceOp, op), group=group)
        return t
    w.same(run, model=lambda: reduced(w.everyone(1001, dtype, kind(dtype)), op), atol=bound(dtype, op, w.size))


def entries(w, rank, shape, dense, dtype, count):
    """A sparse tensor of a rank: entries that others have too, some of them twice."""
    generator = torch.Generator().manual_seed(100 * rank + count)
    indices = torch.stack([torch.randint(0, n, (count,), generator=generator) for n in shape])
    values = torch.randint(-9, 10, (count, *dense), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(indices, values, (*shape, *dense)).to(w.device)


@case(each=[(shape, dense, dtype, count) for shape, dense in (((50,), ()), ((7, 9), ()), ((11,), (3, 2)))
            for dtype, count in ((torch.float32, 20), (torch.int64, 33), (torch.float64, 0))])
def all_reduce_sparse(w, shape, dense, dtype, count):
    """Each rank has entries of its own number, the last one none."""
    mine = [entries(w, rank, shape, dense, dtype, count * (w.size - 1 - rank)) for rank in range(w.size)]

    def run(group):
        t = mine[w.rank].clone()
        dist.all_reduce(t, group=group)
        assert t.is_coalesced() and t.indices().unique(dim=1).shape == t.indices().shape
        later = mine[w.rank].clone()
        dist.all_reduce(later, group=group, async_op=True).wait()
        return torch.stack([t.to_dense(), later.to_dense()])
    w.same(run, model=lambda: torch.stack([sum(m.to_dense() for m in mine)] * 2).to(dtype))


@case()
def all_reduce_sparse_lets_go(w):
    """What the tensor was made of is freed by the call, and used by the program again, while others still read it."""
    shape = (1 << 14, 64)

    def run(group):
        rows = torch.arange(shape[0], device=w.device)[None]
        t = torch.sparse_coo_tensor(rows, torch.full(shape, w.rank + 1.0, device=w.device), shape, is_coalesced=True)
        work = dist.all_reduce(t, group=group, async_op=True)
        again = [torch.full(shape, float("nan"), device=w.device) for _ in range(4)]
        work.wait()
        del again
        return t.to_dense()
    w.same(run, model=lambda: torch.full(shape, w.size * (w.size + 1) / 2))


@case(each=[(count, dtype) for count in COUNTS for dtype in (torch.float32, torch.bfloat16)])
def all_reduce_real(w, count, dtype):
    def run(group):
        t = w.own(count, dtype, "real")
        dist.all_reduce(t, group=group)
        return t
    w.same(run, model=lambda: reduced(w.everyone(count, dtype, "real"), "SUM"), atol=rounding(dtype, w.size))


@case(each=FLOATS, worlds=(3, 4))
def all_ranks_have_the_same_bits(w, dtype):
    t = w.own(4099, dtype, "real")
    dist.all_reduce(t, group=w.group)
    for copy in w.gathered(t):
        w.equal(copy, t)


@case(each=PAIRS, worlds=(2, 3))
def reduce(w, dtype, op):
    for root in range(w.size):
        def run(group):
            t = w.own(133, dtype, kind(dtype))
            dist.reduce(t, root, op=getattr(ReduceOp, op), group=group)
            return t if w.rank == root else None  # elsewhere torch leaves it undefined
        w.same(run, model=lambda: reduced(w.everyone(133, dtype, kind(dtype)), op) if w.rank == root else None,
               atol=bound(dtype, op, w.size))


@case(each=PAIRS, worlds=(2, 3))
def reduce_scatter_tensor(w, dtype, op):
    shape = (w.size * 11, 3)

    def run(group):
        out = w.empty((11, 3), dtype)
        dist.reduce_scatter_tensor(out, w.own(shape, dtype, kind(dtype)), op=getattr(ReduceOp, op), group=group)
        return out
    w.same(run, model=lambda: reduced(w.everyone(shape, dtype, kind(dtype)), op)[w.rank * 11:w.rank * 11 + 11],
           atol=bound(dtype, op, w.size))


@case(each=COUNTS)
def reduce_scatter_tensor_real(w, count):
    def run(group):
        out = w.empty(count)
        dist.reduce_scatter_tensor(out, w.own(count * w.size, kind="real"), group=group)
        return out
    w.same(run, atol=rounding(torch.float32, w.size), model=lambda: reduced(
        [t[w.rank * count:(w.rank + 1) * count] for t in w.everyone(count * w.size, kind="real")], "SUM"))


@case()
def reduce_scatter_in_place(w):
    def run(group):
        whole = w.own(w.size * 6, kind="whole")
        mine = whole[w.rank * 6:w.rank * 6 + 6]
        dist.reduce_scatter_tensor(mine, whole, group=group)
        return mine
    w.same(run, model=lambda: reduced(w.everyone(w.size * 6, kind="whole"), "SUM")[w.rank * 6:w.rank * 6 + 6])


@case(each=[(dtype, op) for dtype in (torch.int64, torch.float16, torch.float32) for op in OPS])
def reduce_scatter(w, dtype, op):
    def run(group):
        out = w.empty((5, 2), dtype)
        dist.reduce_scatter(out, [w.own((5, 2), dtype, kind(dtype)) for _ in range(w.size)], op=getattr(ReduceOp, op),
                            group=group)
        return out
    w.same(run, atol=bound(dtype, op, w.size),
           model=lambda: reduced([w.everyone((5, 2), dtype, kind(dtype)) for _ in range(w.size)][w.rank], op))


@case(worlds=(2, 4))
def reduce_scatter_uneven(w):
    """Parts of different sizes: gloo refuses them, nccl takes them."""
    def run(group):
        out = w.empty(w.rank + 1)
        dist.reduce_scatter(out, [w.own(to + 1, kind="whole") for to in range(w.size)], group=group)
        return out
    w.same(run, model=lambda: reduced([w.everyone(to + 1, kind="whole") for to in range(w.size)][w.rank], "SUM"))


@case(each=[torch.float16, torch.bfloat16, torch.float32, torch.float64])
def premultiplied_sum(w, dtype):
    """FSDP's op: a scalar times every input, then the sum. torch's nccl backend hands NCCL the scalar as a float32, of
    which NCCL reads the first two bytes for bfloat16: 0.5 becomes 0."""
    def run(group):
        t = w.own(257, dtype, "whole")
        dist.all_reduce(t, op=dist._make_nccl_premul_sum(0.5), group=group)
        return t
    w.same(run, truth=not (w.truth_backend == "nccl" and dtype == torch.bfloat16),
           model=lambda: (reduced([t.double() for t in w.everyone(257, dtype, "whole")], "SUM") * 0.5).to(dtype))


@case(each=[torch.complex64, torch.complex128])
def complex_sum(w, dtype):
    for op in ("SUM", "AVG"):
        def run(group):
            t = w.own(33, dtype, "whole")
            dist.all_reduce(t, op=getattr(ReduceOp, op), group=group)
            return t
        w.same(run, atol=rounding(torch.float32, w.size, 2.0), model=lambda: torch.view_as_complex(
            reduced([torch.view_as_real(t) for t in w.everyone(33, dtype, "whole")], op)))


@case(each=["SUM", "PRODUCT", "MIN", "MAX"])
def bool_all_reduce(w, op):
    """As nccl does: a sum or a maximum is or, a product or a minimum is and. gloo adds bytes, so that a bool is 2."""
    w.needs(w.backend != "gloo", "gloo: adds the bytes of bools")
    def run(group):
        t = w.own(65, torch.bool)
        dist.all_reduce(t, op=getattr(ReduceOp, op), group=group)
        return t

    def model():
        stacked = torch.stack(w.everyone(65, torch.bool))
        return stacked.any(0) if op in ("SUM", "MAX") else stacked.all(0)
    w.same(run, model=model, truth=False)


@case(each=[(dtype, op) for dtype in INTS for op in ("BAND", "BOR", "BXOR")])
def bitwise(w, dtype, op):
    """gloo has them, nccl has not: right or refused by name."""
    right_or_refused(w, dtype, op)


@case(each=[(dtype, "SUM") for dtype in (torch.int16, torch.uint16, torch.uint32, torch.uint64)]
      + [(torch.complex64, "PRODUCT"), (torch.float32, "BAND")])
def rare(w, dtype, op):
    """What neither gloo nor nccl reduces: right, or refused by name on every rank."""
    right_or_refused(w, dtype, op)


def _reraise(error):
    def f():
        raise error
    return f


def right_or_refused(w, dtype, op):
    t = w.own(65, dtype, "whole")
    before = t.clone()
    try:
        dist.all_reduce(t, op=getattr(ReduceOp, op), group=w.group)
    except (RuntimeError, ValueError, TypeError) as error:
        w.needs(w.judged, f"{w.backend}: {str(error).splitlines()[0]}")
        w.raises(_reraise(error), "all_reduce")
        named = str(dtype).removeprefix("torch.") in str(error) or op.lower() in str(error).lower()
        assert named, f"names neither dtype nor op: {error}"
        w.equal(t, before)
        # The group is usable afterwards.
        one = torch.ones(3, device=w.device)
        dist.all_reduce(one, group=w.group)
        w.equal(one, torch.full((3,), float(w.size)))
        return
    w._draws = 0
    w.equal(t, reduced(w.everyone(65, dtype, "whole"), op))


@case(worlds=(2, 4))
def float8_sum(w):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        def run(group):
            t = w.own(64, dtype, "whole")
            dist.all_reduce(t, group=group)
            return t
        w.same(run, model=lambda: reduced([t.float() for t in w.everyone(64, dtype, "whole")], "SUM").to(dtype))


@case()
def many_in_a_row(w):
    """300 calls of different collectives and sizes, one result checked after another."""
    g = torch.Generator().manual_seed(w.seed)
    for turn in range(300):
        count = int(torch.randint(0, 3000, (), generator=g))
        what = int(torch.randint(0, 4, (), generator=g))
        base = torch.arange(count, device=w.device, dtype=torch.float32) % 97 + turn
        if what == 0:
            t = base + w.rank
            dist.all_reduce(t, group=w.group)
            w.equal(t, base * w.size + sum(range(w.size)))
        elif what == 1:
            t = base + w.rank
            dist.broadcast(t, turn % w.size, group=w.group)
            w.equal(t, base + turn % w.size)
        elif what == 2:
            out = w.empty((w.size, count))
            dist.all_gather_into_tensor(out.view(-1), base + w.rank, group=w.group)
            w.equal(out, torch.stack([base + r for r in range(w.size)]))
        else:
            out = w.empty(count)
            dist.reduce_scatter_tensor(out, (base + w.rank).repeat(w.size), group=w.group)
            w.equal(out, base * w.size + sum(range(w.size)))
