"""Collectives of Python objects.

Objects are pickled (protocol 5). Their sizes are exchanged first, so a rank whose object cannot be pickled, or is
larger than the limit, is an error on every rank, and no rank waits for bytes that do not come, if all have the same
limit. From one rank to others, long buffers of an object, as of arrays, go by themselves, from the memory of the object
into that of the new one.
"""

import contextlib
import ctypes
import pickle
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ._collectives import Collectives
from ._operations import _root, whole
from ._tables import ClosedError, DType, InvalidArgumentError, UnsupportedError

_byte = ctypes.c_char

#: What one object may take, pickled, unless the caller says otherwise.
LIMIT = 1 << 30

#: From how many bytes on a buffer goes by itself.
_LONG = 1 << 20

#: In place of a size: the object cannot be pickled; the root's values are not one for each rank.
_FAILED = -1
_MISCOUNTED = -2


class Objects(Collectives):
    """The collectives of objects of Communicator. Unpickling runs code of the sender's choice: ranks trust each
    other."""

    def broadcast_object(self, value: Any = None, root: int = 0, *, limit: int = LIMIT) -> Any:
        """Returns root's object on every rank; the other ranks' value is ignored. limit: the most bytes that it may
        take, pickled; the same on all ranks."""
        root = self._for_objects("broadcast_object", limit, root)
        with self._aborting():
            pieces, cause = _pieces(value) if self.rank == root else ([], None)
            sizes = _sizes_of(pieces, cause)
            self._spread(sizes, root)
            self._agree("broadcast_object", [(root, sizes[0])], limit, cause)
            if self.rank != root:
                pieces = self._room(sizes, lambda lengths: self._spread(lengths, root))
            elif len(pieces) > 1:
                self._spread(_lengths_of(pieces), root)
            for piece in pieces:
                self._spread(piece, root)
        return value if self.rank == root else pickle.loads(pieces[0], buffers=pieces[1:])

    def all_gather_object(self, value: Any, *, limit: int = LIMIT) -> list[Any]:
        """Returns every rank's object, in rank order. limit: the most bytes that one of them may take, pickled;
        the same on all ranks."""
        self._for_objects("all_gather_object", limit)
        with self._aborting():
            data, sizes = self._sizes("all_gather_object", value, limit)
            room = bytearray(sum(sizes))
            if self._groups:
                self.all_gather_v(data, room, sizes)
            else:
                self._call(self._lib.shunt_all_gather_v, _where(data)[0], _where(room)[0], _where(sizes)[0], None,
                           DType.UINT8, None)
        return self._each(value, room, sizes)

    def gather_object(self, value: Any, root: int = 0, *, limit: int = LIMIT) -> list[Any] | None:
        """Returns every rank's object, in rank order, on the root, and None elsewhere. limit as in
        all_gather_object."""
        root = self._for_objects("gather_object", limit, root)
        with self._aborting():
            data, sizes = self._sizes("gather_object", value, limit)
            room = bytearray(sum(sizes) if self.rank == root else 0)
            if self._groups:
                self.gather_v(data, room or None, sizes, root=root)
            else:
                self._call(self._lib.shunt_gather_v, *_where(data)[:2], _where(room)[0], _where(sizes)[0], None,
                           DType.UINT8, root, None)
        if self.rank != root:
            return None
        return self._each(value, room, sizes)

    def scatter_object(self, values: Sequence[Any] | None = None, root: int = 0, *, limit: int = LIMIT) -> Any:
        """Returns object r of root's values on rank r; the other ranks' values are ignored. limit as in
        all_gather_object."""
        root = self._for_objects("scatter_object", limit, root)
        with self._aborting():
            pieces: list[bytes] = []
            cause: Exception | None = None
            sizes = array("q", bytes(8 * self.world))
            if self.rank == root:
                count, given = 0, []
                try:
                    if isinstance(values, (dict, set, frozenset)):
                        count = -1  # which have no order
                    elif values is not None:
                        count, given = len(values), list(values)
                except Exception:  # noqa: BLE001 - whatever the values raise, the other ranks wait
                    count = -1
                if not count == len(given) == self.world:
                    has = f"has {count} values" if count >= 0 else f"gave a {type(values).__name__}"
                    cause = InvalidArgumentError(f"scatter_object: the root {has}, want one for each of {self.world} "
                                                 "ranks")
                    sizes[0] = _MISCOUNTED
                else:
                    for i, value in enumerate(given):
                        data, failure = _pickled(value)
                        cause = cause or failure
                        sizes[i] = len(data) if failure is None else _FAILED
                        pieces.append(data)
            self._spread(sizes, root)
            self._agree("scatter_object", [(root, size) for size in sizes], limit, cause)
            room = bytearray(sizes[self.rank])
            if self.rank == root:
                self.scatter_v(b"".join(pieces), room, sizes, root=root)
            else:
                self.scatter_v(None, room, root=root)
        return pickle.loads(room)

    def send_object(self, value: Any, peer: int, *, limit: int = LIMIT) -> None:
        """Sends an object to one rank, which calls recv_object."""
        peer = self._for_objects("send_object", limit, peer, "peer")
        with self._aborting():
            pieces, cause = _pieces(value)
            sizes = _sizes_of(pieces, cause)
            if sizes[0] > limit:
                self._to(array("q", [_FAILED, 0]), peer)
            else:
                self._to(sizes, peer)
            self._agree("send_object", [(self.rank, sizes[0])], limit, cause)
            if len(pieces) > 1:
                self._to(_lengths_of(pieces), peer)
            for piece in pieces:
                self._to(piece, peer)

    def recv_object(self, peer: int, *, limit: int = LIMIT) -> Any:
        """Returns the object that a rank sends with send_object. What takes more than limit
        bytes, pickled, is received, so that later messages find their way, but not unpickled."""
        peer = self._for_objects("recv_object", limit, peer, "peer")
        with self._aborting():
            sizes = _sizes_of([], None)
            self._from(sizes, peer)
            if sizes[0] == _FAILED:
                raise InvalidArgumentError(f"recv_object: rank {peer} could not send its object; its own error says "
                                           "why")
            pieces = self._room(sizes, lambda lengths: self._from(lengths, peer))
            for piece in pieces:
                self._from(piece, peer)
        self._agree("recv_object", [(peer, sizes[0])], limit, None)
        return pickle.loads(pieces[0], buffers=pieces[1:])

    def _room(self, sizes: array, receive: Callable[[array], Any]) -> list[Any]:
        """Room for the pieces of an object, whose lengths are received if there is more than one."""
        lengths = array("q", bytes(8 * sizes[1])) if sizes[1] > 1 else sizes[:1]
        if sizes[1] > 1:
            receive(lengths)
        return [bytearray(length) for length in lengths]

    # These take the shortest way, for memory that is this module's own. Another thread's group needs the longer one.

    def _spread(self, data: Any, root: int) -> None:
        if self._groups or type(data) is memoryview:
            self.broadcast(data, root)
        else:
            at, count, dtype = _where(data)
            self._call(self._lib.shunt_broadcast, at, at, count, dtype, root, None)

    def _to(self, data: Any, peer: int) -> None:
        if self._groups or type(data) is memoryview:
            self.send(data, peer)
        else:
            self._call(self._lib.shunt_send, *_where(data), peer, None)

    def _from(self, data: Any, peer: int) -> None:
        if self._groups:
            self.recv(data, peer)
        else:
            self._call(self._lib.shunt_recv, *_where(data), peer, None)

    def _sizes(self, name: str, value: Any, limit: int) -> tuple[bytes, array]:
        """This rank's object and the size of every rank's."""
        data, cause = _pickled(value)
        own, sizes = array("q", [len(data) if cause is None else _FAILED]), array("q", bytes(8 * self.world))
        if self._groups:
            self.all_gather(own, sizes)
        else:
            self._call(self._lib.shunt_all_gather, _where(own)[0], _where(sizes)[0], 1, DType.INT64, None)
        self._agree(name, list(enumerate(sizes)), limit, cause)
        return data, sizes

    def _each(self, own: Any, room: bytearray, sizes: array) -> list[Any]:
        """The objects that lie one behind the other; this rank's own as it is."""
        found, at = [], 0
        for rank, size in enumerate(sizes):
            found.append(own if rank == self.rank else pickle.loads(memoryview(room)[at : at + size]))
            at += size
        return found

    def _agree(self, name: str, sizes: list[tuple[int, int]], limit: int, cause: Exception | None) -> None:
        """Raises on every rank what is wrong with the first object that cannot go."""
        with self._noting(name):  # ranks of another limit may go on
            for rank, size in sizes:
                if size in (_FAILED, _MISCOUNTED):
                    if isinstance(cause, InvalidArgumentError):
                        raise cause
                    what = "an object that cannot be pickled" if size == _FAILED else "not one value for each rank"
                    raise InvalidArgumentError(f"{name}: rank {rank} has {what}") from cause
                if size > limit:
                    raise InvalidArgumentError(
                        f"{name}: rank {rank} has an object of {size} bytes, pickled; limit= is {limit}")

    def _for_objects(self, name: str, limit: int, peer: Any = 0, what: str = "root") -> int:
        """Checks the arguments of a call; returns the rank that one of them names."""
        with self._noting(name):
            if type(limit) is not int:
                whole(limit, f"{name}: limit")
            peer = _root(self, peer, name, what)
        if self.on_device:
            raise UnsupportedError(f'{name}: objects go through host memory; make a communicator with memory="host" '
                                   'for them')
        if self._group() is not None:
            raise InvalidArgumentError(f"{name}: objects cannot go in a group, as their sizes must arrive before they "
                                       "do")
        return peer

    @contextlib.contextmanager
    def _aborting(self) -> Iterator[None]:
        """Aborts when a call of several messages ends before its last one, by a signal handler or for lack of memory:
        the other ranks wait for the rest. Arguments that are refused end it on them too, or they are told."""
        try:
            yield
        except (InvalidArgumentError, UnsupportedError, ClosedError):
            raise
        except BaseException as error:
            self._end(f"interrupted by {type(error).__name__}".encode())
            raise


def _where(data: Any) -> tuple[int | None, int, DType]:
    """Address, elements and dtype of an array of numbers, a bytearray or bytes, good while the caller keeps it and
    nobody else has it, who could make it longer."""
    if type(data) is array:
        return data.buffer_info()[0], len(data), DType.INT64
    if not data:
        return None, 0, DType.UINT8
    if type(data) is bytearray:
        return ctypes.addressof(_byte.from_buffer(data)), len(data), DType.UINT8
    return ctypes.c_void_p.from_buffer(ctypes.c_char_p(data)).value, len(data), DType.UINT8


def _pickled(value: Any) -> tuple[bytes, Exception | None]:
    """An object as bytes, or why not: pickling calls any code of the object."""
    try:
        return pickle.dumps(value, protocol=5), None
    except Exception as error:  # noqa: BLE001
        return b"", error


def _pieces(value: Any) -> tuple[list[Any], Exception | None]:
    """An object as bytes without its long buffers, and those; or why not."""
    found: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LONG:
            return True
        found.append(raw)
        return False

    try:
        return [pickle.dumps(value, protocol=5, buffer_callback=keep), *found], None
    except Exception as error:  # noqa: BLE001
        return [], error


def _sizes_of(pieces: list[Any], cause: Exception | None) -> array:
    """How long the pieces are together, and how many they are."""
    return array("q", [sum(_lengths_of(pieces)) if cause is None else _FAILED, len(pieces)])


def _lengths_of(pieces: list[Any]) -> array:
    return array("q", [len(piece) for piece in pieces])
