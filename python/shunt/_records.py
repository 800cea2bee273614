"""The text of the flight recorder."""

import ctypes
from collections.abc import Callable

from ._tables import InvalidArgumentError

#: Room for what may be recorded between asking for the size and for the text.
_ROOM = 4096


def text(records: Callable[..., None]) -> str:
    """Returns the JSON of shunt_records. records calls it with the address of the text,
    its capacity and the address of the number of bytes, and raises on other statuses than
    OK."""
    needed, room = ctypes.c_size_t(), 0
    records(None, 0, ctypes.byref(needed))
    while True:
        room = needed.value + _ROOM
        place = ctypes.create_string_buffer(room)
        try:
            records(place, room, ctypes.byref(needed))
        except InvalidArgumentError:
            if needed.value <= room:
                raise
        else:
            return place.value.decode("utf-8", "replace")
