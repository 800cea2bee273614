"""What the tests run as ranks on GPUs: gpu_programs.py smoke|all. Every rank
uses the GPU of its number; where there are fewer, they share them
(SHUNT_SHARE_GPU). Needs the driver alone; tensors of torch are tried where
torch is installed."""

import array
import ctypes
import importlib.util
import os
import sys

import shunt

driver = ctypes.CDLL("libcuda.so.1")


def check(status):
    if status:
        raise SystemExit(f"CUDA error {status}")


def gpu_of(rank):
    count = ctypes.c_int()
    check(driver.cuInit(0))
    check(driver.cuDeviceGetCount(ctypes.byref(count)))
    return rank % max(count.value, 1)


class Gpu:
    """The primary context of a device, current on this thread."""

    def __init__(self, ordinal):
        context = ctypes.c_void_p()
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal))
        check(driver.cuCtxSetCurrent(context))
        self.stream = ctypes.c_void_p()
        check(driver.cuStreamCreate(ctypes.byref(self.stream), 1))

    def wait(self):
        check(driver.cuStreamSynchronize(self.stream))


def settle():
    """Waits for the default stream: copies from pageable memory and memsets may
    return earlier, and a stream made with flag 1 does not wait for them."""
    check(driver.cuStreamSynchronize(None))


class Array:
    """float32 or int64 (kind "q") on the GPU, with the array interface."""

    def __init__(self, values, stream=None, kind="f"):
        self.data = array.array(kind, values)
        self.bytes = ctypes.c_size_t(self.data.itemsize * len(self.data))
        self.address = ctypes.c_uint64()
        check(driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(max(self.bytes.value, 4))))
        self.write(values)
        self.__cuda_array_interface__ = {"shape": (len(self.data),), "typestr": {"f": "<f4", "q": "<i8"}[kind],
                                         "data": (self.address.value, False), "version": 3, "strides": None,
                                         "stream": stream}

    def _host(self):
        return (ctypes.c_char * self.bytes.value).from_buffer(self.data)

    def write(self, values):
        self.data[:] = array.array(self.data.typecode, values)
        check(driver.cuMemcpyHtoD_v2(self.address, self._host(), self.bytes))
        settle()

    def read(self):
        check(driver.cuMemcpyDtoH_v2(self._host(), self.address, self.bytes))
        return self.data.tolist()


def value(rank, n, start=0):
    return [float((rank * 3 + i) % 5) for i in range(start, start + n)]


def total(world, n, start=0):
    return [sum(parts) for parts in zip(*(value(r, n, start) for r in range(world)))]


def same(have, want):
    if have != want:
        at = next((i for i, (a, b) in enumerate(zip(have, want)) if a != b), None)
        raise SystemExit(f"lengths {len(have)} and {len(want)}; element {at} is {have[at]}, want {want[at]}")


def smoke(comm, gpu):
    n, rank, world = 10007, comm.rank, comm.world
    send, recv = Array(value(rank, n), stream=gpu.stream.value), Array([0.0] * n)
    comm.all_reduce(send, recv)
    comm.synchronize(gpu.stream.value)
    same(recv.read(), total(world, n))
    assert comm.error is None
    assert comm.records()[-1]["state"] == "enqueued" and comm.records()[-1]["count"] == n
    # Captured: replays see what is in the memory then.
    graph, run = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuStreamBeginCapture_v2(gpu.stream, 1))
    comm.all_reduce(send, recv, stream=gpu.stream.value)
    check(driver.cuStreamEndCapture(gpu.stream, ctypes.byref(graph)))
    check(driver.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, ctypes.c_ulonglong(0)))
    for _ in range(3):
        check(driver.cuMemsetD8_v2(recv.address, 0, ctypes.c_size_t(4 * n)))
        settle()
        check(driver.cuGraphLaunch(run, gpu.stream))
        gpu.wait()
        same(recv.read(), total(world, n))
    check(driver.cuGraphExecDestroy(run))
    check(driver.cuGraphDestroy(graph))


def collectives(comm, gpu):
    rank, world, stream = comm.rank, comm.world, gpu.stream.value
    for n in (0, 1, 7, 4096, 100003):
        everyone = [v for r in range(world) for v in value(r, n)]
        mine, out, all_of = Array(value(rank, n)), Array([0.0] * n), Array([0.0] * (n * world))
        comm.all_gather(mine, all_of, stream=stream)
        comm.synchronize(stream)
        same(all_of.read(), everyone)
        wide = Array(value(rank, n * world))
        comm.reduce_scatter(wide, out, stream=stream)
        comm.synchronize(stream)
        same(out.read(), total(world, n, rank * n))
        comm.all_to_all(wide, all_of, stream=stream)
        comm.synchronize(stream)
        same(all_of.read(), [v for r in range(world) for v in value(r, n, rank * n)])
        for root in range(world):
            buffer = Array(value(rank, n))
            comm.broadcast(buffer, root, stream=stream)
            comm.synchronize(stream)
            same(buffer.read(), value(root, n))
        with comm.group():
            comm.send(mine, (rank + 1) % world, stream=stream)
            comm.recv(out, (rank - 1) % world, stream=stream)
        comm.synchronize(stream)
        same(out.read(), value((rank - 1) % world, n))
    counts = [2 * r + 1 for r in range(world)]
    out = Array([0.0] * sum(counts))
    comm.all_gather_v(Array(value(rank, counts[rank])), out, counts, stream=stream)
    comm.barrier(stream=stream)
    comm.synchronize(stream)
    same(out.read(), [v for r in range(world) for v in value(r, counts[r])])
    n = 1 << 20
    long, out = Array(value(rank, n)), Array([0.0] * n)
    with comm.register(long), comm.register(out):
        comm.all_reduce(long, out, stream=stream)
        comm.synchronize(stream)
        same(out.read(), total(world, n))
    with comm.register(out, symmetric=True) as registered:
        comm.all_reduce(long, out, stream=stream)
        comm.synchronize(stream)
        same(out.read(), total(world, n))
        out.write([float(rank)] * n)
        comm.barrier(stream=stream)
        comm.synchronize(stream)
        theirs = ctypes.c_uint64(registered.peer_address((rank + 1) % world))
        check(driver.cuMemcpyDtoD_v2(long.address, theirs, long.bytes))
        settle()
        same(long.read(), [float((rank + 1) % world)] * n)
        comm.barrier(stream=stream)
        comm.synchronize(stream)
    long.write(value(rank, n))
    comm.all_reduce(long, out, stream=stream)
    comm.synchronize(stream)
    same(out.read(), total(world, n))
    work = comm.start("all_reduce", Array(value(rank, 9)), into := Array([0.0] * 9), stream=stream)
    work.wait()
    comm.synchronize(stream)
    same(into.read(), total(world, 9))
    with comm.split(rank % 2) as part:
        one = Array([1.0])
        part.all_reduce(one, stream=stream)
        part.synchronize(stream)
        same(one.read(), [float(part.world)])
    for wrong in (bytearray(4), [1.0]):
        try:
            comm.all_reduce(wrong)
        except shunt.UnsupportedError as err:
            assert "host memory" in str(err), err
        else:
            raise SystemExit("host memory was taken for a GPU's")


def pair(source, to, turn):
    """Elements of a message of counts_on_the_device."""
    return (source + 3 * to + turn) % 4 * 1333


def layout(rank, world, turn, gap):
    """Send counts and displacements, receive counts and displacements; blocks lie gap
    elements apart."""
    rows = []
    for counts in ([pair(rank, r, turn) for r in range(world)], [pair(r, rank, turn) for r in range(world)]):
        rows += [counts, [sum(counts[:r]) + gap * r for r in range(world)]]
    return rows


def blocks(room, counts, places, values):
    """A buffer of room elements with values(r) at its place, and -1 beside."""
    filled = [-1.0] * room
    for r, (count, place) in enumerate(zip(counts, places)):
        filled[place:place + count] = values(r)[:count]
    return filled


def counts_on_the_device(comm, gpu):
    """all_to_all_v whose counts the kernel reads: each replay of a graph has its own,
    and invalid ones are an error on all ranks."""
    rank, world, stream = comm.rank, comm.world, gpu.stream.value
    room = world * 4100
    arrays = [Array([0] * world, kind="q") for _ in range(4)]
    to, there, come, here = arrays
    send, recv = Array([0.0] * room), Array([0.0] * room)

    def fill(turn, gap):
        rows = layout(rank, world, turn, gap)
        for its, row in zip(arrays, rows):
            its.write(row)
        send.write(blocks(room, rows[0], rows[1], lambda r: value(rank + 2 * r, 4000)))
        recv.write([-1.0] * room)
        return blocks(room, rows[2], rows[3], lambda r: value(r + 2 * rank, 4000))

    for turn in range(4):
        want = fill(turn, 0)
        assert comm.all_to_all_v(send, to, recv, come, stream=stream) is recv
        comm.synchronize(stream)
        same(recv.read(), want)
        want = fill(turn, 5)
        work = comm.start("all_to_all_v", send, to, recv, come, there, here, stream=stream)
        assert work.wait() is recv
        comm.synchronize(stream)
        same(recv.read(), want)
    graph, run = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuStreamBeginCapture_v2(gpu.stream, 1))
    comm.all_to_all_v(send, to, recv, come, there, here, stream=stream)
    check(driver.cuStreamEndCapture(gpu.stream, ctypes.byref(graph)))
    check(driver.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, ctypes.c_ulonglong(0)))
    for turn in range(5):
        want = fill(turn, turn)
        check(driver.cuGraphLaunch(run, gpu.stream))
        comm.synchronize(stream)
        same(recv.read(), want)
    check(driver.cuGraphExecDestroy(run))
    check(driver.cuGraphDestroy(graph))
    for wrong in ((to, [1] * world), ([1] * world, come), (send, come), (to, None)):
        try:
            comm.all_to_all_v(send, wrong[0], recv, wrong[1], stream=stream)
        except shunt.InvalidArgumentError as err:
            assert "_counts" in str(err), err
        else:
            raise SystemExit(f"counts {wrong} were taken")
    # The last rank has a count that cannot be, on a communicator of its own.
    with comm.split(0) as part:
        fill(0, 0)
        if rank == world - 1:
            to.write([-3] + [1] * (world - 1))
        text = f"counts in device memory on rank {world - 1}: send count -3 for rank 0 is negative"
        for call in (lambda: part.all_to_all_v(send, to, recv, come, stream=stream) and part.synchronize(stream),
                     part.barrier):
            try:
                call()
            except shunt.InvalidArgumentError as err:
                assert text in str(err), err
            else:
                raise SystemExit("nobody told of a count that cannot be")
        assert type(part.error) is shunt.InvalidArgumentError and text in str(part.error), part.error
        if rank == world - 1:
            same(recv.read(), [-1.0] * room)


def tensors(comm):
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    device = torch.device("cuda", gpu_of(comm.rank))
    with torch.cuda.device(device):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
            x = torch.full((3, 1001), comm.rank + 1, dtype=dtype, device=device)
            comm.all_reduce(x)
            assert (x == comm.world * (comm.world + 1) // 2).all(), x
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            x = torch.ones(5000, device=device)
            comm.all_reduce(x)
            x *= 2
        side.synchronize()
        assert (x == 2 * comm.world).all()
        graph = torch.cuda.CUDAGraph()
        x, y = torch.ones(777, device=device), torch.zeros(777, device=device)
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            comm.all_reduce(x, y)
            y += 1
        for k in range(3):
            x.fill_(k)
            graph.replay()
            torch.cuda.synchronize()
            assert (y == k * comm.world + 1).all(), (k, y)
        del graph
        splits(comm, torch, device)
    return "torch too"


def splits(comm, torch, device):
    """Splits that torch computes on the GPU, as those of experts: eager in both kinds
    of calls, and in a graph with other ones in each replay."""
    rank, world, width = comm.rank, comm.world, 33
    tokens = torch.arange(4096, device=device)
    seed = torch.zeros((), dtype=torch.int64, device=device)
    received = torch.zeros(world * len(tokens), width, device=device)
    counts = {}

    def exchange():
        chosen = (tokens * (rank + 3) + seed) % (world + 1) % world  # some ranks get more than others
        rows = (torch.argsort(chosen, stable=True) + 10000 * rank).to(torch.float32)
        to = torch.zeros(world, dtype=torch.int64, device=device).scatter_add_(0, chosen, torch.ones_like(chosen))
        come = torch.empty_like(to)
        comm.all_to_all(to, come)
        received.fill_(-1)
        send = rows[:, None].expand(-1, width).contiguous()
        comm.all_to_all_v(send, to, received, come, row=width)
        counts.update(come=come, keep=(send, to, come))

    def expect(number):
        blocks = []
        for r in range(world):
            chosen = (tokens * (r + 3) + number) % (world + 1) % world
            places, values = torch.argsort(chosen, stable=True), torch.sort(chosen, stable=True).values
            blocks.append((places + 10000 * r)[values == rank])
        want = torch.cat(blocks)
        assert counts["come"].tolist() == [len(b) for b in blocks], (counts["come"], [len(b) for b in blocks])
        assert (received[:len(want)] == want[:, None]).all() and (received[len(want):] == -1).all(), number

    for number in range(3):
        seed.fill_(number)
        exchange()
        torch.cuda.synchronize()
        expect(number)
    to, send = torch.ones(world, dtype=torch.int64, device=device), torch.full((world,), float(rank), device=device)
    work = comm.start("all_to_all_v", send, to, received.view(-1)[:world].fill_(-1), torch.ones_like(to))
    del to  # the work has it
    assert work.wait()[:world].tolist() == [float(r) for r in range(world)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        exchange()
    for number in (5, 9, 6):
        seed.fill_(number)
        graph.replay()
        torch.cuda.synchronize()
        expect(number)
    del graph
    whole = torch.ones(world, dtype=torch.int64, device=device)
    for wrong in (whole.int(), whole.float(), whole[:, None],
                  torch.ones(2 * world, dtype=torch.int64, device=device)[::2], whole.cpu(), [1] * world):
        for given in ((wrong, whole), (whole, wrong)):
            try:
                comm.all_to_all_v(send, given[0], torch.empty_like(send), given[1])
            except shunt.InvalidArgumentError as err:
                assert "_counts" in str(err), err
            else:
                raise SystemExit(f"{wrong} was taken for counts on the GPU")


def main():
    rank = int(os.environ["SHUNT_RANK"])
    ordinal = gpu_of(rank)
    gpu = Gpu(ordinal)
    with shunt.init(memory="cuda", device=ordinal) as comm:
        smoke(comm, gpu)
        note = ""
        if sys.argv[1] == "all":
            collectives(comm, gpu)
            counts_on_the_device(comm, gpu)
            note = "; " + tensors(comm)
        comm.barrier(stream=gpu.stream.value)
        comm.synchronize(gpu.stream.value)
    if rank == 0:
        print(f"python: {comm.world} ranks on GPUs, {sys.argv[1]}: all right{note}")


main()
