#!/bin/sh
# portable-cc.sh: a C compiler for programs that run with glibc 2.28 and newer on PORTABLE_ARCH (unset: this machine's).
# cc compiles. zig links, against that glibc's symbols: what a newer one has added is an undefined symbol.
# For another processor zig compiles too.
# ZIG is the command line of zig; portable.sh sets it.
arch=${PORTABLE_ARCH:-$(uname -m)}
if [ "$arch" = "$(uname -m)" ]; then
  for argument; do
    case $argument in -c | -E | -S | -fsyntax-only) exec gcc "$@" ;; esac
  done
fi
exec $ZIG cc -target "$arch-linux-gnu.2.28" "$@"
