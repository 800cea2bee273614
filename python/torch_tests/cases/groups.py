"""Groups: made in every way that torch has, used beside each other, destroyed."""

import contextlib
import datetime
import itertools
import logging
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shunt
from torch_tests.registry import case


def check(w, group, ranks):
    """The group reduces over exactly these ranks."""
    if w.rank not in ranks:
        none = group is None or group == dist.GroupMember.NON_GROUP_MEMBER
        assert none, f"rank {w.rank} is no member of {ranks} but got {group}"
        return
    assert dist.get_process_group_ranks(group) == list(ranks)
    assert dist.get_rank(group) == list(ranks).index(w.rank) and dist.get_world_size(group) == len(ranks)
    t = torch.full((3,), 2.0 ** w.rank, device=w.device)
    dist.all_reduce(t, group=group)
    w.equal(t, torch.full((3,), sum(2.0 ** r for r in ranks)))
    dist.barrier(group=group)


@case()
def default_group(w):
    assert dist.get_backend_config(w.group) == w.spec, dist.get_backend_config(w.group)
    assert dist.get_rank() == w.rank and dist.get_world_size() == w.size
    t = torch.ones(2, device=w.device)
    dist.all_reduce(t)
    w.equal(t, torch.full((2,), float(w.size)))


@case()
def new_group_of_each_subset(w):
    for n in range(1, w.size + 1):
        for ranks in itertools.combinations(range(w.size), n):
            group = w.new_group(list(ranks))
            check(w, group, ranks)
            if w.rank in ranks:
                dist.destroy_process_group(group)


@case()
def new_group_default_backend(w):
    """backend=None takes the default group's."""
    group = dist.new_group(list(range(w.size - 1, -1, -1)))
    assert w.backend in dist.get_backend_config(group)
    check(w, group, dist.get_process_group_ranks(group))
    dist.destroy_process_group(group)


@case(worlds=(4,))
def new_subgroups(w):
    own, groups = dist.new_subgroups(group_size=2)
    check(w, own, [0, 1] if w.rank < 2 else [2, 3])
    for group in groups:
        if dist.get_rank(group) >= 0:
            dist.destroy_process_group(group)


@case(worlds=(4,))
def new_subgroups_by_enumeration(w):
    own, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    check(w, own, [0, 2] if w.rank % 2 == 0 else [1, 3])
    dist.destroy_process_group(own)


@case(worlds=(3, 4), breaks=True)
def only_members_make_it(w):
    """use_local_synchronization: the others do not take part. From torch 2.15 on they do not count the group either, so
    that later groups of all ranks get other names on them, and never meet, over any backend."""
    if w.rank > 0:
        group = dist.new_group(list(range(1, w.size)), use_local_synchronization=True, backend=w.spec)
        check(w, group, list(range(1, w.size)))
        dist.destroy_process_group(group)


@case(each=[1, 2, 3], worlds=(2, 4))
def device_mesh(w, dims):
    shape = {1: (w.size,), 2: (w.size // 2, 2), 3: (1, w.size // 2, 2)}[dims]
    names = ("pp", "dp", "tp")[-dims:]
    mesh = init_device_mesh(w.device.type, shape, mesh_dim_names=names)
    for i, name in enumerate(names):
        group = mesh.get_group(name)
        check(w, group, dist.get_process_group_ranks(group))
        assert dist.get_world_size(group) == shape[i] and mesh[name].size() == shape[i]
    if dims > 1:
        flat = mesh[names[-2:]]._flatten("flat")
        check(w, flat.get_group(), dist.get_process_group_ranks(flat.get_group()))
    assert tuple(mesh.get_coordinate()) == tuple((mesh.mesh == w.rank).nonzero()[0].tolist())


@case(worlds=(4,))
def split_group(w):
    """split_group wants a group that is bound to a device; others are refused in words."""
    try:
        group = dist.split_group(w.group, [[0, 1], [2, 3]])
    except (RuntimeError, ValueError) as error:
        w.needs("No device associated" not in str(error), f"torch: {error}")
        raise
    check(w, group, [0, 1] if w.rank < 2 else [2, 3])


@case()
def many_groups(w):
    """24 groups at once, used in turn, then destroyed in the order they were made."""
    groups = [w.new_group() for _ in range(24)]
    for turn in range(2):
        for i, group in enumerate(groups):
            t = torch.full((5,), float(w.rank + i + turn), device=w.device)
            dist.all_reduce(t, group=group)
            w.equal(t, torch.full((5,), float(sum(range(w.size)) + (i + turn) * w.size)))
    for group in groups:
        dist.destroy_process_group(group)


@case(seconds=60)
def groups_come_and_go(w):
    """Neither descriptors nor threads nor files in /dev/shm grow."""
    def round_of_groups(n):
        for _ in range(n):
            group = w.new_group()
            t = torch.ones(3, device=w.device)
            dist.all_reduce(t, group=group)
            dist.destroy_process_group(group)
            del group
        w.meet()
        mine = [name for name in os.listdir("/dev/shm") if "shunt" in name or f"_{os.getpid()}_" in name]
        return (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), len(mine))
    round_of_groups(6)
    before = round_of_groups(4)
    after = round_of_groups(20)
    w.needs(w.judged, f"gloo: {before} became {after} (descriptors, threads, files)")
    few = all(a <= b + 4 for a, b in zip(after, before))
    assert few, f"descriptors, threads, files of /dev/shm: {before} became {after}"


@case()
def one_rank(w):
    """A group of this rank alone."""
    groups = [w.new_group([r]) for r in range(w.size)]
    check(w, groups[w.rank], [w.rank])
    t = torch.full((3,), 7.0, device=w.device)
    out = [torch.empty(3, device=w.device)]
    dist.all_gather(out, t, group=groups[w.rank])
    w.equal(out, [t])
    got = [None]
    dist.all_gather_object(got, "x", group=groups[w.rank])
    assert got == ["x"]


@case()
def groups_meet_on_two_gpus(w):
    """The ranks of a group meet for each GPU that it is called on, whichever that is on each rank; one that is ahead
    does not find what they met by on the GPU before."""
    w.needs(w.judged and w.device.type == "cuda" and torch.cuda.device_count() > 1, "a group of Shunt's and two GPUs")
    for _ in range(10):
        group = dist.new_group()
        for turn in range(2):
            with torch.cuda.device((w.rank + turn) % 2):
                t = torch.full((1000,), w.rank + 1.0, device="cuda")
                dist.all_reduce(t, group=group)
                assert (t == w.size * (w.size + 1) / 2).all(), t
        dist.destroy_process_group(group)


@case()
def monitored_barrier(w):
    """torch's function takes gloo alone unless shunt.torch has widened it."""
    try:
        dist.monitored_barrier(group=w.group, timeout=datetime.timedelta(seconds=20))
    except ValueError as error:
        w.needs(False, f"torch: {error}")


@case()
def monitored_barriers_leave_nothing_in_the_store(w):
    w.needs(w.judged, "gloo: its barriers are messages")
    store = dist.distributed_c10d._get_default_store()
    keys = []
    for barriers in (1, 10):
        for _ in range(barriers):
            dist.monitored_barrier(group=w.group, timeout=datetime.timedelta(seconds=20))
        w.truth_barrier()
        keys.append(store.num_keys())
        w.truth_barrier()
    assert keys[0] == keys[1], keys


@case(worlds=(2, 3))
def monitored_barriers_of_groups_of_one_name(w):
    """Those of a later group, as after destroy_process_group and init_process_group, wait for their own ranks."""
    w.needs(w.judged, "gloo: its barriers are messages")
    from shunt.torch._extension import C
    store = dist.PrefixStore(f"one name {w.seed}", dist.distributed_c10d._get_default_store())
    for again in (False, True):
        group = C.ShuntBackend(store, w.rank, w.size, C.Options())
        start = time.monotonic()
        w.await_others(0)
        if again and w.rank == 0:
            time.sleep(1)
        group.monitored_barrier(datetime.timedelta(seconds=20))
        waited = time.monotonic() - start
        w.truth_barrier()
    assert waited > 0.5, f"rank {w.rank} was let through after {waited} s, before rank 0 came"


@case()
def debug_level_detail(w):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: torch wraps the backends of new groups, and compares the ranks' calls first."""
    w.needs(w.judged, "gloo: crashes in the wrapper")
    level = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        group = w.new_group()
    finally:
        dist.set_debug_level(level)
    t = torch.ones(3, device=w.device)
    if w.device.type == "cuda":  # there a batch is a call of the group, and all ranks meet within the first
        check(w, group, list(range(w.size)))
    for message in (lambda: (dist.recv if w.rank else dist.send)(t, 1 - w.rank, group=group),
                    lambda: dist.batch_isend_irecv([dist.P2POp(dist.irecv if w.rank else dist.isend, t, 1 - w.rank,
                                                               group)])[0].wait()):
        if w.rank < 2:  # messages of some ranks are no calls that all must have made
            message()
    check(w, group, list(range(w.size)))
    dist.monitored_barrier(group=group, timeout=datetime.timedelta(seconds=20))
    w.raises(lambda: dist.all_reduce(torch.ones(3 + w.rank, device=w.device), group=group), "mismatch")
    dist.destroy_process_group(group)


@case(each=[36_500, 200_000], worlds=(2,))
def timeouts_of_centuries(w, days):
    """A program that wants no deadline names a long one: sums of it and a time must not overflow."""
    w.needs(w.judged, "gloo: has limits of its own")
    group = w.new_group(seconds=datetime.timedelta(days=days).total_seconds())
    check(w, group, list(range(w.size)))
    work = dist.all_reduce(torch.ones(3, device=w.device), group=group, async_op=True)
    work.wait(datetime.timedelta(days=days))
    dist.monitored_barrier(group=group, timeout=datetime.timedelta(days=days))
    dist.destroy_process_group(group)


@case()
def timeouts_are_set(w):
    group = w.new_group(seconds=33)
    backend = group._get_backend(w.device)
    options = getattr(backend, "options", None)
    if options is not None:
        assert options._timeout == datetime.timedelta(seconds=33), options._timeout
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=44), group)
    check(w, group, list(range(w.size)))
    dist.destroy_process_group(group)


def agreed(w, make):
    """What make() returned on rank 0."""
    box = [make() if w.rank == 0 else None]
    dist.broadcast_object_list(box, 0, group=w.truth)
    return box[0]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@case(each=[(name, how) for name in ("plain", "with device") for how in ("file", "env", "tcp", "store")], breaks=True,
      worlds=(3,))
def init_again(w, name, how):
    """destroy_process_group, then init_process_group by each kind of rendezvous."""
    name = w.backend if name == "plain" else w.spec
    port, path = agreed(w, free_port), agreed(w, tempfile.mktemp)
    ports = [port, agreed(w, free_port)]
    dist.destroy_process_group()
    os.environ.update(MASTER_ADDR="127.0.0.1")
    arguments = {"file": {"init_method": "file://" + path}, "env": {},
                 "tcp": {"init_method": f"tcp://127.0.0.1:{port}"}}.get(how)
    if arguments is None:
        arguments = {"store": dist.PrefixStore("p", dist.TCPStore("127.0.0.1", port, w.size, w.rank == 0))}
    if how != "env":
        arguments |= {"rank": w.rank, "world_size": w.size}
    # Each round has a port of its own: on the same one, a rank that is ahead would connect to rank 0's old store, just
    # before rank 0 closes it.
    for port in ports if how == "env" else ports[:1]:
        os.environ["MASTER_PORT"] = str(port)
        dist.init_process_group(name, **arguments)
        t = torch.ones(2, device=w.device)
        dist.all_reduce(t)
        w.equal(t, torch.full((2,), float(w.size)))
        dist.destroy_process_group()


def connections(port):
    """How many connections to the port this process has."""
    mine = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing
            mine.add(os.readlink(f"/proc/self/fd/{fd}"))
    count = 0
    for table in ("tcp", "tcp6"):
        with open(f"/proc/self/net/{table}") as lines:
            fields = [line.split() for line in lines][1:]
        count += sum(f[2].endswith(f":{port:04X}") and f"socket:[{f[9]}]" in mine for f in fields)
    return count


@case(breaks=True, worlds=(2, 3))
def groups_share_a_connection(w):
    """A group needs no connection of its own to torch's store, whose server may take seconds to accept one: it asks
    the name service who it is."""
    port = agreed(w, free_port)
    dist.destroy_process_group()
    dist.init_process_group(w.backend, init_method=f"tcp://127.0.0.1:{port}", rank=w.rank, world_size=w.size)
    before = connections(port)
    assert before > 0
    for _ in range(6):
        group = w.new_group()
        t = torch.ones(2, device=w.device)
        dist.all_reduce(t, group=group)
        w.equal(t, torch.full((2,), float(w.size)))
    assert connections(port) <= before + 1, f"{before} connections became {connections(port)}"
    dist.destroy_process_group()


@case(breaks=True, worlds=(2,))
def two_backends_in_one_group(w):
    """'cpu:gloo,cuda:shunt' and its like: each device type has its own."""
    path = agreed(w, tempfile.mktemp)
    dist.destroy_process_group()
    spec = "cpu:gloo,cuda:" + w.backend if w.device.type == "cuda" else w.spec + ",cuda:gloo"
    dist.init_process_group(spec, rank=w.rank, world_size=w.size, init_method="file://" + path)
    t = torch.ones(2, device=w.device)
    dist.all_reduce(t)
    w.equal(t, torch.full((2,), float(w.size)))
    t = torch.ones(2)
    dist.all_reduce(t)
    w.equal(t, torch.full((2,), float(w.size)))
    out = [None] * w.size
    dist.all_gather_object(out, w.rank)
    assert out == list(range(w.size))
    dist.barrier()
    dist.destroy_process_group()


@case(worlds=(3,))
def log_lines_name_the_group(w):
    """Its name, and for messages which two of its ranks they are: a communicator's own numbers are 0 and 1 there."""
    w.needs(w.judged and w.device.type == "cpu", "gloo: logs nothing; GPUs: ranks may meet before")
    lines, logger = [], logging.getLogger("torch_tests.labels")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [logging.Handler()]
    logger.handlers[0].emit = lambda record: lines.append(record.getMessage())
    group, t = w.new_group([1, 2]), torch.ones(3)
    shunt.log_to(logger)
    try:
        if w.rank:
            dist.all_reduce(t, group=group)
            dist.batch_isend_irecv([dist.P2POp(dist.isend if w.rank == 2 else dist.irecv, t, 3 - w.rank,
                                               group)])[0].wait()
    finally:
        shunt.log_to(None)
    name = f"group {group.group_name}" if w.rank else ""
    made = [line.partition(" rank=")[0] for line in lines if line.startswith("communicator made")]
    assert made == [f'communicator made label="{label}" communicator=world'
                    for label in (name, f"ranks 1, 0 of {name}") if w.rank], lines


@case(breaks=True)
def groups_that_torch_does_not_know(w):
    """Made by programs that keep their groups themselves, in one store, beside init_process_group or without it."""
    w.needs(w.judged, "shunt.torch.process_group")
    store = dist.distributed_c10d._get_default_store()
    for name in "a", "b":
        group = shunt.torch.process_group(store, w.rank, w.size, name=name)
        assert (group.rank(), group.size()) == (w.rank, w.size)
        t = torch.full((3,), 2.0 ** w.rank, device=w.device)
        group.allreduce([t]).wait()
        w.equal(t, torch.full((3,), 2.0 ** w.size - 1))
        rows = [torch.empty(3, device=w.device) for _ in range(w.size)]
        group.allgather([rows], [torch.full((3,), float(w.rank), device=w.device)]).wait()
        w.equal(torch.stack(rows), torch.arange(w.size).float()[:, None].expand(w.size, 3))
        group.barrier().wait()
        group.shutdown()
    last = shunt.torch.process_group(store, w.rank, w.size, name="c", timeout=datetime.timedelta(seconds=1))
    if w.rank == 0:
        w.raises(lambda: last.allreduce([torch.ones(2, device=w.device)]).wait(), "group c", "not joined within 1")
    for rank in -1, w.size:
        w.raises(lambda rank=rank: shunt.torch.process_group(store, rank, w.size), f"rank {rank} is not one of a group")
