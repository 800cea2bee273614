"""One rank's run of the steps of an epoch, with every result checked.

Every buffer is a piece of a larger allocation whose other bytes are random and must stay as they are: whole
allocations are compared with what they must hold, receive buffers and send buffers alike. On a GPU that is done in the
stream of the call, behind it, and the host looks at the outcomes only now and then.
"""

import collections
import random
from typing import Any, Callable

import plan
from plan import Call
from truth import Truth, layout

#: Comparisons between two looks at their outcomes, at most.
SLOTS = 256


class Wrong(Exception):
    """A result that is not what it must be."""


class Span:
    """Bytes from at on in an allocation, for elements of a call."""

    def __init__(self, raw: Any, at: int, nbytes: int) -> None:
        self.raw, self.at, self.nbytes = raw, at, nbytes

    @property
    def bytes(self) -> Any:
        return self.raw[self.at:self.at + self.nbytes]


class Checks:
    """Comparisons in flight."""

    def __init__(self, arrays: Any, synchronize: Callable[[], None]) -> None:
        self.arrays, self.synchronize, self.found, self.what = arrays, synchronize, arrays.zeros(SLOTS), []
        self.results = 0

    def compare(self, have: Any, want: Any, what: str) -> None:
        if len(self.what) == SLOTS:
            self.settle()
        self.arrays.compare(have, want, self.found[len(self.what)])
        self.what.append(what)

    def settle(self) -> None:
        """Looks at the outcomes."""
        self.synchronize()
        outcomes = self.found[:len(self.what)].tolist()
        what, self.what = self.what, []
        self.results += len(what)
        wrong = [(text, outcome) for text, outcome in zip(what, outcomes) if outcome[0]]
        if wrong:
            lines = [f"{text}: {n} words of 8 bytes are wrong; word {at} is {have & (1 << 64) - 1:#018x}, want "
                     f"{want & (1 << 64) - 1:#018x}"
                     for text, (n, at, have, want) in wrong[:8]]
            raise Wrong(f"{len(wrong)} of {len(what)} buffers:\n  " + "\n  ".join(lines))


class Buffers:
    """The memory of one call of one rank."""

    def __init__(self, call: Call, me: int, take: Callable[[int, int], Span], outer: Span | None = None) -> None:
        """take(nbytes, size) makes a span; outer is where to receive instead."""
        self.call, self.me, self.layout = call, me, layout(call, me)
        size, shape = call.size, self.layout
        self.send: Span | None = None
        self.recv: Span | None = None
        if call.collective == "broadcast":
            self.recv = Span(outer.raw, outer.at, call.count * size) if outer else take(call.count * size, size)
            self.send = self.recv if me == call.root else None
        elif call.in_place and shape.send is not None and shape.recv is not None:
            larger = max(shape.send, shape.recv)
            whole = Span(outer.raw, outer.at, larger * size) if outer else take(larger * size, size)
            self.send = Span(whole.raw, whole.at + (shape.inside * size if shape.send < larger else 0),
                             shape.send * size)
            self.recv = Span(whole.raw, whole.at + (shape.inside * size if shape.recv < larger else 0),
                             shape.recv * size)
        else:
            if shape.send is not None:
                self.send = take(shape.send * size, size)
            if shape.recv is not None:
                self.recv = Span(outer.raw, outer.at, shape.recv * size) if outer else take(shape.recv * size, size)

    def spans(self) -> list[Span]:
        return [span for span in (self.send, self.recv) if span is not None]

    def raws(self) -> list[Any]:
        """The allocations, each once."""
        return list({id(span.raw): span.raw for span in self.spans()}.values())


class Runner:
    """A rank of a world. arrays and place are of arrays.py and places.py; note(text) logs what is done."""

    def __init__(self, comm: Any, rank: int, seed: int, arrays: Any, place: Any, on_device: bool,
                 note: Callable[[str], None]) -> None:
        self.world, self.rank, self.seed = comm, rank, seed
        self.arrays, self.place, self.on_device, self.note = arrays, place, on_device, note
        self.truth, self.checks = Truth(arrays, seed), Checks(arrays, place.synchronize)
        self.counts: collections.Counter = collections.Counter()
        self.comms: dict[int, Any] = {plan.WORLD: comm}
        self.members: dict[int, tuple[int, ...]] = {plan.WORLD: tuple(range(comm.world))}
        self.graphs: dict[int, Any] = {}
        self.forgotten: list[tuple[int, Any]] = []  # graphs that go at that step or later
        self.kept: list[tuple[Any, int]] = []       # allocations to use again, and the stream that used each last
        self.keep = 0.0                             # how often an allocation is
        self.stream = 0
        self.step = 0

    def epoch(self, number: int, limits: plan.Limits) -> None:
        """Runs an epoch and releases everything that it has made but what the library keeps for this communicator."""
        self.chance = random.Random(f"{self.seed}/{number}/{self.rank}")
        self.place.begin(self.chance)
        self.keep = self.chance.choice((0.0, 0.2, 0.5))
        epoch = plan.Epoch(self.seed, number, self.world.world, limits, self.on_device)
        for self.step, step in enumerate(epoch.steps()):
            self.stream = self.chance.randrange(self.place.streams)
            with self.place.on(self.stream):
                self.place.delay(self.chance)
                getattr(self, "_" + type(step).__name__.lower())(step)
            self.counts[type(step).__name__.lower()] += 1
            self.forgotten = [(at, graph) for at, graph in self.forgotten if at > self.step]
            if self.chance.random() < 0.01:
                self.kept.clear()
            if self.chance.random() < 0.03:
                self.settle()
        self.forgotten.clear()
        self.kept.clear()
        self.settle()

    def settle(self) -> None:
        """Waits for this rank's streams and looks at the results."""
        self.place.synchronize()
        if self.world.error is not None:
            raise self.world.error
        # A kernel that has given up leaves its results as they were: only its communicator says so, and why.
        for comm in self.comms.values():
            comm.synchronize()
        self.checks.settle()

    # ---- memory ----

    def take(self, nbytes: int, size: int) -> Span:
        """Memory for elements of that size, at an odd offset more often than not, of an allocation that is new or
        was used before."""
        at = size * self.chance.choice((0, self.chance.randrange(1, 16), self.chance.randrange(1, 600)))
        total = (at + nbytes + 8 + self.chance.choice((0, 8, 120)) + 7) // 8 * 8
        if self.chance.random() < 0.5:
            for i, (raw, stream) in enumerate(self.kept):
                if total <= len(raw) <= 4 * total + 4096:
                    del self.kept[i]
                    self.place.follow(self.stream, stream)
                    self.place.lend(raw, self.stream)
                    return Span(raw, at, nbytes)
        return Span(self.arrays.empty(total), at, nbytes)

    def give(self, buffers: Buffers) -> None:
        """Lets go of the memory, or keeps it to be used again; no collective has a say in when it is freed."""
        for raw in buffers.raws():
            if self.chance.random() < self.keep:
                self.kept.insert(self.chance.randrange(len(self.kept) + 1), (raw, self.stream))
                if len(self.kept) > 12:
                    self.kept.pop()

    # ---- content ----

    def fill(self, b: Buffers, call: Call) -> None:
        for raw, content in self.content(b, call, False):
            self.arrays.copy(raw, content)

    def check(self, b: Buffers, call: Call) -> None:
        for raw, want in self.content(b, call, True):
            what = "and".join(name for name, span in ((" send ", b.send), (" recv ", b.recv)) if span is not None
                              and span.raw is raw)
            self.checks.compare(raw, want, f"step {self.step}, {call},{what}memory of {len(raw)} bytes")

    def content(self, b: Buffers, call: Call, after: bool) -> list[tuple[Any, Any]]:
        """What every allocation holds before or after the call."""
        contents = []
        for number, raw in enumerate(b.raws()):
            want = self.arrays.clone(self.truth.bits(f"around{number}", call.tag, self.rank, 0, len(raw)))
            if b.send is not None and b.send.raw is raw and b.send.nbytes:
                self.arrays.copy(want[b.send.at:b.send.at + b.send.nbytes],
                                 self.truth.sent(call, b.me, 0, b.layout.send or 0))
            if after and b.recv is not None and b.recv.raw is raw:
                # The layout of this content: counts on the device change.
                for piece in layout(call, b.me).pieces:
                    if piece.n:
                        at = b.recv.at + piece.to * call.size
                        self.arrays.copy(want[at:at + piece.n * call.size], self.result(call, piece))
            contents.append((raw, want))
        return contents

    def result(self, call: Call, piece: Any) -> Any:
        if piece.rank is None:
            return self.truth.reduced(call, piece.first, piece.n)
        return self.truth.sent(call, piece.rank, piece.first, piece.n)

    # ---- calls ----

    def mine(self, calls: plan.Calls) -> Call:
        """The call of this rank's group."""
        return next(call for call in calls if self.rank in call.members)

    def issue(self, comm: Any, b: Buffers, counts: Any = None, start: bool = False) -> Any:
        """Calls the collective; with start it is begun, and the Work returned."""
        call, me, a = b.call, b.me, self.arrays
        send = None if b.send is None else a.typed(b.send.bytes, call.dtype)
        recv = None if b.recv is None else a.typed(b.recv.bytes, call.dtype)
        given: dict[str, Any] = {}
        if call.collective in plan.REDUCES:
            given["op"] = call.op
            if call.op == "premul_sum":
                given["scalar"] = float(call.scalars[me])
        if call.collective in plan.ROOTED:
            given["root"] = call.root
        match call.collective:
            case "barrier":
                arguments: tuple = ()
            case "all_reduce" | "reduce" if call.in_place and recv is not None:
                arguments = (recv,)
            case "broadcast":
                arguments = (recv,)
            case "all_gather_v" | "gather_v":
                arguments = (send, recv)
                if recv is not None:
                    given.update(counts=list(call.counts), displs=list(call.recv_displs) or None)
            case "reduce_scatter_v" | "scatter_v":
                arguments = (send, recv)
                if send is not None:
                    given.update(counts=list(call.counts), displs=list(call.send_displs) or None)
            case "messages":
                return self.messages(comm, call, me, send, recv)
            case "all_to_all_v":
                to, there, come, here = counts or self.exchange(call, me)
                arguments = (send, to, recv, come, there, here)
            case _:
                arguments = (send, recv)
        if start:
            return comm.start(call.collective, *arguments, **given)
        getattr(comm, call.collective)(*arguments, **given)
        return None

    def exchange(self, call: Call, me: int) -> tuple:
        """Counts and displacements of all_to_all_v: lists, or arrays of the device."""
        come = [row[me] for row in call.counts]
        rows = (list(call.counts[me]), list(call.send_displs[me]) if call.send_displs else None,
                come, list(call.recv_displs[me]) if call.recv_displs else None)
        if call.counts_on_device:
            return tuple(self.arrays.int64s(row) for row in rows)
        return rows

    def messages(self, comm: Any, call: Call, me: int, send: Any, recv: Any) -> None:
        """A group of messages, posted in any order."""
        ends: list[Callable[[], Any]] = []
        out = come = 0
        for peer in range(len(call.members)):
            for n, source in ((call.counts[me][peer], True), (call.counts[peer][me], False)):
                if n and source:
                    ends.append(lambda part=send[out:out + n], peer=peer: comm.send(part, peer))
                    out += n
                elif n:
                    ends.append(lambda part=recv[come:come + n], peer=peer: comm.recv(part, peer))
                    come += n
        self.chance.shuffle(ends)
        with comm.group():
            for end in ends:
                end()

    def call(self, comm: Any, call: Call, outer: Span | None = None) -> None:
        me = call.members.index(self.rank)
        b = Buffers(call, me, self.take, outer)
        self.fill(b, call)
        start = call.collective != "messages" and self.chance.random() < 0.05
        work = self.issue(comm, b, start=start)
        if work is not None:
            work.wait()
        self.check(b, call)
        if outer is None:
            self.give(b)
        self.counts["calls"] += 1

    # ---- steps ----

    def _run(self, step: plan.Run) -> None:
        call = self.mine(step.calls)
        self.note(f"{self.step} on stream {self.stream}: comm {step.comm}: {call}")
        self.call(self.comms[step.comm], call)

    def _registered(self, step: plan.Registered) -> None:
        comm = self.comms[step.comm]
        calls = [self.mine(run) for run in step.runs]
        self.note(f"{self.step} on stream {self.stream}: comm {step.comm}: "
                  f"{'symmetric' if step.symmetric else 'registered'} memory for "
                  + "; ".join(map(str, calls)))
        raw = self.arrays.empty(step.bytes)
        with comm.register(raw, symmetric=step.symmetric):
            for call in calls:
                at = step.at if step.symmetric else 8 * self.chance.randrange(64)
                self.call(comm, call, Span(raw, at, 0))
            self.place.synchronize()

    def _windowed(self, step: plan.Windowed) -> None:
        comm, a, n = self.comms[step.comm], self.arrays, step.bytes
        world, me = comm.world, comm.rank
        self.note(f"{self.step} on stream {self.stream}: comm {step.comm}: window of {world} times {n} bytes, "
                  f"{step.turns} turns")
        room = (n + 7) // 8 * 8
        with comm.window(room * world) as window:
            memory = a.of(window)
            part = a.empty(room)
            for turn in range(step.turns):
                for shift in range(1, world):
                    to, source = (me + shift) % world, (me - shift) % world
                    a.copy(part[:n], self.put(step, turn, me))
                    window.put(part[:n], to, room * me)
                    window.signal(to)
                    window.wait(source)
                    want = a.clone(memory[room * source:room * (source + 1)])
                    a.copy(want[:n], self.put(step, turn, source))
                    self.checks.compare(memory[room * source:room * (source + 1)], want,
                                        f"step {self.step}, put of rank {source} of {n} bytes")
                    window.signal(source)
                    window.wait(to)
                comm.barrier()
                for peer in range(world):
                    # What this rank's part holds of source is there at peer too, if source has put it.
                    source = (peer + 1) % world
                    if world > 1:
                        window.get(part[:n], peer, room * source)
                        want = a.clone(part)
                        a.copy(want[:n], self.put(step, turn, source))
                        self.checks.compare(part, want, f"step {self.step}, get from rank {peer} of {n} bytes")
                comm.barrier()
            self.settle()
            del memory

    def put(self, step: plan.Windowed, turn: int, rank: int) -> Any:
        """What a rank of the communicator puts in a turn."""
        return self.truth.bits(f"window{turn}", step.tag, self.members[step.comm][rank], 0, step.bytes)

    def _split(self, step: plan.Split) -> None:
        self.note(f"{self.step}: comm {step.comm} becomes {step.made}, groups {step.groups}")
        color, group = next((i, group) for i, group in enumerate(step.groups) if self.rank in group)
        self.comms[step.made] = self.comms[step.comm].split(color, group.index(self.rank))
        made = self.comms[step.made]
        if (made.world, made.rank) != (len(group), group.index(self.rank)):
            raise Wrong(f"split into {step.groups} made rank {made.rank} of {made.world} of rank {self.rank}")
        self.members[step.made] = group
        self.counts["communicators"] += 1

    def _close(self, step: plan.Close) -> None:
        self.note(f"{self.step}: comm {step.comm} is closed")
        comm = self.comms.pop(step.comm)
        if comm.error is not None:
            raise comm.error
        comm.close()

    def _capture(self, step: plan.Capture) -> None:
        calls = [(self.comms[part.comm], self.mine(part.calls)) for part in step.parts]
        self.stream = self.chance.randrange(min(1, self.place.streams - 1), self.place.streams)
        self.note(f"{self.step} on stream {self.stream}: capture of graph {step.graph}: "
                  + "; ".join(str(call) for _, call in calls))
        parts = []
        with self.place.on(self.stream):
            for comm, call in calls:
                b = Buffers(call, call.members.index(self.rank), self.take)
                self.fill(b, call)
                counts = self.exchange(call, b.me) if call.collective == "all_to_all_v" else None
                inside = self.chance.random() < 0.3  # memory of the graph's own between
                parts.append((comm, b, counts, inside))
            graph = self.place.capture(self.stream, lambda: self.captured(parts), self.chance)
        self.graphs[step.graph] = (graph, parts)
        self.counts["graphs"] += 1

    def captured(self, parts: list) -> None:
        a = self.arrays
        for comm, b, counts, inside in parts:
            if not inside or b.recv is None:
                self.issue(comm, b, counts)
                continue
            # A twin of the buffers, made inside the capture, has the data meanwhile.
            twins = {id(raw): a.empty(len(raw)) for raw in b.raws()}
            for raw in b.raws():
                a.copy(twins[id(raw)], raw)
            twin = object.__new__(Buffers)
            twin.call, twin.me, twin.layout = b.call, b.me, b.layout
            twin.send, twin.recv = (span and Span(twins[id(span.raw)], span.at, span.nbytes)
                                    for span in (b.send, b.recv))
            self.issue(comm, twin, counts)
            for raw in b.raws():
                a.copy(raw, twins[id(raw)])

    def _replay(self, step: plan.Replay) -> None:
        graph, parts = self.graphs[step.graph]
        calls = [self.mine(part.calls) for part in step.parts]
        self.note(f"{self.step} on stream {self.stream}: {step.times} replays of graph {step.graph}: "
                  + "; ".join(map(str, calls)))
        # The order of graphs' launches and calls in other streams is the program's to see to.
        for other in range(self.place.streams):
            self.place.follow(self.stream, other)
        for call, (_, b, counts, _) in zip(calls, parts):
            self.fill(b, call)
            if call.counts_on_device:
                for array, row in zip(counts, self.exchange(call, b.me)):
                    self.arrays.copy(array, row)
        for _ in range(step.times):
            self.place.replay(graph)
        for call, (_, b, _, _) in zip(calls, parts):
            self.check(b, call)
        for other in range(self.place.streams):
            self.place.follow(other, self.stream)
        self.counts["replays"] += step.times

    def _forget(self, step: plan.Forget) -> None:
        self.note(f"{self.step}: graph {step.graph} goes")
        self.forgotten.append((self.step + self.chance.choice((0, 0, 1, 7)), self.graphs.pop(step.graph)))
