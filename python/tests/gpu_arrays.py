"""Arrays of CuPy and JAX in Shunt's calls, as a rank on a GPU: shunt run -n 2 python3 gpu_arrays.py cupy|jax."""

import os
import sys

import numpy as np

import shunt

RANK = int(os.environ["SHUNT_RANK"])
SUMMED = ["float32", "float16", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"]
MOVED = ["bool", "int16", "complex64", "complex128"]


def check(what, have, want):
    have, want = np.asarray(have), np.asarray(want)
    wide = np.complex128 if np.iscomplexobj(have) else np.float64
    if not np.array_equal(have.astype(wide), want.astype(wide)):
        raise SystemExit(f"rank {RANK}: {what}: {have.ravel()[:6]} instead of {want.ravel()[:6]}")


def given(rank, count, dtype):
    return (np.arange(count) % 7 + rank).astype(dtype)


def of_cupy(comm):
    import cupy as cp
    world = comm.size
    own = cp.cuda.Stream(non_blocking=True)
    for dtype in SUMMED:
        for count in (1, 1000, 1 << 20):
            every = [given(r, count, dtype) for r in range(world)]
            x, out = cp.asarray(every[RANK]), cp.empty(count, dtype)
            comm.all_reduce(x, out)
            check(f"all_reduce of {count} {dtype}", cp.asnumpy(out), sum(e.astype(float) for e in every))
            for stream in (own, own.ptr):
                with own:
                    y = cp.asarray(every[RANK])
                    comm.all_reduce(y, stream=stream)
                    check(f"all_reduce of {dtype} in a stream", cp.asnumpy(y), sum(e.astype(float) for e in every))
            gathered = cp.empty((world, count), dtype)
            comm.all_gather(x, gathered)
            check(f"all_gather of {dtype}", cp.asnumpy(gathered), np.stack(every))
    for dtype in MOVED:
        gathered = cp.empty((world, 100), dtype)
        comm.all_gather(cp.asarray(given(RANK, 100, dtype)), gathered)
        check(f"all_gather of {dtype}", cp.asnumpy(gathered), np.stack([given(r, 100, dtype) for r in range(world)]))
    with comm.window(4096) as window:
        array = cp.asarray(window)
        array[:] = RANK
        check("a window", cp.asnumpy(cp.asarray(window)), np.full(4096, RANK))
        del array
    captured(comm, cp, own)


def captured(comm, cp, stream):
    x = cp.ones(1000, np.float32)
    with stream:
        comm.all_reduce(x, stream=stream)
        stream.synchronize()
        stream.begin_capture()
        comm.all_reduce(x, stream=stream)
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch(stream)
    stream.synchronize()
    check("replays of CuPy's graph", cp.asnumpy(x), np.full(1000, comm.size ** 4))


def of_jax(comm):
    """JAX's arrays are read-only: they are sent, and CuPy's receive."""
    import cupy as cp
    import jax
    import jax.numpy as jnp
    device = jax.devices()[RANK]
    for dtype in ("float32", "bfloat16", "float16", "int32", "uint8"):
        x = jax.device_put(given(RANK, 1000, jnp.dtype(dtype)), device).block_until_ready()
        raw = cp.empty(1000 * x.dtype.itemsize, np.uint8)
        comm.all_reduce(x, raw, dtype=dtype)
        comm.synchronize()
        check(f"all_reduce of {dtype} of JAX", cp.asnumpy(raw).view(x.dtype),
              sum(given(r, 1000, float) for r in range(comm.size)))
        try:
            comm.all_reduce(x)
            raise SystemExit("an array of JAX was written")
        except shunt.InvalidArgumentError as error:
            assert "read-only" in str(error), error


def main():
    import cupy
    cupy.cuda.Device(RANK).use()
    with shunt.init(memory="cuda", device=RANK) as comm:
        {"cupy": of_cupy, "jax": of_jax}[sys.argv[1]](comm)
    print(f"rank {RANK}: arrays of {sys.argv[1]} right", flush=True)


if __name__ == "__main__":
    main()
