"""`python -m shunt` is the shunt command."""

from ._command import main

main()
