"""The shunt command that the wheel carries."""

import os
import sys


def path() -> str:
    """The command's file: $SHUNT_COMMAND, or the one beside this package's library. Raises FileNotFoundError."""
    named = os.environ.get("SHUNT_COMMAND")
    found = named or os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "shunt")
    if not os.path.isfile(found):
        raise FileNotFoundError(
            f"there is no shunt command at {found}: wheels carry it; in a source tree, SHUNT_COMMAND names the one of "
            "make build"
        )
    return found


def main() -> None:
    """Becomes the command: the same process, arguments, input and output."""
    try:
        file = path()
        os.execv(file, ["shunt", *sys.argv[1:]])
    except OSError as err:
        raise SystemExit(f"shunt: {err}") from None
