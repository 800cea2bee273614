"""What the tests run as ranks on GPUs: gpu_programs.py smoke|all. Every rank
uses the GPU of its number. Needs the driver alone; tensors of torch are tried
where torch is installed."""

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


class Gpu:
    """The primary context of a device, current on this thread."""

    def __init__(self, ordinal):
        check(driver.cuInit(0))
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
    """float32 on the GPU, with the array interface."""

    def __init__(self, values, stream=None):
        self.data = array.array("f", values)
        self.address = ctypes.c_uint64()
        check(driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(max(4 * len(self.data), 4))))
        check(driver.cuMemcpyHtoD_v2(self.address, (ctypes.c_char * (4 * len(self.data))).from_buffer(self.data), ctypes.c_size_t(4 * len(self.data))))
        settle()
        self.__cuda_array_interface__ = {"shape": (len(self.data),), "typestr": "<f4", "data": (self.address.value, False),
                                         "version": 3, "strides": None, "stream": stream}

    def read(self):
        check(driver.cuMemcpyDtoH_v2((ctypes.c_char * (4 * len(self.data))).from_buffer(self.data), self.address, ctypes.c_size_t(4 * len(self.data))))
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
    with comm.register(out, symmetric=True):
        comm.all_reduce(long, out, stream=stream)
        comm.synchronize(stream)
        same(out.read(), total(world, n))
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


def tensors(comm):
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    device = torch.device("cuda", comm.rank)
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
    return "torch too"


def main():
    rank = int(os.environ["SHUNT_RANK"])
    gpu = Gpu(rank)
    with shunt.init(memory="cuda", device=rank) as comm:
        smoke(comm, gpu)
        note = ""
        if sys.argv[1] == "all":
            collectives(comm, gpu)
            note = "; " + tensors(comm)
        comm.barrier(stream=gpu.stream.value)
        comm.synchronize(gpu.stream.value)
    if rank == 0:
        print(f"python: {comm.world} ranks on GPUs, {sys.argv[1]}: all right{note}")


main()
