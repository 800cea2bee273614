"""Collectives that move bytes: every dtype, exactly."""

import warnings

import torch
import torch.distributed as dist

from torch_tests.registry import case

DTYPES = [getattr(torch, name) for name in (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz")
    if hasattr(torch, name)]
#: Each dtype with an odd count; none, one, and counts that fill a few pages and several chunks.
MIXED = [(13, d) for d in DTYPES] + [(n, torch.float32) for n in (0, 1, 5001, 300_007)] + [((3, 5, 7), torch.bfloat16)]


def join(how, tensors):
    """torch.cat or torch.stack, as bytes: not every dtype has them."""
    if any(t.numel() for t in tensors):
        return how([t.view(torch.uint8) for t in tensors]).view(tensors[0].dtype)
    return how(tensors)


@case(each=MIXED)
def broadcast(w, shape, dtype):
    for root in range(w.size):
        def run(group):
            t = w.own(shape, dtype)
            dist.broadcast(t, root, group=group)
            return t
        w.same(run, model=lambda: w.everyone(shape, dtype)[root])


@case(each=MIXED)
def all_gather(w, shape, dtype):
    def run(group):
        out = [w.empty(shape, dtype) for _ in range(w.size)]
        dist.all_gather(out, w.own(shape, dtype), group=group)
        return out
    w.same(run, model=lambda: w.everyone(shape, dtype))


@case(each=[(torch.float32,), (torch.int64,)])
def all_gather_uneven(w, dtype):
    """Lists of tensors of different sizes: gloo refuses them, nccl takes them."""
    def run(group):
        out = [w.empty(r + 1, dtype) for r in range(w.size)]
        dist.all_gather(out, w.everyone(w.size, dtype)[w.rank][:w.rank + 1].clone(), group=group)
        return out
    try:
        got = run(w.group)
    except (RuntimeError, ValueError) as error:
        w.needs(w.backend == "shunt", f"gloo: {error}")
        raise
    w._draws = 0
    w.equal(got, [t[:r + 1] for r, t in enumerate(w.everyone(w.size, dtype))])


@case(each=MIXED)
def all_gather_into_tensor(w, shape, dtype):
    def run(group):
        own = w.own(shape, dtype)
        out = w.empty((w.size * own.shape[0], *own.shape[1:]), dtype)
        dist.all_gather_into_tensor(out, own, group=group)
        return out
    w.same(run, model=lambda: join(torch.cat, w.everyone(shape, dtype)))


@case()
def all_gather_into_stacked(w):
    def run(group):
        out = w.empty((w.size, 3, 4))
        dist.all_gather_into_tensor(out, w.own((3, 4)), group=group)
        return out
    w.same(run, model=lambda: torch.stack(w.everyone((3, 4))))


@case()
def all_gather_in_place(w):
    def run(group):
        whole = w.empty(w.size * 6)
        mine = whole[w.rank * 6:w.rank * 6 + 6]
        mine.copy_(w.own(6, kind="real"))
        dist.all_gather_into_tensor(whole, mine, group=group)
        return whole
    w.same(run, model=lambda: torch.cat(w.everyone(6, kind="real")))


@case(each=MIXED)
def gather(w, shape, dtype):
    for root in range(w.size):
        def run(group):
            out = [w.empty(shape, dtype) for _ in range(w.size)] if w.rank == root else None
            dist.gather(w.own(shape, dtype), out, dst=root, group=group)
            return out
        w.same(run, model=lambda: w.everyone(shape, dtype) if w.rank == root else None)


@case(each=MIXED)
def scatter(w, shape, dtype):
    for root in range(w.size):
        def run(group):
            lists = [w.everyone(shape, dtype) for _ in range(w.size)]  # lists[to][from]
            out = w.empty(shape, dtype)
            dist.scatter(out, [lists[to][root] for to in range(w.size)] if w.rank == root else None, src=root,
                         group=group)
            return out
        w.same(run, model=lambda: [w.everyone(shape, dtype) for _ in range(w.size)][w.rank][root])


@case(each=MIXED)
def all_to_all(w, shape, dtype):
    def run(group):
        lists = [w.everyone(shape, dtype) for _ in range(w.size)]
        out = [w.empty(shape, dtype) for _ in range(w.size)]
        dist.all_to_all(out, [lists[to][w.rank] for to in range(w.size)], group=group)
        return out
    w.same(run, model=lambda: [w.everyone(shape, dtype) for _ in range(w.size)][w.rank])


@case()
def all_to_all_uneven_lists(w):
    def tensor(source, to):
        return torch.full((source + 2 * to,), float(10 * source + to), device=w.device)

    def run(group):
        out = [w.empty(source + 2 * w.rank) for source in range(w.size)]
        dist.all_to_all(out, [tensor(w.rank, to) for to in range(w.size)], group=group)
        return out
    w.same(run, model=lambda: [tensor(source, w.rank) for source in range(w.size)])


#: Calls of a list, another tensor and another list; they return where the result is.
WITHIN = {
    "all_gather": lambda out, one, _, root, group: dist.all_gather(out, one, group=group) or out,
    "reduce_scatter": lambda list_, one, _, root, group: dist.reduce_scatter(one, list_, group=group) or one,
    "gather": lambda out, one, _, root, group: dist.gather(one, out if root else None, 0, group=group) or out,
    "scatter": lambda list_, one, _, root, group: dist.scatter(one, list_ if root else None, 0, group=group) or one,
    "all_to_all": lambda out, _, list_, root, group: dist.all_to_all(out, list_, group=group) or out,
}


@case(each=[(name, which) for name in WITHIN for which in ("first", "last", "own")])
def list_that_holds_the_other_tensor(w, name, which):
    """The result is that of separate tensors, wherever the list's tensors lie."""
    w.needs(w.judged, "gloo overwrites what it still has to send, nccl's result depends on where tensors lie")
    at = {"first": 0, "last": w.size - 1, "own": w.rank}[which]
    whole = w.own(5 * w.size, kind="whole")

    def run(list_, one, others):
        return WITHIN[name](list_, one, others, w.rank == 0, w.group)
    apart = list(whole.clone().chunk(w.size))
    want = run(apart, apart[at].clone(), [t.clone() for t in apart])
    together = list(whole.clone().chunk(w.size))
    w.equal(run(together, together[at], together), want)
    pieces = [t.clone() for t in whole.chunk(w.size)]
    w.equal(run(pieces, pieces[at], pieces), want)


@case(each=MIXED)
def all_to_all_single(w, shape, dtype):
    def run(group):
        lists = [w.everyone(shape, dtype) for _ in range(w.size)]
        send = join(torch.stack, [lists[to][w.rank] for to in range(w.size)])
        out = w.empty(send.shape, dtype)
        dist.all_to_all_single(out, send, group=group)
        return out
    w.same(run, model=lambda: join(torch.stack, [w.everyone(shape, dtype) for _ in range(w.size)][w.rank]))


def _splits(w, rows):
    """rows[source][to] for each pair, the same on every rank."""
    g = torch.Generator().manual_seed(w.seed)
    return torch.randint(0, rows + 1, (w.size, w.size), generator=g).tolist()


@case(each=[(rows, width, dtype) for rows, width in ((0, 3), (1, 1), (5, 7), (900, 33))
            for dtype in (torch.float32, torch.bfloat16)]
      + [(5, 3, torch.bool), (5, 3, torch.complex64), (5, 3, torch.uint8), (5, 3, torch.float8_e4m3fn),
         (4, 3, torch.int16)])
def all_to_all_splits(w, rows, width, dtype):
    table = _splits(w, rows)

    def data():
        return w.everyone((w.size * rows, width), dtype)

    def run(group):
        to, come = table[w.rank], [table[source][w.rank] for source in range(w.size)]
        out = w.empty((sum(come), width), dtype)
        dist.all_to_all_single(out, data()[w.rank][:sum(to)].clone(), come, to, group=group)
        return out

    def model():
        parts = []
        for source, t in enumerate(data()):
            start = sum(table[source][:w.rank])
            parts.append(t[start:start + table[source][w.rank]])
        return join(torch.cat, parts)
    w.same(run, model=model)


@case()
def all_to_all_one_split_given(w):
    """Only the input's splits, or only the output's: the other is equal parts."""
    def run(group):
        out = w.empty((w.size * 2, 3))
        dist.all_to_all_single(out, w.own((w.size * 2, 3)), input_split_sizes=[2] * w.size, group=group)
        second = w.empty((w.size * 2, 3))
        dist.all_to_all_single(second, w.own((w.size * 2, 3)), output_split_sizes=[2] * w.size, group=group)
        return [out, second]

    def model():
        return [torch.cat([t[w.rank * 2:w.rank * 2 + 2] for t in w.everyone((w.size * 2, 3))]) for _ in range(2)]
    w.same(run, model=model)


@case()
def all_to_all_changing_splits(w):
    """New splits in each of many calls, empty rows and one-hot ones among them."""
    g = torch.Generator().manual_seed(7)
    for turn in range(60):
        table = torch.randint(0, 9, (w.size, w.size), generator=g)
        if turn % 5 == 0:
            table[:, turn % w.size] = 0
        if turn % 7 == 0:
            table.zero_()[:, turn % w.size] = 64
        table = table.tolist()
        send = torch.cat([torch.full((table[w.rank][to], 2), 100.0 * turn + 10 * w.rank + to)
                          for to in range(w.size)]).to(w.device)
        want = torch.cat([torch.full((table[s][w.rank], 2), 100.0 * turn + 10 * s + w.rank) for s in range(w.size)])
        out = torch.empty_like(want, device=w.device)
        dist.all_to_all_single(out, send, [table[s][w.rank] for s in range(w.size)], table[w.rank], group=w.group)
        w.equal(out, want)


@case(each=["lists", "tensors", "none"], worlds=(3,))
def all_to_all_single_of_shunt(w, how):
    """shunt.torch's function in its own group, and in one of another backend, of which it warns once."""
    from shunt.torch import _calls

    w.needs(w.judged, "gloo: the function is Shunt's")
    w.needs(w._truth_device == w.device, "gloo: has no tensors on GPUs")
    splits = {"lists": [2] * w.size, "tensors": torch.full((w.size,), 2), "none": None}[how]
    _calls._told.cache_clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for group in (w.group, w.truth, w.truth):
            everyone, out = w.everyone((2 * w.size, 3)), w.empty((2 * w.size, 3))
            _calls.all_to_all_single(out, everyone[w.rank], splits, splits, group=group)
            w.equal(out, torch.cat([whole[2 * w.rank:2 * w.rank + 2] for whole in everyone]))
    told = [str(t.message) for t in told if "shunt.torch" in str(t.message)]
    assert len(told) == (how == "tensors") and all(w.truth_backend in t for t in told), told
