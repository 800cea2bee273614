"""What a run does, as data: every rank draws the same steps from the seed.

An epoch is a list of steps. Facts that all ranks must agree on (collective, counts, communicator, when a graph is
captured) are drawn here; facts of one rank (addresses, offsets, streams, when memory is freed) are drawn by runner.py
from a generator of that rank. Nothing is communicated.
"""

import dataclasses
import random
from typing import Iterator

SIZES = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2,
         "float32": 4,
         "float64": 8, "float8_e4m3": 1, "float8_e5m2": 1}
DTYPES = tuple(SIZES)
OPS = ("sum", "prod", "min", "max", "avg", "premul_sum")

#: Collectives by how often they are drawn. "messages" is a group of sends and receives.
WEIGHTS = {"all_reduce": 6, "reduce": 2, "broadcast": 3, "all_gather": 4, "all_gather_v": 2, "reduce_scatter": 4,
           "reduce_scatter_v": 2, "all_to_all": 4, "all_to_all_v": 5, "gather": 2, "gather_v": 2, "scatter": 2,
           "scatter_v": 2,
           "messages": 4, "barrier": 1}
REDUCES = {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v"}
ROOTED = {"reduce", "broadcast", "gather", "gather_v", "scatter", "scatter_v"}
NEVER_IN_PLACE = {"all_to_all", "all_to_all_v", "messages", "barrier"}
#: Collectives that may receive into symmetric memory: all ranks do so at the same offset.
SYMMETRIC = ("all_reduce", "all_gather", "all_to_all", "broadcast", "scatter")


@dataclasses.dataclass(frozen=True)
class Call:
    """One collective of one communicator. Lengths are in elements."""

    tag: int                            # all content follows from it
    collective: str
    members: tuple[int, ...]            # ranks of the job, by rank in the communicator
    dtype: str = "uint8"
    op: str = "sum"
    scalars: tuple[int, ...] = ()       # of premul_sum, by rank
    root: int = 0
    in_place: bool = False
    count: int = 0                      # of equal blocks
    counts: tuple = ()                  # of blocks, by rank; by sender and receiver in all_to_all_v and messages
    send_displs: tuple = ()             # as counts; () means packed and not given
    recv_displs: tuple = ()             # by receiver and sender
    counts_on_device: bool = False
    send_room: int = 0                  # elements of the buffers where counts come from the device
    recv_room: int = 0

    @property
    def size(self) -> int:
        return SIZES[self.dtype]

    def __str__(self) -> str:
        parts = [f"#{self.tag} {self.collective}"]
        if self.collective != "barrier":
            parts.append(self.dtype)
        if self.collective in REDUCES:
            parts.append(self.op)
        if self.collective in ROOTED:
            parts.append(f"root {self.root}")
        if self.counts:
            parts.append(f"counts {self.counts}{' on the device' if self.counts_on_device else ''}"
                         f"{' with displacements' if self.send_displs or self.recv_displs else ''}")
        elif self.collective != "barrier":
            parts.append(f"count {self.count}")
        if self.in_place:
            parts.append("in place")
        return " ".join(parts) + f" of ranks {self.members}"


#: One call for each group of a communicator whose ranks were split; a rank runs that of its own group.
Calls = tuple[Call, ...]


@dataclasses.dataclass(frozen=True)
class Run:
    comm: int
    calls: Calls


@dataclasses.dataclass(frozen=True)
class Registered:
    """Memory is registered, received into and deregistered."""

    comm: int
    symmetric: bool
    bytes: int
    at: int                             # offset in bytes of symmetric memory
    runs: tuple[Calls, ...]


@dataclasses.dataclass(frozen=True)
class Windowed:
    """A window is made, written and read by peers, and freed."""

    comm: int
    tag: int
    bytes: int                          # for each peer
    turns: int


@dataclasses.dataclass(frozen=True)
class Split:
    comm: int                           # that is split
    made: int
    groups: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Close:
    comm: int


@dataclasses.dataclass(frozen=True)
class Capture:
    graph: int
    parts: tuple[Run, ...]


@dataclasses.dataclass(frozen=True)
class Replay:
    graph: int
    parts: tuple[Run, ...]              # the captured calls with the content of this replay
    times: int


@dataclasses.dataclass(frozen=True)
class Forget:
    graph: int


Step = Run | Registered | Windowed | Split | Close | Capture | Replay | Forget
WORLD = 0  # the communicator of all ranks


@dataclasses.dataclass(frozen=True)
class Limits:
    """What an epoch may hold."""

    steps: int = 300
    bytes: int = 48 << 20               # of a buffer; one in two hundred is up to four times as long
    communicators: int = 3
    graphs: int = 6


class Epoch:
    """The steps of one epoch."""

    def __init__(self, seed: int, number: int, world: int, limits: Limits, on_device: bool) -> None:
        self.random = random.Random(f"{seed}/{number}")
        self.limits, self.on_device = limits, on_device
        self.tag = number * 1_000_000
        self.comms = {WORLD: (tuple(range(world)),)}
        self.graphs: dict[int, tuple[Run, ...]] = {}
        self.next = 1

    def steps(self) -> Iterator[Step]:
        for _ in range(self.limits.steps):
            kind = self.random.choices(("run", "registered", "window", "split", "close", "capture", "replay", "forget"),
                                       (80, 1, 1, 1.5, 1.2, 4, 16, 2.5))[0]
            step = getattr(self, "_" + kind)()
            if step is not None:
                yield step
        for graph in list(self.graphs):
            yield self._forget(graph)
        for comm in sorted(self.comms, reverse=True):
            if comm != WORLD:
                yield Close(comm)

    # ---- steps; None where one makes no sense now ----

    def _run(self) -> Run:
        comm = self._comm()
        return Run(comm, self._calls(comm))

    def _registered(self) -> Registered:
        comm, symmetric = self._comm(), self.random.random() < 0.5
        at, most = 8 * self.random.randrange(64), min(self.limits.bytes, 4 << 20) // 8 * 8
        runs = tuple(self._calls(comm, most, SYMMETRIC if symmetric else None)
                     for _ in range(self.random.randrange(1, 4)))
        return Registered(comm, symmetric, 4 * most + 4096, at, runs)

    def _window(self) -> Windowed:
        return Windowed(self._comm(), self._tag(), self._bytes(min(self.limits.bytes, 1 << 20)),
                        self.random.randrange(1, 4))

    def _split(self) -> Split | None:
        if len(self.comms) >= self.limits.communicators:
            return None
        comm = self._comm()
        groups: list[tuple[int, ...]] = []
        for members in self.comms[comm]:
            ranks = list(members)
            self.random.shuffle(ranks)
            cut = self.random.choice((0, self.random.randrange(len(ranks))))
            groups += [tuple(part) for part in (ranks[:cut], ranks[cut:]) if part]
        made, self.next = self.next, self.next + 1
        self.comms[made] = tuple(groups)
        return Split(comm, made, tuple(groups))

    def _close(self) -> Close | None:
        comm = self._comm()
        if comm == WORLD:
            return None
        del self.comms[comm]
        # A graph outlives the communicators of its calls; it must not be launched any more.
        for graph, parts in self.graphs.items():
            if any(part.comm == comm for part in parts):
                self.graphs[graph] = ()
        return Close(comm)

    def _capture(self) -> Capture | None:
        if len(self.graphs) >= self.limits.graphs:
            return None
        parts = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            comm = self._comm()
            parts.append(Run(comm, self._calls(comm, min(self.limits.bytes, 8 << 20))))
        graph, self.next = self.next, self.next + 1
        self.graphs[graph] = tuple(parts)
        return Capture(graph, tuple(parts))

    def _replay(self) -> Replay | None:
        alive = [graph for graph, parts in self.graphs.items() if parts]
        if not alive:
            return None
        graph = self.random.choice(alive)
        parts = tuple(Run(part.comm, tuple(self._again(call) for call in part.calls)) for part in self.graphs[graph])
        # What is received in place is sent by the next replay: only one computes what is expected.
        in_place = any(call.in_place or call.collective == "broadcast" for part in parts for call in part.calls)
        return Replay(graph, parts, 1 if in_place else self.random.choice((1, 1, 2, 4)))

    def _forget(self, graph: int | None = None) -> Forget | None:
        if not self.graphs:
            return None
        graph = self.random.choice(list(self.graphs)) if graph is None else graph
        del self.graphs[graph]
        return Forget(graph)

    # ---- calls ----

    def _tag(self) -> int:
        self.tag += 1
        return self.tag

    def _comm(self) -> int:
        return self.random.choice(list(self.comms))

    def _bytes(self, most: int) -> int:
        if self.random.random() < 0.005:
            most *= 4
        bytes = int(2 ** self.random.uniform(0, (most - 1).bit_length()))
        if self.random.random() < 0.3:  # around a power of two, where protocols change
            bytes = (1 << bytes.bit_length()) + self.random.choice((-17, -16, -8, -1, 0, 0, 0, 1, 8, 16))
        return max(1, min(bytes, most))

    def _calls(self, comm: int, most: int | None = None, collectives: tuple[str, ...] | None = None) -> Calls:
        return tuple(self._call(members, most or self.limits.bytes, collectives) for members in self.comms[comm])

    def _call(self, members: tuple[int, ...], most: int, collectives: tuple[str, ...] | None) -> Call:
        r, world = self.random, len(members)
        names = collectives or tuple(WEIGHTS)
        collective = r.choices(names, [WEIGHTS[name] for name in names])[0]
        if collective == "barrier":
            return Call(self._tag(), collective, members)
        dtype = r.choice(DTYPES)
        op = r.choice(OPS) if collective in REDUCES else "sum"
        elements = self._bytes(most) // SIZES[dtype]
        call = Call(self._tag(), collective, members, dtype, op, root=r.randrange(world),
                    in_place=collective not in NEVER_IN_PLACE and r.random() < 0.3
                    and not (collectives and collective == "scatter"),
                    scalars=self._scalars(dtype, world) if op == "premul_sum" else ())
        if collective in ("all_reduce", "reduce", "broadcast"):
            return dataclasses.replace(call, count=elements)
        if collective in ("all_to_all_v", "messages"):
            return self._exchange(call, elements)
        if collective.endswith("_v"):
            counts = self._blocks(elements, world)
            displs = self._displs(counts) if r.random() < 0.5 else ()
            return dataclasses.replace(call, counts=counts, send_displs=displs, recv_displs=displs)
        return dataclasses.replace(call, count=elements // world)

    def _scalars(self, dtype: str, world: int) -> tuple[int, ...]:
        # Equal where a dtype has few digits: see Truth.
        if dtype.startswith("float8"):
            return (self.random.choice((1, 2)),) * world
        return tuple(self.random.choice((1, 2)) for _ in range(world))

    def _blocks(self, elements: int, world: int) -> tuple[int, ...]:
        """elements in world blocks of any lengths, some of them empty."""
        weights = [self.random.choice((0, 1, 1, self.random.random(), self.random.random() ** 4)) for _ in range(world)]
        whole = sum(weights) or 1.0
        return tuple(int(elements * weight / whole) for weight in weights)

    def _displs(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Where blocks begin, in any order and with gaps."""
        order = list(range(len(counts)))
        self.random.shuffle(order)
        displs, at = [0] * len(counts), self.random.choice((0, 3))
        for block in order:
            displs[block] = at
            at += counts[block] + self.random.choice((0, 0, 1, 7))
        return tuple(displs)

    def _exchange(self, call: Call, elements: int) -> Call:
        r, world = self.random, len(call.members)
        elements //= world  # from each rank, so that no rank receives more
        if call.collective == "messages":
            counts = tuple(tuple(n if r.random() < 0.6 else 0 for n in self._blocks(elements, world))
                           for _ in range(world))
            return dataclasses.replace(call, counts=counts)
        if self.on_device and r.random() < 0.3:
            # Every replay may have other counts, up to a block of each pair.
            block = max(1, elements)
            displs = tuple(tuple(block * i for i in range(world)) for _ in range(world))
            call = dataclasses.replace(call, counts_on_device=True, send_displs=displs, recv_displs=displs,
                                       send_room=block * world, recv_room=block * world)
            return self._device_counts(call)
        counts = tuple(self._blocks(elements, world) for _ in range(world))
        send = tuple(self._displs(row) for row in counts) if r.random() < 0.5 else ()
        recv = tuple(self._displs(tuple(row[me] for row in counts)) for me in range(world)) if r.random() < 0.5 else ()
        return dataclasses.replace(call, counts=counts, send_displs=send, recv_displs=recv)

    def _device_counts(self, call: Call) -> Call:
        world = len(call.members)
        block = call.send_room // world
        return dataclasses.replace(call, counts=tuple(
            tuple(self.random.choice((0, block, self.random.randrange(block + 1))) for _ in range(world))
            for _ in range(world)))

    def _again(self, call: Call) -> Call:
        """The same call with other content."""
        call = dataclasses.replace(call, tag=self._tag())
        return self._device_counts(call) if call.counts_on_device else call
