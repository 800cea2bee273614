"""Calls captured into the bodies of conditional nodes (CUDA 12.4), as a rank on a GPU; needs the driver alone.

    SHUNT_TIMEOUT=10s shunt run -n 2 python3 python/tests/gpu_conditional.py [NAME...]

Every case captures calls into an IF or a WHILE body, replays it with counts that lie on the GPU, calls the same without
a graph in between, and compares every element of every result with what it must be. Then come graphs that outlive their
communicator, ranks that take different branches, and the memory that is left. Rank 0 prints a line for each case, every
rank its failures; a failed case ends nothing. NAME: only cases with such a name, as "while all_reduce". At the end rank
0 runs gpu_conditional_driver.py, which asks the driver about bodies without Shunt."""

import array
import ctypes
import faulthandler
import os
import subprocess
import sys
import time

os.environ.setdefault("SHUNT_TIMEOUT", "10s")

from conditional import IF, WHILE, Failed, Gpu, call  # noqa: E402

import shunt  # noqa: E402

RANK, MIB = int(os.environ["SHUNT_RANK"]), 1 << 20
SIZES = {8: "8 B", MIB: "1 MiB", 64 * MIB: "64 MiB"}
KINDS = {IF: "if", WHILE: "while"}
memcmp = ctypes.CDLL(None).memcmp


class Wrong(Exception):
    """A result is not what it must be."""


def tile(values, size):
    """So many bytes of float32: the values, again and again."""
    part = array.array("f", values).tobytes()
    return (part * (size // len(part) + 1))[:size]


def value(rank):
    return [float((3 * rank + i) % 5) for i in range(5)]


class Array:
    """float32 on the GPU, with the array interface."""

    def __init__(self, gpu, size, address=None):
        self.gpu, self.size, self.own = gpu, size, address is None
        self.address = ctypes.c_uint64(address) if address else gpu.alloc(size)
        self.__cuda_array_interface__ = {"shape": (size // 4,), "typestr": "<f4", "data": (self.address.value, False),
                                         "version": 3, "strides": None}

    def write(self, values):
        self.gpu.write(self.address, tile(values, self.size))

    def copy(self, source, stream, offset=0):
        call("cuMemcpyDtoDAsync_v2", self.address, ctypes.c_uint64(source.address.value + offset),
             ctypes.c_size_t(self.size), stream)

    def expect(self, what, *parts):
        """Compares with parts of equal size, one behind the other."""
        size = self.size // len(parts)
        have, base = self.gpu.read(self.address, self.size), 0
        for i, values in enumerate(parts):
            want = tile(values, size)
            if memcmp(ctypes.byref(have, base), want, ctypes.c_size_t(size)):
                got = array.array("f", have[base:base + 20]).tolist()
                raise Wrong(f"{what}: part {i} begins with {got}, want {list(values)}")
            base += size

    def free(self):
        if self.own:
            call("cuMemFree_v2", self.address)


class AllReduce:
    """In place, so that each further run of the body multiplies by the number of ranks."""

    def __init__(self, comm, gpu, size):
        self.comm, self.x = comm, Array(gpu, size)
        self.arrays = [self.x]

    def reset(self):
        self.x.write(value(RANK))

    def body(self, stream):
        self.comm.all_reduce(self.x, stream=stream.value)

    def expect(self, runs):
        world = self.comm.world
        total = [sum(parts) * world**(runs - 1) for parts in zip(*map(value, range(world)))]
        self.x.expect("all_reduce", total if runs else value(RANK))

    def close(self):
        for a in self.arrays:
            a.free()


class SymmetricReduce(AllReduce):
    """Into memory that is registered symmetrically, and copied back."""

    def __init__(self, comm, gpu, size):
        super().__init__(comm, gpu, size)
        self.y = Array(gpu, size)
        self.arrays.append(self.y)
        self.registration = comm.register(self.y, symmetric=True)

    def body(self, stream):
        self.comm.all_reduce(self.x, self.y, stream=stream.value)
        self.x.copy(self.y, stream)

    def close(self):
        self.registration.close()
        super().close()


class AllGather:
    """Each further run of the body gathers what the next rank had."""

    def __init__(self, comm, gpu, size):
        self.comm, self.mine, self.all = comm, Array(gpu, size), Array(gpu, size * comm.world)
        self.next, self.registration = (RANK + 1) % comm.world, None

    def reset(self):
        self.mine.write(value(RANK))
        self.all.write([-1.0])

    def body(self, stream):
        self.comm.all_gather(self.mine, self.all, stream=stream.value)
        self.mine.copy(self.all, stream, self.next * self.mine.size)

    def expect(self, runs):
        world = self.comm.world
        self.mine.expect("own part", value((RANK + runs) % world))
        self.all.expect("all_gather", *([value((r + runs - 1) % world) if runs else [-1.0] * 5 for r in range(world)]))

    def close(self):
        if self.registration:
            self.registration.close()
        self.mine.free()
        self.all.free()


class SymmetricGather(AllGather):
    def __init__(self, comm, gpu, size):
        super().__init__(comm, gpu, size)
        self.registration = comm.register(self.all, symmetric=True)


class SendRecv:
    """Each run of the body passes what a rank has to the next rank."""

    def __init__(self, comm, gpu, size):
        self.comm, self.mine, self.other = comm, Array(gpu, size), Array(gpu, size)
        self.next, self.before = (RANK + 1) % comm.world, (RANK - 1) % comm.world

    def reset(self):
        self.mine.write(value(RANK))
        self.other.write([-1.0])

    def body(self, stream):
        with self.comm.group():
            self.comm.send(self.mine, self.next, stream=stream.value)
            self.comm.recv(self.other, self.before, stream=stream.value)
        self.mine.copy(self.other, stream)

    def expect(self, runs):
        self.mine.expect("sendrecv", value((RANK - runs) % self.comm.world))

    def close(self):
        self.mine.free()
        self.other.free()


class Window(SendRecv):
    """The same by a put and a signal; a second signal says that the window may be written again."""

    def __init__(self, comm, gpu, size):
        super().__init__(comm, gpu, size)
        self.window = comm.window(size)
        self.here = Array(gpu, size, self.window.__cuda_array_interface__["data"][0])

    def body(self, stream):
        on = stream.value
        self.window.put(self.mine, self.next, stream=on)
        self.window.signal(self.next, stream=on)
        self.window.wait(self.before, stream=on)
        self.mine.copy(self.here, stream)
        self.window.signal(self.before, stream=on)
        self.window.wait(self.next, stream=on)

    def close(self):
        self.window.close()
        super().close()


CALLS = {"all_reduce": AllReduce, "all_gather": AllGather, "sendrecv": SendRecv, "window": Window,
         "symmetric all_reduce": SymmetricReduce, "symmetric all_gather": SymmetricGather}


def times(kind, limit):
    return limit if kind == WHILE else min(limit, 1)


def replayed(comm, gpu, thing, graph, kind, limits):
    """Replays with each limit, and calls in between."""
    for limit in limits:
        thing.reset()
        graph.replay(limit)
        comm.synchronize(gpu.stream.value)
        if graph.runs() != times(kind, limit):
            raise Wrong(f"the body ran {graph.runs()} times, want {times(kind, limit)}")
        thing.expect(times(kind, limit))
        thing.reset()
        thing.body(gpu.stream)
        comm.synchronize(gpu.stream.value)
        thing.expect(1)


def plain(comm, gpu, kind, make, size):
    with comm.split(0) as part:
        thing = make(part, gpu, size)
        graph = gpu.conditional(kind, [thing.body])
        try:
            replayed(part, gpu, thing, graph, kind, (2, 0, 1, 3) if size < 64 * MIB else (3, 0))
        finally:
            graph.destroy()
        thing.close()


def around(comm, gpu, kind):
    """Calls before, within and behind the node, in both branches, with a long one in each place."""
    with comm.split(0) as part:
        first, last = AllReduce(part, gpu, 4 * MIB), AllReduce(part, gpu, 64)
        inside, other = SendRecv(part, gpu, MIB), AllGather(part, gpu, 8)
        bodies = [inside.body] if kind == WHILE else [inside.body, other.body]

        def outside():
            first.body(gpu.stream)
            last.body(gpu.stream)

        graph = gpu.conditional(kind, bodies, outside, outside)
        try:
            for limit in (1, 0, 2, 0):
                for thing in (first, last, inside, other):
                    thing.reset()
                graph.replay(limit)
                part.synchronize(gpu.stream.value)
                first.expect(2)
                last.expect(2)
                inside.expect(times(kind, limit))
                other.expect(1 if kind == IF and limit == 0 else 0)
        finally:
            graph.destroy()
        for thing in (first, last, inside, other):
            thing.close()


def outlives(comm, gpu, kind, size=MIB):
    """The graph is destroyed, then the communicator closed; the executable still runs."""
    part = comm.split(0)
    thing = AllReduce(part, gpu, size)
    graph = gpu.conditional(kind, [thing.body])
    try:
        replayed(part, gpu, thing, graph, kind, (1, ))
        graph.forget()
        with comm.split(0) as other:  # looks which graphs are gone
            one = AllReduce(other, gpu, 8)
            one.reset()
            one.body(gpu.stream)
            other.synchronize(gpu.stream.value)
            one.close()
        replayed(part, gpu, thing, graph, kind, (2, ))
        part.close()
        for limit in (1, 2):
            with comm.split(0):
                thing.reset()
                graph.replay(limit)
                gpu.wait()
                thing.expect(times(kind, limit))
    finally:
        graph.destroy()
        part.close()
    thing.close()


def apart(comm, gpu, kind):
    """Rank 0 takes the branch alone: it must get an error in time, that says who is missing."""
    with comm.split(0) as part:
        thing = AllReduce(part, gpu, 1024)
        graph = gpu.conditional(kind, [thing.body])
        try:
            replayed(part, gpu, thing, graph, kind, (1, ))
            thing.reset()
            begin, text = time.monotonic(), ""
            graph.replay(1 if RANK == 0 else 0)
            try:
                part.synchronize(gpu.stream.value)
            except shunt.ShuntError as err:
                text = str(err)
            took = time.monotonic() - begin
            if RANK == 0 and "rank 0" not in text or took > 30:
                raise Wrong(f"after {took:.1f} s: {text or 'no error'}")
            if RANK != 0:
                time.sleep(8)  # as rank 0 waits, and the next case does not wait for it forever
        finally:
            gpu.wait()
            graph.destroy()
        thing.close()
    return text


def flat(comm, gpu, kind):
    """Memory after many graphs and communicators is what it was: all of the GPU's, so nothing else may run there."""
    used = []
    for round in range(8):
        outlives(comm, gpu, kind, 4 * MIB)
        with comm.split(0):
            pass
        time.sleep(0.5)
        used.append(gpu.used())
    grown = (used[-1] - used[2]) / MIB
    if grown > 2:
        raise Wrong(f"{grown:.0f} MiB more are in use after {len(used) - 3} further rounds: "
                    f"{[u // MIB for u in used]} MiB")
    return f"{[u // MIB for u in used]} MiB in use"


def cases():
    for kind, name in KINDS.items():
        for what, make in CALLS.items():
            for size, text in SIZES.items():
                yield f"{name} {what} of {text}", lambda c, g, k=kind, m=make, s=size: plain(c, g, k, m, s)
        yield f"{name} with calls around it", lambda c, g, k=kind: around(c, g, k)
    for kind, name in KINDS.items():
        yield f"{name} outlives its graph and its communicator", lambda c, g, k=kind: outlives(c, g, k)
        yield f"{name} memory", lambda c, g, k=kind: flat(c, g, k)
    yield "if taken by rank 0 alone", lambda c, g: apart(c, g, IF)
    yield "while taken by rank 0 alone", lambda c, g: apart(c, g, WHILE)


def main():
    faulthandler.enable()
    faulthandler.dump_traceback_later(540, exit=True)
    wanted, failures, count = sys.argv[1:], 0, 0
    comm = shunt.init(memory="cuda")
    gpu = Gpu(int(os.environ.get("LOCAL_RANK", RANK)))
    for name, case in cases():
        if wanted and not any(w in name for w in wanted):
            continue
        begin, count = time.monotonic(), count + 1
        try:
            note = case(comm, gpu)
            if RANK == 0:
                print(f"ok    {name} ({time.monotonic() - begin:.1f} s){'; ' + note if note else ''}", flush=True)
        except (Failed, Wrong, shunt.ShuntError) as err:
            failures += 1
            print(f"FAIL  {name}, rank {RANK}, after {time.monotonic() - begin:.1f} s: {type(err).__name__}: {err}",
                  flush=True)
    try:
        comm.close()
    except shunt.ShuntError as err:
        print(f"FAIL  close, rank {RANK}: {err}", flush=True)
        failures += 1
    if RANK == 0 and not wanted:
        here = os.path.dirname(os.path.abspath(__file__))
        subprocess.run([sys.executable, os.path.join(here, "gpu_conditional_driver.py")], check=False)
    if RANK == 0:
        print(f"{count} cases, {failures} failed on rank 0", flush=True)
    sys.stdout.flush()
    os._exit(1 if failures else 0)  # a context that a failed case has broken does not block the exit


main()
