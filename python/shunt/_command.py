"""The shunt command that the wheel carries."""

import os
import shutil
import sys


def path() -> str:
    """The command's file: $SHUNT_COMMAND, or the one beside this package's library. Raises FileNotFoundError."""
    carried = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "shunt")
    named = os.environ.get("SHUNT_COMMAND") or carried
    found = shutil.which(named) or named
    # The script that pip makes calls main: where the variable names it, it would become itself for ever.
    if all(map(os.path.isfile, (found, sys.argv[0]))) and os.path.samefile(found, sys.argv[0]):
        found = carried
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
