#!/usr/bin/env python3
"""nccl_reuse.py: a fault of NCCL before 2.29.2 (its issue 1859), with nothing of
Shunt in the process: a collective reads a null address when its registered
buffer has been used by send, receive or AllToAll before. Two GPUs, the driver and
NCCL's library are needed, through ctypes.

    nccl_reuse.py [LIBNCCL]      runs every case in fresh processes and says how it ended

The benchmarks therefore give every collective processes of its own.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import time

BYTES, FLOAT32, SYMMETRIC, WORLD = 2 << 20, 7, 1, 2
CASES = {
    "broadcast alone": ["broadcast A"],
    "all_to_all alone": ["all_to_all A"],
    "all_to_all, then broadcast on the same window": ["all_to_all A", "broadcast A"],
    "all_to_all, then broadcast on another window": ["all_to_all A", "broadcast B"],
    "all_to_all on a window, then broadcast on plain memory": ["all_to_all A", "broadcast plain"],
    "send and receive, then broadcast on the same window": ["sendrecv A", "broadcast A"],
}


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def find_nccl():
    try:
        import nvidia.nccl
        return list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2"
    except ImportError:
        return "libnccl.so.2"


def rank(library, number, meeting, steps):
    cuda, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(library)
    nccl.ncclGetErrorString.restype = ctypes.c_char_p

    def check(what, status, text=None):
        if status:
            sys.exit(f"rank {number}: {what}: {text or f'CUDA error {status}'}")

    def call(name, *args):
        status = getattr(nccl, name)(*args)
        check(name, status, nccl.ncclGetErrorString(status).decode())

    check("cuInit", cuda.cuInit(0))
    context, stream, comm, plain = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
    check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    check("cuStreamCreate", cuda.cuStreamCreate(ctypes.byref(stream), 1))
    check("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(plain), ctypes.c_size_t(2 * BYTES)))
    version, unique = ctypes.c_int(), UniqueId()
    call("ncclGetVersion", ctypes.byref(version))
    if number == 0:
        call("ncclGetUniqueId", ctypes.byref(unique))
        with open(meeting + ".new", "wb") as f:
            f.write(bytes(unique))
        os.rename(meeting + ".new", meeting)
        print(f"NCCL {version.value}", flush=True)
    end = time.monotonic() + 15
    while not os.path.exists(meeting):
        if time.monotonic() > end:
            sys.exit(f"rank {number}: rank 0 made no unique id")
        time.sleep(0.01)
    with open(meeting, "rb") as f:
        ctypes.memmove(ctypes.byref(unique), f.read(), 128)
    nccl.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
    call("ncclCommInitRank", ctypes.byref(comm), WORLD, unique, number)
    memory = {"plain": plain.value}
    for name in "AB":
        at, window = ctypes.c_void_p(), ctypes.c_void_p()
        call("ncclMemAlloc", ctypes.byref(at), ctypes.c_size_t(2 * BYTES))
        call("ncclCommWindowRegister", comm, at, ctypes.c_size_t(2 * BYTES), ctypes.byref(window), SYMMETRIC)
        memory[name] = at.value
    for step in steps:
        kind, name = step.split()
        send, recv = ctypes.c_void_p(memory[name]), ctypes.c_void_p(memory[name] + BYTES)
        count = ctypes.c_size_t(BYTES // 4)
        if kind == "broadcast":
            call("ncclBroadcast", send, recv, count, FLOAT32, 0, comm, stream)
        else:
            other = 1 - number
            call("ncclGroupStart")
            peers = range(WORLD) if kind == "all_to_all" else [other]
            part = BYTES // len(peers)
            for i, peer in enumerate(peers):
                n = ctypes.c_size_t(part // 4)
                call("ncclSend", ctypes.c_void_p(send.value + i * part), n, FLOAT32, peer, comm, stream)
                call("ncclRecv", ctypes.c_void_p(recv.value + i * part), n, FLOAT32, peer, comm, stream)
            call("ncclGroupEnd")
        check(f"{step}: cuStreamSynchronize", cuda.cuStreamSynchronize(stream))
    sys.stdout.flush()
    os._exit(0)  # a context that is broken on a peer need not be taken down


def case(library, name, steps):
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(r), library, folder + "/id", *steps],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env={**os.environ, "NCCL_NVLS_ENABLE": "0"}) for r in range(WORLD)]
        end, said, clean, ended = time.monotonic() + 20, [], True, True
        while time.monotonic() < end and any(p.poll() is None for p in ranks):
            if any(p.poll() for p in ranks):
                end = min(end, time.monotonic() + 2)
            time.sleep(0.05)
        for r, p in enumerate(ranks):
            if p.poll() is None:
                ended = False
                p.kill()
            text, _ = p.communicate()
            clean = clean and p.returncode == 0
            said += [line
                     for line in text.strip().split("\n")[-3:] if line and not (r == 0 and line.startswith("NCCL "))]
    print(f"{name}: {'clean' if clean else 'ended with an error' if said else 'did not end' if not ended else 'failed'}"
          + "".join(f"\n    {line}" for line in said[:4]), flush=True)
    return clean


def main():
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[3], int(sys.argv[2]), sys.argv[4], sys.argv[5:])
    library = sys.argv[1] if len(sys.argv) > 1 else find_nccl()
    for needed in ("libcuda.so.1", library):
        try:
            ctypes.CDLL(needed)
        except OSError as error:
            sys.exit(f"nccl_reuse: {error}")
    version = ctypes.c_int()
    ctypes.CDLL(library).ncclGetVersion(ctypes.byref(version))
    print(f"NCCL {version.value}; CUDA error 700 is an illegal address", flush=True)
    clean = {name: case(library, name, steps) for name, steps in CASES.items()}
    same = [n for n in CASES if n.endswith("the same window")]
    if all(clean.values()):
        print("this NCCL does not have the fault")
    elif all(ok for n, ok in clean.items() if n not in same) and not any(clean[n] for n in same):
        print("as described: only a registered buffer that is used by both")
    else:
        print("not as described")


if __name__ == "__main__":
    main()
