"""Allocators on GPUs, by threads of one process: gpu_allocator.py [SECONDS [THREADS]].

Two ranks, each on a GPU of its own, or both on the one there is (SHUNT_SHARE_GPU=on), and four threads a rank, each
with a communicator and a stream. They allocate, free, record streams, capture, replay, trim and run collectives; every
element of every result is checked. The plain allocator is all threads' of a rank, the symmetric ones each thread's. In
the end there must be no more memory in use than after the first third. With SHUNT_CHECK=on, locks that were taken in
the wrong order make it fail. Needs the driver alone."""

import array
import ctypes
import os
import random
import sys
import tempfile
import threading
import time
import traceback

WORLD = 2

driver = ctypes.CDLL("libcuda.so.1")
u64 = ctypes.c_uint64


def check(status):
    if status:
        raise RuntimeError(f"CUDA error {status}")


class Memory:
    """float32 at an address of a GPU, for a stream."""

    def __init__(self, address, count, stream):
        self.address, self.count, self.stream = address, count, stream
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3,
                                         "strides": None, "stream": stream}

    def fill(self, value):
        bits = int.from_bytes(array.array("f", [value]).tobytes(), "little")
        check(driver.cuMemsetD32Async(u64(self.address), ctypes.c_uint(bits), ctypes.c_size_t(self.count),
                                      ctypes.c_void_p(self.stream)))

    def expect(self, value):
        got = array.array("f", bytes(4 * self.count))
        # Ranks may share a context here: a copy to pageable memory must not wait in it for the other's kernel.
        check(driver.cuStreamSynchronize(ctypes.c_void_p(self.stream)))
        check(driver.cuMemcpyDtoHAsync_v2((ctypes.c_char * (4 * self.count)).from_buffer(got), u64(self.address),
                                          ctypes.c_size_t(4 * self.count), ctypes.c_void_p(self.stream)))
        check(driver.cuStreamSynchronize(ctypes.c_void_p(self.stream)))
        wrong = self.count - got.count(value)
        assert not wrong, f"{wrong} of {self.count} elements are not {value}: {next(v for v in got if v != value)}"


def new_stream():
    stream = ctypes.c_void_p()
    check(driver.cuStreamCreate(ctypes.byref(stream), 1))
    return stream.value


def replay(stream, body):
    """Captures body, and replays it twice."""
    graph, run = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 1))  # of this thread
    body()
    check(driver.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)))
    check(driver.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, u64(0)))
    check(driver.cuGraphDestroy(graph))
    for _ in range(2):
        check(driver.cuGraphLaunch(run, ctypes.c_void_p(stream)))
    check(driver.cuStreamSynchronize(ctypes.c_void_p(stream)))
    check(driver.cuGraphExecDestroy(run))


class Thread:
    def __init__(self, comm, plain, number):
        self.comm, self.plain = comm.split(0), plain
        self.symmetric = self.comm.allocator(symmetric=True, segment_bytes=2 << 20)
        self.stream, self.other = new_stream(), new_stream()
        self.choose = random.Random(number)  # alike on all ranks
        self.calls = 0

    def round(self):
        comm, choose, stream = self.comm, self.choose, self.stream
        count = choose.randrange(1, 1 << choose.randrange(1, 18))
        size, value = 4 * count, float(self.calls % 1000)
        x = Memory(self.plain.alloc(size, stream=stream), count, stream)
        y = Memory(self.symmetric.alloc(size, stream=stream), count, stream)
        x.fill(value + comm.rank)
        want = comm.world * value + comm.world * (comm.world - 1) / 2

        def through():
            between = Memory(self.plain.alloc(size, stream=stream), count, stream)
            comm.all_reduce(x, between, stream=stream)
            check(driver.cuMemcpyDtoDAsync_v2(u64(y.address), u64(between.address), ctypes.c_size_t(size),
                                              ctypes.c_void_p(stream)))
            self.plain.free(between.address, stream=stream)

        if self.calls % 8 == 7:
            replay(stream, through)
        else:
            comm.all_reduce(x, y, stream=stream)
        y.expect(want)
        if choose.random() < 0.3:
            self.plain.record_stream(x.address, self.other)
        self.plain.free(x.address, stream=stream)
        self.symmetric.free(y.address, stream=stream)
        if (chance := choose.random()) < 0.02:
            self.plain.trim()
        elif chance < 0.04:
            self.symmetric.trim()
        self.calls += 1

    def close(self):
        check(driver.cuStreamSynchronize(ctypes.c_void_p(self.stream)))
        self.symmetric.close()
        self.comm.close()
        for stream in (self.stream, self.other):
            check(driver.cuStreamDestroy_v2(ctypes.c_void_p(stream)))


class Rank(threading.Thread):
    """A rank: it makes the communicators, and its threads run while it looks at the clock."""

    failures: list[str] = []
    stop = threading.Event()

    def __init__(self, shunt, number, uid, gpus, seconds, threads):
        super().__init__(daemon=True)
        self.shunt, self.number, self.uid, self.gpu = shunt, number, uid, number % gpus
        self.seconds, self.threads, self.calls, self.memory = seconds, threads, 0, []

    def bind(self):
        context = ctypes.c_void_p()
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.gpu))
        check(driver.cuCtxSetCurrent(context))

    def free_memory(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        check(driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return free.value

    def guard(self, body):
        try:
            self.bind()
            body()
        except BaseException:
            Rank.failures.append(f"rank {self.number}: {traceback.format_exc()}")
            Rank.stop.set()

    def run(self):
        self.guard(self.work)

    def work(self):
        comm = self.shunt.init(self.number, WORLD, self.uid, memory="cuda", device=self.gpu, timeout=30, max_sms=8)
        plain = comm.allocator(segment_bytes=4 << 20)
        workers = [Thread(comm, plain, n) for n in range(self.threads)]

        def rounds(worker):
            going = Memory(plain.alloc(4, stream=worker.stream), 1, worker.stream)
            while True:
                for _ in range(50):
                    worker.round()
                # All ranks end together, also after a failure of one.
                going.fill(0.0 if Rank.stop.is_set() else 1.0)
                worker.comm.all_reduce(going, op="min", stream=worker.stream)
                try:
                    going.expect(1.0)
                except AssertionError:
                    break
            plain.free(going.address, stream=worker.stream)

        running = [threading.Thread(target=self.guard, args=(lambda w=w: rounds(w),), daemon=True) for w in workers]
        for thread in running:
            thread.start()
        for third in range(3):
            Rank.stop.wait(self.seconds / 3)
            self.memory.append(self.free_memory())
        Rank.stop.set()
        for thread in running:
            thread.join(60)
            assert not thread.is_alive(), "a thread does not end"
        if Rank.failures:
            return
        self.calls = sum(worker.calls for worker in workers)
        for worker in workers:
            worker.close()
        plain.trim()
        assert plain.stats[:2] == (0, 0) and plain.stats.segments == 0, plain.stats
        plain.close()
        comm.close()


def main():
    seconds, threads = float((sys.argv[1:2] or ["10"])[0]), int((sys.argv[2:3] or ["4"])[0])
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # cuInit reads it
    check(driver.cuInit(0))
    count = ctypes.c_int()
    check(driver.cuDeviceGetCount(ctypes.byref(count)))
    gpus = min(count.value, WORLD)
    if gpus < WORLD:
        os.environ["SHUNT_SHARE_GPU"] = "on"
    import shunt

    # What the library logs is looked at too.
    log = tempfile.TemporaryFile()
    real = os.dup(2)
    os.dup2(log.fileno(), 2)
    uid = shunt.unique_id()
    ranks = [Rank(shunt, n, uid, gpus, seconds, threads) for n in range(WORLD)]
    start = time.monotonic()
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(max(1.0, start + seconds + 120 - time.monotonic()))
    os.dup2(real, 2)
    log.seek(0)
    logged = log.read().decode("utf-8", "replace")
    sys.stderr.write(logged)
    problems = list(Rank.failures)
    if any(rank.is_alive() for rank in ranks):
        problems.append("a rank does not end: deadlock")
    if "wrong order" in logged:
        problems.append("locks were taken in the wrong order")
    for rank in ranks:
        if len(rank.memory) == 3 and rank.memory[0] - rank.memory[2] > 64 << 20:
            problems.append(f"rank {rank.number}: free memory went from {rank.memory[0] >> 20} to "
                            f"{rank.memory[2] >> 20} MiB")
    print(f"{gpus} GPUs, {WORLD} ranks of {threads} threads, {time.monotonic() - start:.0f} s: "
          f"{sum(r.calls for r in ranks)} rounds, "
          f"free MiB at each third {[[m >> 20 for m in r.memory] for r in ranks]}")
    for problem in problems:
        print(problem)
    sys.stdout.flush()
    os._exit(1 if problems else 0)  # threads that hang must not keep it


if __name__ == "__main__":
    main()
