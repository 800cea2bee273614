"""torch's pools over Shunt's allocators, on GPUs with torch: gpu_mem_pool.py, started by `shunt run -n 2`. Ranks share
the one GPU there is with SHUNT_SHARE_GPU=on. A plain and a symmetric pool: tensors made, reduced, freed and made again,
captured with the pool and replayed; every element is checked, and all memory goes back in the end."""

import faulthandler
import os

import torch

import shunt

MIB = 1 << 20


def reduce(comm, n, value):
    x = torch.full((n,), float(value + comm.rank), device="cuda")
    comm.all_reduce(x)
    want = comm.world * value + comm.world * (comm.world - 1) / 2
    assert (x == want).all().item(), f"{n} elements are not all {want}"
    return x


def pooled(comm, symmetric):
    allocator = comm.allocator(symmetric=symmetric)
    if symmetric:
        allocator.reserve(256 * MIB)
    pool = allocator.mem_pool()
    with torch.cuda.use_mem_pool(pool):
        held = [reduce(comm, n, value) for value, n in enumerate((1, 1000, 1 << 18, 1 << 20, 1 << 22))]
        inside = [(segment["address"], segment["total_size"]) for segment in pool.snapshot()]
    stats = allocator.stats
    assert stats.blocks == len(inside) > 0 and stats.in_use >= 4 << 22, (stats, inside)
    assert all(any(0 <= x.data_ptr() - base < size for base, size in inside) for x in held)
    del held
    side = torch.cuda.Stream()
    with torch.cuda.use_mem_pool(pool):
        for value in range(20):  # freed while another stream uses it
            x = reduce(comm, 1 << 20, value)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                total = x.sum()
            x.record_stream(side)
            del x
            side.synchronize()
            assert total.item() == (comm.world * value + comm.world * (comm.world - 1) / 2) * (1 << 20)
    torch.cuda.synchronize()
    captured(comm, pool)
    comm.barrier()
    comm.synchronize()
    del pool, total
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    assert allocator.stats.blocks == 0, f"torch has kept {allocator.stats}"
    allocator.close()  # and with it all segments
    print(f"rank {comm.rank}: {'symmetric' if symmetric else 'plain'} pool, peak {stats.peak // MIB} MiB", flush=True)


def captured(comm, pool):
    x = torch.zeros(100_003, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        y = x + 1
        comm.all_reduce(y)
        z = y * 2
    for value in range(5):
        x.fill_(float(value))
        graph.replay()
        assert (z == 2 * comm.world * (value + 1)).all().item()
    torch.cuda.synchronize()
    del y, z
    graph.reset()


def main():
    faulthandler.enable()
    faulthandler.dump_traceback_later(60, exit=True)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    if torch.cuda.device_count() < int(os.environ["WORLD_SIZE"]):
        os.environ["SHUNT_SHARE_GPU"] = "on"
    with shunt.init(memory="cuda", timeout=30) as comm:
        for symmetric in (False, True):
            pooled(comm, symmetric)


if __name__ == "__main__":
    main()
