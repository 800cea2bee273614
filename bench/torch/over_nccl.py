"""torch's nccl backend over whichever libnccl.so.2 is loaded: results against the truth, and host time per call.

    LD_PRELOAD=bin/nccl/libnccl.so.2 torchrun --nproc-per-node 2 bench/torch/over_nccl.py
"""

import json
import os
import time

import torch
import torch.distributed as dist

SIZES = [1, 1000, 1 << 20]
MOVES = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "avg": dist.ReduceOp.AVG,
       "product": dist.ReduceOp.PRODUCT}


def given(rank: int, size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return (torch.arange(size, device=device) % 2 + rank % 2 + 1).to(dtype)


def check(what: str, got: torch.Tensor, want: torch.Tensor) -> None:
    if not torch.equal(got, want):
        raise SystemExit(f"rank {dist.get_rank()}: {what}: wrong at {(got != want).nonzero()[0].tolist()}")


def matrix(rank: int, world: int, device: torch.device) -> int:
    cases = 0
    for size in SIZES:
        for dtype in MOVES:
            mine = given(rank, size, dtype, device)
            every = [given(r, size, dtype, device) for r in range(world)]
            for name, op in OPS.items():
                if name == "avg" and not dtype.is_floating_point:
                    continue
                x = mine.clone()
                dist.all_reduce(x, op)
                stack = torch.stack([e.double() for e in every])
                want = {"sum": stack.sum(0), "max": stack.amax(0), "min": stack.amin(0), "avg": stack.mean(0),
                        "product": stack.prod(0)}[name].to(dtype)
                check(f"all_reduce {name} {dtype} {size}", x, want)
                out = torch.empty_like(mine)
                dist.reduce_scatter_tensor(out, mine.repeat(world), op)
                check(f"reduce_scatter {name} {dtype} {size}", out, want)
                cases += 2
            gathered = torch.empty(world * size, dtype=dtype, device=device)
            dist.all_gather_into_tensor(gathered, mine)
            check(f"all_gather {dtype} {size}", gathered, torch.cat(every))
            x = mine.clone()
            dist.broadcast(x, world - 1)
            check(f"broadcast {dtype} {size}", x, every[-1])
            swapped = torch.empty_like(gathered)
            dist.all_to_all_single(swapped, mine.repeat(world))
            check(f"all_to_all {dtype} {size}", swapped, torch.cat(every))
            x = torch.empty_like(mine)
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, (rank + 1) % world),
                                                dist.P2POp(dist.irecv, x, (rank - 1) % world)]):
                work.wait()
            check(f"send and recv {dtype} {size}", x, every[rank - 1])
            cases += 4
    return cases


def host_time(size: int, device: torch.device) -> dict:
    x = torch.ones(size, device=device)
    for _ in range(20):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    calls = 200
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x)
    issued = time.perf_counter()
    torch.cuda.synchronize()
    ended = time.perf_counter()
    return {"bytes": 4 * size, "host_us": round((issued - begin) / calls * 1e6, 1),
            "us": round((ended - begin) / calls * 1e6, 1)}


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    cases = matrix(rank, world, device)
    half = dist.new_group(list(range(world)))
    x = torch.ones(1, device=device)
    dist.all_reduce(x, group=half)
    check("all_reduce in a group", x, torch.full_like(x, world))
    rows = [host_time(size, device) for size in (2, 8192, 1 << 18)]
    if rank == 0:
        print(json.dumps({"cases": cases, "preload": os.environ.get("LD_PRELOAD", ""), "all_reduce": rows}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
