"""Joining a job, and the library itself."""

import ctypes
from collections.abc import Sequence

from . import _library
from ._communicator import Communicator, end, int32, made
from ._interruptible import interruptible
from ._operations import deadline
from ._tables import InvalidArgumentError, MemoryKind

_byref = ctypes.byref


def init(rank: int | None = None, world: int | None = None, id: str | None = None, *,
         transports: str | Sequence[str] | None = None, timeout: float | None = None,
         memory: str | MemoryKind = MemoryKind.HOST, device: int | None = None,
         max_sms: int | None = None) -> Communicator:
    """Joins the ranks of a job and returns their communicator. Collective.

    Without arguments everything comes from the environment, as `shunt run`,
    torchrun, mpirun and srun set it. rank and world go together. id is a text
    from unique_id, "tcp://host:port" or "file:///path". transports: as
    SHUNT_TRANSPORTS. timeout: deadline of one operation, in seconds.

    memory: "host" or "cuda". device: with "cuda", the GPU's number; None is that
    of this process's number among the ranks of its host (LOCAL_RANK of
    torchrun), modulo the number of GPUs.

    max_sms: most multiprocessors of a GPU that the communicator's kernels occupy
    at once, as SHUNT_MAX_SMS; the smallest of the ranks' values counts.

    Interrupted (Ctrl-C), it fails on every rank.
    """
    kind = _memory_kind(memory)
    if device is not None and (kind is not MemoryKind.CUDA or int32(device, "init: device") < 0):
        raise InvalidArgumentError(f"init: device {device!r} with memory {kind.name.lower()}; want a GPU's number with "
                                   "memory cuda")
    if (rank is None) != (world is None):
        raise InvalidArgumentError("init: rank and world go together: give both or neither")
    rank = None if rank is None else int32(rank, "init: rank")
    world = None if world is None else int32(world, "init: world")
    if world is not None and (world < 1 or rank is None or not 0 <= rank < world):
        raise InvalidArgumentError(f"init: rank {rank} of world {world} is out of range")
    timeout_ms = 0 if timeout is None else deadline(timeout, "init: timeout")
    if max_sms is not None and int32(max_sms, "init: max_sms") < 1:
        raise InvalidArgumentError(f"init: max_sms {max_sms}; want at least 1")
    if transports is not None and not isinstance(transports, str):
        try:
            transports = ",".join(transports)
        except TypeError:
            raise InvalidArgumentError(f"init: transports is {transports!r}, want a text or a sequence of texts"
                                       ) from None
    options = _library.Options(
        struct_size=ctypes.sizeof(_library.Options),
        rank=rank or 0,
        world=world or 0,
        id=_text(id, "id"),
        transports=_text(transports, "transports"),
        timeout_ms=timeout_ms,
        device=_library.DEVICE_AUTO if device is None else device,
        memory=kind,
        max_sms=max_sms or 0,
    )
    lib, given_up = _library.library(), ctypes.c_int32()
    options.cancel = _library.WORD(given_up)

    def join() -> int | None:
        out = ctypes.c_void_p()
        _library.check(lib.shunt_comm_init(_byref(options), _byref(out)))
        return out.value

    def give_up(reason: bytes) -> None:
        given_up.value = 1

    handle = interruptible(join, give_up, lambda handle: end(lib, handle))
    assert handle is not None
    return made(lib, handle, kind)


def _memory_kind(memory: str | MemoryKind) -> MemoryKind:
    try:
        return MemoryKind[memory.upper()] if isinstance(memory, str) else MemoryKind(memory)
    except (KeyError, ValueError):
        raise InvalidArgumentError(f"init: unknown memory {memory!r}; known are "
                                   f"{', '.join(m.name.lower() for m in MemoryKind)}") from None


def _text(value: str | None, what: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise InvalidArgumentError(f"init: {what} is {value!r}, want a text without zero characters")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"init: {what} is {value!r}, want a text of UTF-8: {error.reason}") from None


def unique_id() -> str:
    """A text that every rank passes to init as id. This process must be one of
    the ranks: it serves the rendezvous."""
    text = ctypes.create_string_buffer(_library.UNIQUE_ID_BYTES)
    _library.check(_library.library().shunt_get_unique_id(text, _library.UNIQUE_ID_BYTES))
    return text.value.decode("ascii")


def version() -> tuple[int, int, int]:
    """The library's version."""
    parts = [ctypes.c_int32() for _ in range(3)]
    _library.library().shunt_version(*map(_byref, parts))
    return parts[0].value, parts[1].value, parts[2].value
