"""Calls that every rank gets wrong alike: an error that names rank, collective and argument, and a group that still
works."""

import datetime

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from torch_tests.registry import case


def refused(w, f, collective, *words):
    """f must raise in words of the backend, leave nothing behind and not disturb the next call."""
    w.needs(w.judged, "gloo: its texts are its own")
    w.raises(f, f"rank {w.rank}", collective, *words)
    works(w)


def refused_by_torch(w, f, *words):
    """torch itself raises before any backend is asked."""
    w.raises(f, *words)
    works(w)


def works(w):
    t = torch.full((3,), float(w.rank), device=w.device)
    dist.all_reduce(t, group=w.group)
    w.equal(t, torch.full((3,), float(sum(range(w.size)))))


@case(worlds=(2,))
def sparse(w):
    t = torch.eye(4, device=w.device).to_sparse()
    refused(w, lambda: dist.all_reduce(t, op=dist.ReduceOp.MAX, group=w.group), "all_reduce", "op", "SUM")
    refused_by_torch(w, lambda: dist.all_reduce(t.to_sparse_csr(), group=w.group), "SparseCsr")
    refused_by_torch(w, lambda: dist.broadcast(t, 0, group=w.group), "sparse")
    other = torch.sparse_coo_tensor([[0]], [1.0], (4 + w.rank,), device=w.device)
    refused(w, lambda: dist.all_reduce(other, group=w.group), "all_reduce", f"rank {1 - w.rank} has", f"[{5 - w.rank}]",
            f"[{4 + w.rank}]")


@case(worlds=(2,))
def tensor_of_another_device(w):
    w.needs(w.device.type == "cuda", "tensors of another device need a GPU (torch takes a meta tensor as done)")
    t = torch.empty(4)
    refused_by_torch(w, lambda: dist.all_reduce(t, group=w.group), t.device.type)


@case(worlds=(2,))
def lists_of_several_devices(w):
    """A backend is called with what torch chose it for by one of the tensors."""
    w.needs(w.judged, "gloo: its texts are its own")
    inputs = [torch.ones(2, device=device) for device in (w.device, "meta")]
    outputs = [[torch.empty_like(t) for t in inputs] for _ in range(w.size)]
    backend = w.group._get_backend(w.device)
    refused(w, lambda: backend.allgather_coalesced(outputs, inputs), "all_gather_coalesced",
            f"input_tensor_list[1] is on meta; expected {inputs[0].device}")
    refused(w, lambda: backend.allreduce_coalesced(inputs), "all_reduce_coalesced", "tensors[1] is on meta")


@case(worlds=(2,))
def quantized(w):
    t = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)
    w.needs(w.device.type == "cpu", "no quantized tensors on this device")
    refused_by_torch(w, lambda: dist.all_reduce(t, group=w.group), "quantized")


@case(worlds=(3,))
def list_of_wrong_length(w):
    t = torch.ones(2, device=w.device)
    short = [torch.ones(2, device=w.device) for _ in range(w.size - 1)]
    refused(w, lambda: dist.all_gather(short, t, group=w.group), "all_gather", "2", "3")
    refused(w, lambda: dist.reduce_scatter(t, short, group=w.group), "reduce_scatter", "2", "3")
    refused(w, lambda: dist.all_to_all(short, short, group=w.group), "all_to_all", "2", "3")


@case(worlds=(3,))
def list_of_wrong_length_at_the_root(w):
    """Only the root has the list: it alone can see what is wrong, and all ranks get the error."""
    short = [torch.ones(2, device=w.device) for _ in range(w.size - 1)]
    t = torch.ones(2, device=w.device)
    w.needs(w.judged, "gloo: its texts are its own")
    group = w.new_group(seconds=8)
    dist.all_reduce(t.clone(), group=group)
    if w.rank == 0:
        w.raises(lambda: dist.gather(t, short, dst=0, group=group), "rank 0", "gather", "2", "3")
        w.raises(lambda: dist.scatter(t, short, src=0, group=group), "rank 0", "scatter", "2", "3")


@case(worlds=(2,))
def wrong_sizes(w):
    t = torch.ones(4, device=w.device)
    refused(w, lambda: dist.all_gather_into_tensor(torch.ones(7, device=w.device), t, group=w.group), "all_gather", "7",
            "8")
    refused(w, lambda: dist.reduce_scatter_tensor(t, torch.ones(7, device=w.device), group=w.group), "reduce_scatter",
            "7", "8")
    refused(w, lambda: dist.all_gather([torch.ones(4, device=w.device), torch.ones(5, device=w.device)],
                                       torch.ones(3, device=w.device), group=w.group), "all_gather", "3")


@case(worlds=(2,))
def dtypes_that_differ(w):
    t, u = torch.ones(4, device=w.device), torch.ones(8, dtype=torch.float64, device=w.device)
    refused(w, lambda: dist.all_gather_into_tensor(u, t, group=w.group), "all_gather", "float")
    refused(w, lambda: dist.reduce_scatter_tensor(t, u, group=w.group), "reduce_scatter", "float")
    refused_by_torch(w, lambda: dist.all_to_all_single(torch.ones(8, device=w.device), u, group=w.group), "float32",
                     "float64")
    refused_by_torch(w, lambda: dist.all_gather([t, u], t, group=w.group))


@case(worlds=(2,))
def splits(w):
    t, out = torch.ones(6, 2, device=w.device), torch.ones(6, 2, device=w.device)

    def call(come, to, send=t, recv=out):
        return lambda: dist.all_to_all_single(recv, send, come, to, group=w.group)
    refused(w, call([3, 3], [3, 2]), "all_to_all", "split")
    refused(w, call([3, 4], [3, 3]), "all_to_all", "split")
    refused(w, call([3, 3], [6]), "all_to_all", "split")
    refused(w, call([3, 3], [7, -1]), "all_to_all", "split")
    refused(w, call([3, 3], [2**61, 6]), "all_to_all", "input_split_sizes", f"entry {2**61}; expected 0 to 6")
    odd = torch.ones(5, 2, device=w.device)
    refused(w, call(None, None, odd, odd.clone()), "all_to_all", "5")


@case(worlds=(2,))
def coalesced_of_several_dtypes(w):
    """Right or refused by name."""
    a, b = torch.ones(4, device=w.device), torch.ones(4, dtype=torch.int32, device=w.device)
    try:
        dist.all_reduce_coalesced([a, b], group=w.group)
    except (RuntimeError, ValueError, TypeError):
        return works(w)
    w.equal([a, b], [torch.full((4,), float(w.size)), torch.full((4,), w.size, dtype=torch.int32)])


@case(worlds=(2,))
def roots_and_peers(w):
    t = torch.ones(4, device=w.device)
    refused_by_torch(w, lambda: dist.broadcast(t, 9, group=w.group), "9")
    refused(w, lambda: dist.reduce(t, group=w.group, group_dst=9), "reduce", "9")
    refused_by_torch(w, lambda: dist.send(t, w.rank, group=w.group))
    refused(w, lambda: dist.send(t, group=w.group, group_dst=9), "send", "9")
    refused(w, lambda: dist.recv(t, group=w.group, group_src=9), "recv", "9")


@case(worlds=(2,))
def messages_in_another_order(w):
    """A transposed tensor is dense, but the other end would get its elements in the wrong places."""
    t = torch.arange(6.0, device=w.device).reshape(2, 3).t()
    refused(w, lambda: dist.send(t, 1 - w.rank, group=w.group), "send", "contiguous")
    refused(w, lambda: dist.recv(t, 1 - w.rank, group=w.group), "recv", "contiguous")
    w.equal(t, torch.arange(6.0).reshape(2, 3).t())
    pixels = torch.arange(120.0, device=w.device).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    came = torch.zeros_like(pixels) if w.rank else pixels
    (dist.recv if w.rank else dist.send)(came, 1 - w.rank, group=w.group)
    w.equal(came, torch.arange(120.0).reshape(2, 3, 4, 5))


@case(worlds=(2,), each=["contiguous", "dst", "src"])
def batch(w, word):
    """torch leaves a group coalescing, where later calls do nothing, if a message of a batch raises by itself."""
    t = torch.arange(6.0, device=w.device).reshape(2, 3)
    call = dist.irecv if word == "src" else dist.isend
    p = dist.P2POp(call, t.t() if word == "contiguous" else t, 1 - w.rank, w.group)
    p.group_peer = 1 - w.rank if word == "contiguous" else 9
    refused(w, lambda: dist.batch_isend_irecv([p, p]), "recv" if word == "src" else "send", word)


@case(worlds=(2,))
def coalesced(w):
    """After the error a call is one by itself again: the group keeps no tensor, and a message arrives."""
    t, f = torch.ones(4, device=w.device), torch.ones(8, dtype=torch.float64, device=w.device)
    calls = [(lambda: dist.all_reduce(t, op=dist.ReduceOp.BAND, group=w.group), "BAND"),
             (lambda: dist.all_gather_into_tensor(f, t, group=w.group), "dtype"),
             (lambda: dist.reduce_scatter_tensor(t, f, group=w.group), "dtype")]
    for call, word in calls:
        def run(call=call):
            with _coalescing_manager(group=w.group, device=w.device, async_ops=True):
                call()
        refused(w, run, word)
        own = torch.full((3,), float(w.rank), device=w.device)
        held = own._use_count()
        for message in (own, own.clone()):  # behind the second the group's thread has let go of the first
            (dist.irecv if w.rank else dist.isend)(message, 1 - w.rank, group=w.group).wait()
        w.equal(own, torch.zeros(3))
        assert w.device.type == "cuda" or own._use_count() == held, "the group keeps a tensor of a finished call"


@case(worlds=(2,))
def ops(w):
    t = torch.ones(4, device=w.device)
    refused_by_torch(w, lambda: dist.all_reduce(t, op="sum", group=w.group))
    refused_by_torch(w, lambda: dist.all_reduce(t.to(torch.complex64), op=dist.ReduceOp.MAX, group=w.group), "complex")


@case(worlds=(2,))
def no_tensor(w):
    refused_by_torch(w, lambda: dist.all_reduce([1.0], group=w.group), "tensor")
    refused_by_torch(w, lambda: dist.all_gather(torch.ones(2), torch.ones(2), group=w.group))
    refused_by_torch(w, lambda: dist.all_gather_into_tensor(None, torch.ones(2, device=w.device), group=w.group))


@case(worlds=(2,), each=[0, -1])
def timeouts(w, seconds):
    w.needs(w.judged, "gloo: takes every timeout")
    text = f"rank {w.rank}: argument timeout is {seconds * 1000} ms"
    w.raises(lambda: w.new_group(seconds=seconds), text, kinds=(ValueError,))
    group = w.new_group()
    w.raises(lambda: group.set_timeout(datetime.timedelta(seconds=seconds)), text, kinds=(ValueError,))
    dist.all_reduce(torch.ones(3, device=w.device), group=group)
    dist.destroy_process_group(group)


@case(worlds=(2,))
def after_destroy(w):
    """torch forgets the group; who still holds it gets an error, no crash."""
    group = w.new_group()
    t = torch.ones(4, device=w.device)
    dist.all_reduce(t, group=group)
    held = group._get_backend(w.device)
    dist.destroy_process_group(group)
    w.needs(w.judged, "gloo: takes calls after its group is destroyed")

    w.raises(lambda: dist.all_reduce(t, group=group))  # by torch, in its words
    w.raises(lambda: held.allreduce([t]).wait(), f"rank {w.rank}", "all_reduce")
    works(w)


@case(worlds=(2,))
def after_abort(w):
    """A call on an aborted group says so; another group still works."""
    group = w.new_group()
    t = torch.ones(4, device=w.device)
    dist.all_reduce(t, group=group)
    w.needs(w.judged, "gloo: abort does nothing")
    works(w)  # no rank is in the call any more
    group.abort()
    w.raises(lambda: dist.all_reduce(t, group=group), f"rank {w.rank}", "abort")
    w.raises(lambda: dist.all_reduce(t, group=group, async_op=True).wait(), f"rank {w.rank}", "abort")
    dist.destroy_process_group(group)
    works(w)
