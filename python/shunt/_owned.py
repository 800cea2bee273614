"""What a process has of the library, which no other object may have too."""

from typing import Any, NoReturn


class Owned:
    """An object that is neither copied nor pickled: a copy would release what this one still uses, and another
    process has nothing behind it."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:  # copy and deepcopy end here too
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: it stands for memory and connections of "
                        "this process; another process joins by shunt.init")
