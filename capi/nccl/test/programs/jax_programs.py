"""JAX over whichever libnccl.so.2 is loaded, each result compared with numpy's: jax_programs.py [PART...].

One process drives all GPUs; under `shunt run -n N`, with N above 1, each rank drives one.

    LD_PRELOAD=bin/nccl/libnccl.so.2 python3 jax_programs.py
    shunt run -n 2 --nccl -- python3 jax_programs.py
"""

import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

RANK = int(os.environ.get("SHUNT_RANK", "0"))
WORLD = int(os.environ.get("SHUNT_WORLD", "1"))


def join():
    if WORLD > 1:
        jax.distributed.initialize(f"127.0.0.1:{os.environ.get('JAX_PORT', '29777')}", WORLD, RANK, [RANK])


def mesh_of(n, *shape):
    shape = shape or (n,)
    return Mesh(np.array(jax.devices()[:n]).reshape(shape), tuple("xyz"[:len(shape)]))


def put(mesh, array, spec):
    return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda index: array[index])


def pieces(out):
    return [(s.index, np.asarray(s.data)) for s in out.addressable_shards]


def same(what, out, want, exact=True):
    for index, have in pieces(out):
        wide = np.complex128 if np.iscomplexobj(have) else np.float64
        have, w = have.astype(wide), np.asarray(want)[index].astype(wide)
        if not (np.array_equal(have, w) if exact else np.allclose(have, w, rtol=2e-3, atol=2e-3)):
            raise SystemExit(f"rank {RANK}: {what}: wrong at {index}: {have.ravel()[:8]} instead of {w.ravel()[:8]}")


def mapped(mesh, f, ins, outs):
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False))


def values(shape, dtype, seed):
    """Whole numbers, so that sums are exact."""
    return np.random.default_rng(seed).integers(0 if np.dtype(dtype).kind == "u" else -4, 5, shape).astype(dtype)


DTYPES = [np.float32, jnp.bfloat16, np.float16, np.int32, np.uint32, np.int8, np.uint8]


def collectives():
    n = jax.device_count()
    mesh = mesh_of(n)
    cases = 0
    for dtype in DTYPES:
        for k in (n, 12 * n, 1000 * n, 65536 * n):
            a = values((n, k), dtype, k)
            x = put(mesh, a, P("x"))
            wide = a.astype(np.float64)
            name = f"{np.dtype(dtype).name} of {k}"
            for op, want in ((lax.psum, wide.sum(0)), (lax.pmax, wide.max(0)), (lax.pmin, wide.min(0))):
                same(f"{op.__name__} {name}", mapped(mesh, lambda v: op(v, "x"), P("x"), P("x"))(x),
                     np.broadcast_to(want, a.shape))
            same("all_gather " + name,
                 mapped(mesh, lambda v: lax.all_gather(v, "x", tiled=True), P("x"), P(None))(x), a)
            same("psum_scatter " + name,
                 mapped(mesh, lambda v: lax.psum_scatter(v[0], "x", tiled=True)[None], P("x"), P("x"))(x),
                 wide.sum(0).reshape(n, k // n))
            same("all_to_all " + name,
                 mapped(mesh, lambda v: lax.all_to_all(v.reshape(n, k // n), "x", 0, 0)[None], P("x"), P("x"))(x),
                 a.reshape(n, n, k // n).transpose(1, 0, 2).reshape(n, n, k // n))
            same("ppermute " + name,
                 mapped(mesh, lambda v: lax.ppermute(v, "x", [(i, (i + 1) % n) for i in range(n)]), P("x"), P("x"))(x),
                 np.roll(a, 1, 0))
            cases += 7
    return cases


def other_dtypes():
    n = jax.device_count()
    mesh = mesh_of(n)
    a = values((n, 4096), np.int8, 1) > 0
    same("all_gather of bool", mapped(mesh, lambda v: lax.all_gather(v, "x", tiled=True), P("x"), P(None))(
        put(mesh, a, P("x"))), a)
    c = (values((n, 4096), np.float32, 2) + 1j * values((n, 4096), np.float32, 3)).astype(np.complex64)
    same("psum of complex64", mapped(mesh, lambda v: lax.psum(v, "x"), P("x"), P("x"))(put(mesh, c, P("x"))),
         np.broadcast_to(c.sum(0), c.shape))
    return 2


def loops():
    """Collectives in a loop of the device, which JAX may capture in a graph."""
    n = jax.device_count()
    mesh = mesh_of(n)
    a = values((n, 1 << 16), np.float32, 5)

    def f(v):
        def step(i, c):
            s = lax.psum(c, "x") / n
            return lax.ppermute(s, "x", [(j, (j + 1) % n) for j in range(n)]) + 1
        return lax.fori_loop(0, 20, step, v)

    x, g = put(mesh, a, P("x")), mapped(mesh, f, P("x"), P("x"))
    want = a.astype(np.float64).mean(0) + 20
    for _ in range(20):
        same("loop", g(x), np.broadcast_to(want, a.shape), exact=False)
    return 20


def processes():
    """What JAX's processes do together outside of programs of their own."""
    if WORLD == 1:
        return 0
    from jax.experimental import multihost_utils as multi
    every = np.asarray(multi.process_allgather(np.full(5, RANK)))
    assert np.array_equal(every, np.arange(WORLD)[:, None] * np.ones(5)), every
    told = np.asarray(multi.broadcast_one_to_all(np.arange(7) + RANK))
    assert np.array_equal(told, np.arange(7)), told
    multi.sync_global_devices("the end")
    return 3


def several():
    """Collectives that do not depend on each other, which XLA starts at once."""
    n = jax.device_count()
    mesh = mesh_of(n)

    def f(v):
        return lax.psum(v, "x"), lax.all_gather(v, "x", tiled=True), lax.psum(v * 2, "x"), lax.pmax(v, "x"), \
            lax.ppermute(v, "x", [(i, (i + 1) % n) for i in range(n)])

    g = mapped(mesh, f, P("x"), (P("x"), P(None), P("x"), P("x"), P("x")))
    for turn in range(30):
        a = values((n, 1 << (8 + turn % 12)), np.float32, turn)
        out = g(put(mesh, a, P("x")))
        for what, o, w in zip(("psum", "all_gather", "psum 2", "pmax", "ppermute"), out,
                              (np.broadcast_to(a.sum(0), a.shape), a, np.broadcast_to(a.sum(0) * 2, a.shape),
                               np.broadcast_to(a.max(0), a.shape), np.roll(a, 1, 0))):
            same("several: " + what, o, w)
    return 150


def train():
    """Data parallel and sharded parameters by jit's partitioning: losses equal to those of one device."""
    n = jax.device_count()
    d, h, batch = 256, 1024, 64 * n
    rng = np.random.default_rng(7)
    w = {"a": rng.normal(0, .05, (d, h)).astype(np.float32), "b": rng.normal(0, .05, (h, d)).astype(np.float32)}
    xs = rng.normal(0, 1, (10, batch, d)).astype(np.float32)

    def loss(p, x):
        return jnp.mean((jnp.tanh(x @ p["a"]) @ p["b"] - jnp.sin(x)) ** 2)

    def step(p, x):
        value, grad = jax.value_and_grad(loss)(p, x)
        return jax.tree.map(lambda v, g: v - 0.5 * g, p, grad), value

    def run(mesh, data, params):
        p = {k: put(mesh, v, params) for k, v in w.items()}
        f = jax.jit(step, donate_argnums=0)
        losses = []
        for x in xs:
            p, value = f(p, put(mesh, x, data))
            losses.append(float(np.asarray(value.addressable_data(0))))
        return np.array(losses)

    alone = run(Mesh(np.array([jax.local_devices()[0]]), ("x",)), P(), P())
    mesh = mesh_of(n)
    for what, data, params in (("data parallel", P("x"), P()), ("sharded", P("x"), P("x")),
                               ("tensor parallel", P(), P(None, "x"))):
        got = run(mesh, data, params)
        if not np.allclose(got, alone, rtol=2e-3):
            raise SystemExit(f"{what}: {got} instead of {alone}")
    return 3


def groups():
    """Collectives along one axis of a mesh, whose groups JAX makes by splitting."""
    n = jax.device_count()
    if n % 2 or n < 4:
        return 0
    mesh = mesh_of(n, 2, n // 2)
    a = values((2, n // 2, 4096), np.float32, 9)
    x = put(mesh, a, P("x", "y"))
    same("psum x", mapped(mesh, lambda v: lax.psum(v, "x"), P("x", "y"), P("x", "y"))(x),
         np.broadcast_to(a.sum(0, keepdims=True), a.shape))
    same("psum y", mapped(mesh, lambda v: lax.psum(v, "y"), P("x", "y"), P("x", "y"))(x),
         np.broadcast_to(a.sum(1, keepdims=True), a.shape))
    same("psum xy", mapped(mesh, lambda v: lax.psum(v, ("x", "y")), P("x", "y"), P("x", "y"))(x),
         np.broadcast_to(a.sum((0, 1), keepdims=True), a.shape))
    return 3


def timed():
    n = jax.device_count()
    mesh = mesh_of(n)
    for k in (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24):
        x = put(mesh, values((n, k), np.float32, k), P("x"))
        g = mapped(mesh, lambda v: lax.fori_loop(0, 50, lambda i, c: lax.psum(c, "x") * 0.5, v), P("x"), P("x"))
        g(x).block_until_ready()
        took = []
        for _ in range(7):
            t = time.perf_counter()
            g(x).block_until_ready()
            took.append((time.perf_counter() - t) / 50 * 1e6)
        if RANK == 0:
            print(f"psum of {k * 4} bytes in a loop: {sorted(took)[3]:.1f} us", flush=True)
    return 6


def main():
    join()
    parts = {f.__name__: f for f in (collectives, other_dtypes, loops, several, processes, train, groups, timed)}
    for name in sys.argv[1:] or parts:
        t = time.monotonic()
        cases = parts[name]()
        print(f"rank {RANK}: {name}: {cases} right, {time.monotonic() - t:.1f} s", flush=True)


if __name__ == "__main__":
    main()
