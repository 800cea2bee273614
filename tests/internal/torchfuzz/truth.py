"""What every buffer must hold, computed from the seed alone.

Content comes from one table of random bytes that all ranks have: the tag of a call and a rank say where in it the
rank's data begins. What is only moved has random bits. What is reduced has numbers whose every partial result is exact
in its dtype, whatever the order, so a result has one right value and is compared bit for bit.
"""

import dataclasses
import hashlib
from typing import Any

from plan import REDUCES, Call

#: Largest whole number below which all whole numbers are exact.
_EXACT = {"float8_e5m2": 8, "float8_e4m3": 16, "bfloat16": 256, "float16": 2048, "float32": 1 << 20, "float64": 1 << 20}
#: Room in the table for where content begins.
ROOM = 1 << 20


def table_bytes(longest: int) -> int:
    """Bytes of a table for buffers of up to so many bytes."""
    return longest + ROOM + 4096


@dataclasses.dataclass
class Piece:
    """A part of a receive buffer: n elements at to are the elements of rank (of the communicator) from first on, or
    with rank None the reduction of all ranks' ones."""

    to: int
    n: int
    rank: int | None
    first: int


@dataclasses.dataclass
class Layout:
    """The buffers of one rank in a call, in elements; None where it has none. In place one lies in the other at
    inside."""

    send: int | None
    recv: int | None
    pieces: list[Piece]
    inside: int = 0


def displs_of(counts: Any, displs: Any) -> Any:
    """Displacements, packed if none are given."""
    if displs:
        return displs
    return tuple(sum(counts[:i]) for i in range(len(counts)))


def extent(counts: Any, displs: Any) -> int:
    return max((n + at for n, at in zip(counts, displs) if n), default=0)


def layout(call: Call, me: int) -> Layout:
    """The buffers of rank me of the communicator."""
    world, n, root = len(call.members), call.count, call.root
    match call.collective:
        case "barrier":
            return Layout(None, None, [])
        case "all_reduce":
            return Layout(n, n, [Piece(0, n, None, 0)])
        case "reduce":
            return Layout(n, n, [Piece(0, n, None, 0)]) if me == root else Layout(n, None, [])
        case "broadcast":
            return Layout(n if me == root else None, n, [Piece(0, n, root, 0)])
        case "all_to_all":
            return Layout(n * world, n * world, [Piece(r * n, n, r, me * n) for r in range(world)])
        case "all_to_all_v" | "messages":
            return _exchange(call, me)
    counts = call.counts or (n,) * world
    displs = displs_of(counts, call.send_displs)
    whole, mine, at = extent(counts, displs), counts[me], displs[me]
    match call.collective:
        case "all_gather" | "all_gather_v" | "gather" | "gather_v":
            if call.collective.startswith("gather") and me != root:
                return Layout(mine, None, [])
            return Layout(mine, whole, [Piece(displs[r], counts[r], r, 0) for r in range(world)], at)
        case "reduce_scatter" | "reduce_scatter_v":
            return Layout(whole, mine, [Piece(0, mine, None, at)], at)
        case "scatter" | "scatter_v":
            return Layout(whole if me == root else None, mine, [Piece(0, mine, root, at)], at)
    raise ValueError(call.collective)


def _exchange(call: Call, me: int) -> Layout:
    world = len(call.members)
    come = tuple(call.counts[r][me] for r in range(world))
    here = displs_of(come, call.recv_displs[me] if call.recv_displs else ())
    there = [displs_of(call.counts[r], call.send_displs[r] if call.send_displs else ()) for r in range(world)]
    return Layout(call.send_room or extent(call.counts[me], there[me]), call.recv_room or extent(come, here),
                  [Piece(here[r], come[r], r, there[r][me]) for r in range(world)])


class Truth:
    """Computes content with arrays (see arrays.py), from a seed and the table made of it."""

    def __init__(self, arrays: Any, seed: int) -> None:
        self.arrays, self.seed = arrays, seed

    def bits(self, what: str, tag: int, rank: int, first: int, n: int) -> Any:
        """n random bytes from byte first of a stream on."""
        text = f"{self.seed}/{what}/{tag}/{rank}".encode()
        place = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") % (ROOM // 8) * 8
        return self.arrays.table[place + first:place + first + n]

    def sent(self, call: Call, rank: int, first: int, n: int) -> Any:
        """Bytes of n elements of a rank's send buffer from element first on."""
        if call.collective in REDUCES and (call.op == "avg" or call.dtype in _EXACT):
            return self.arrays.cast(self._numbers(call, rank, first, n), call.dtype)
        return self.bits("data", call.tag, call.members[rank], first * call.size, n * call.size)

    def reduced(self, call: Call, first: int, n: int) -> Any:
        """Bytes of the reduction of all ranks' n elements from element first on."""
        if call.dtype in _EXACT:
            return self._floats(call, first, n)
        return self._integers(call, first, n)

    def _numbers(self, call: Call, rank: int, first: int, n: int) -> Any:
        """The elements as float32: whole numbers, or for prod powers of two."""
        world, a = len(call.members), self.arrays
        raw = self.bits("data", call.tag, call.members[rank], first, n)
        if call.dtype not in _EXACT:  # the mean of integers, which rounds toward zero
            return a.whole(raw, 7) if call.dtype.startswith("int") else a.whole(raw, 7) + 7
        if call.op == "prod":
            return a.powers(raw)
        exact = _EXACT[call.dtype]
        if call.op in ("min", "max"):
            return a.whole(raw, min(exact, 127))
        most = max(1, min(exact // world, 100))
        if call.op == "premul_sum" and len(set(call.scalars)) > 1:
            most //= 2
        numbers = a.whole(raw, most)
        return numbers * world if call.op == "avg" else numbers

    def _floats(self, call: Call, first: int, n: int) -> Any:
        total = None
        for rank in range(len(call.members)):
            value = self._numbers(call, rank, first, n)
            if call.op == "premul_sum":
                value = value * call.scalars[rank]
            total = value if total is None else self._combine(call.op, total, value)
        if call.op == "avg":
            total = total / len(call.members)
        return self.arrays.cast(total, call.dtype)

    def _integers(self, call: Call, first: int, n: int) -> Any:
        a, size = self.arrays, call.size
        # The least number turns the order of unsigned numbers into that of signed ones.
        flip = -(1 << 8 * size - 1) if call.op in ("min", "max") and call.dtype.startswith("u") else 0
        total = None
        for rank in range(len(call.members)):
            value = a.integers(self.sent(call, rank, first, n), size)
            if call.op == "premul_sum":
                value = value * call.scalars[rank]
            if flip:
                value = value ^ flip
            total = value if total is None else self._combine(call.op, total, value)
        if call.op == "avg":
            total = a.quotient(total, len(call.members))
        if flip:
            total = total ^ flip
        return a.bytes(total)

    def _combine(self, op: str, x: Any, y: Any) -> Any:
        match op:
            case "prod":
                return x * y
            case "min":
                return self.arrays.minimum(x, y)
            case "max":
                return self.arrays.maximum(x, y)
        return x + y
