#!/bin/sh
# portable-cc.sh: a C compiler for programs that run with glibc 2.28 and newer, wherever it runs itself.
# cc compiles. zig links, against that glibc's symbols: what a newer one has added is an undefined symbol.
# ZIG is the command line of zig; portable.sh sets it.
for argument; do
  case $argument in -c | -E | -S | -fsyntax-only) exec gcc "$@" ;; esac
done
exec $ZIG cc -target "$(uname -m)-linux-gnu.2.28" "$@"
