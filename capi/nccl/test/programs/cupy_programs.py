"""CuPy over whichever libnccl.so.2 is loaded, each result compared with numpy's: cupy_programs.py thread|process|cupyx.

thread: one process drives all GPUs, a thread each. process and cupyx: each rank of `shunt run` drives one, by CuPy's
own calls of NCCL or by cupyx.distributed.
"""

import os
import sys
import threading
import time

import cupy as cp
import numpy as np
from cupy.cuda import nccl

RANK = int(os.environ.get("SHUNT_RANK", "0"))
WORLD = int(os.environ.get("SHUNT_WORLD", "1"))
TYPES = {"int8": nccl.NCCL_INT8, "uint8": nccl.NCCL_UINT8, "int32": nccl.NCCL_INT32, "uint32": nccl.NCCL_UINT32,
         "int64": nccl.NCCL_INT64, "uint64": nccl.NCCL_UINT64, "float16": nccl.NCCL_FLOAT16,
         "float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64}


def given(r, n, t):
    return ((np.arange(n) * 7 + r * 3) % 5 + 1).astype(t)


def check(what, have, want):
    if not np.array_equal(cp.asnumpy(have), want):
        raise SystemExit(f"rank {RANK}: {what}: {cp.asnumpy(have)[:6]} instead of {want[:6]}")


def matrix(comm, r, n):
    s = cp.cuda.Stream(non_blocking=True)
    cases = 0
    with s:
        for t, code in TYPES.items():
            for count in (1, 1000, 1 << 18):
                mine = cp.asarray(given(r, count, t))
                every = [given(k, count, t) for k in range(n)]
                out = cp.empty_like(mine)
                for op, f in ((nccl.NCCL_SUM, np.sum), (nccl.NCCL_MAX, np.max), (nccl.NCCL_MIN, np.min),
                              (nccl.NCCL_PROD, np.prod)):
                    comm.allReduce(mine.data.ptr, out.data.ptr, count, code, op, s.ptr)
                    s.synchronize()
                    check(f"allReduce {t} {count} op {op}", out, f(np.stack(every), 0).astype(t))
                    cases += 1
                for root in range(n):
                    x = cp.asarray(given(r, count, t))
                    comm.broadcast(mine.data.ptr, out.data.ptr, count, code, root, s.ptr)
                    comm.bcast(x.data.ptr, count, code, root, s.ptr)
                    s.synchronize()
                    check(f"broadcast {t}", out, every[root])
                    check(f"bcast {t}", x, every[root])
                    comm.reduce(mine.data.ptr, out.data.ptr, count, code, nccl.NCCL_SUM, root, s.ptr)
                    s.synchronize()
                    if root == r:
                        check(f"reduce {t}", out, np.sum(np.stack(every), 0).astype(t))
                    cases += 3
                all_ = cp.empty(n * count, t)
                comm.allGather(mine.data.ptr, all_.data.ptr, count, code, s.ptr)
                s.synchronize()
                check(f"allGather {t}", all_, np.concatenate(every))
                part = cp.empty(count, t)
                whole = cp.asarray(np.concatenate([given(r + k, count, t) for k in range(n)]))
                comm.reduceScatter(whole.data.ptr, part.data.ptr, count, code, nccl.NCCL_SUM, s.ptr)
                s.synchronize()
                check(f"reduceScatter {t}", part, sum(given(k + r, count, t) for k in range(n)))
                nccl.groupStart()
                comm.send(mine.data.ptr, count, code, (r + 1) % n, s.ptr)
                comm.recv(out.data.ptr, count, code, (r - 1) % n, s.ptr)
                nccl.groupEnd()
                s.synchronize()
                check(f"send/recv {t}", out, every[(r - 1) % n])
                cases += 3
    return cases


def thread():
    n = cp.cuda.runtime.getDeviceCount()
    comms = nccl.NcclCommunicator.initAll(n)
    failed = []

    def one(r):
        try:
            with cp.cuda.Device(r):
                print(f"thread {r}: {matrix(comms[r], r, n)} right", flush=True)
        except BaseException as error:
            failed.append(error)
            raise
    threads = [threading.Thread(target=one, args=(r,)) for r in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for comm in comms:
        comm.destroy()
    if failed:
        raise SystemExit(1)


def process():
    path = os.environ["MEETING"]  # a file that does not exist yet
    cp.cuda.Device(RANK).use()
    if RANK == 0:
        with open(path + ".new", "wb") as f:
            f.write(bytes(nccl.get_unique_id()))
        os.rename(path + ".new", path)
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "rb") as f:
        comm = nccl.NcclCommunicator(WORLD, f.read(), RANK)
    assert (comm.rank_id(), comm.size(), comm.device_id()) == (RANK, WORLD, RANK)
    print(f"rank {RANK}: {matrix(comm, RANK, WORLD)} right", flush=True)
    comm.check_async_error()
    comm.destroy()


def cupyx():
    from cupyx.distributed import init_process_group
    cp.cuda.Device(RANK).use()
    comm = init_process_group(WORLD, RANK, backend="nccl", host="127.0.0.1", port=int(os.environ.get("PORT", "13400")))
    ramp = np.arange(1000, dtype=np.float32)
    ranks = sum(range(WORLD))
    mine, out = cp.asarray(ramp) + RANK, cp.zeros(1000, np.float32)
    comm.all_reduce(mine, out)
    check("all_reduce", out, ramp * WORLD + ranks)
    comm.broadcast(mine, WORLD - 1)
    check("broadcast", mine, ramp + WORLD - 1)
    blocks = np.arange(WORLD * 10, dtype=np.float32).reshape(WORLD, 10)
    part, every = cp.zeros(10, np.float32), cp.zeros((WORLD, 10), np.float32)
    comm.reduce_scatter(cp.asarray(blocks) + RANK, part, 10)
    check("reduce_scatter", part, blocks[RANK] * WORLD + ranks)
    comm.all_gather(part, every, 10)
    check("all_gather", every, blocks * WORLD + ranks)
    comm.all_to_all(cp.asarray(blocks) + RANK, every)
    check("all_to_all", every, np.stack([blocks[RANK] + r for r in range(WORLD)]))
    z, total = cp.full(100, RANK + 1j, np.complex64), cp.zeros(100, np.complex64)
    comm.all_reduce(z, total)
    check("all_reduce of complex64", total, np.full(100, ranks + WORLD * 1j, np.complex64))
    comm.barrier()
    comm.stop()
    print(f"rank {RANK}: cupyx right", flush=True)


if __name__ == "__main__":
    {"thread": thread, "process": process, "cupyx": cupyx}[sys.argv[1]]()
