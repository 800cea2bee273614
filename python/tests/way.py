"""Programs import this before shunt: WAY=full makes them run as where _calls.c was
not built."""

import os
import sys

if os.environ.get("WAY") == "full":
    sys.modules["shunt._calls"] = None  # what cannot be imported
