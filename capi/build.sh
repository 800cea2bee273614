#!/bin/sh
# build.sh OUTPUT: builds libshunt.so as OUTPUT.
# GOFLAGS and CC are honoured as by go build.
set -eu
output=${1:?usage: build.sh OUTPUT}
here=$(cd "$(dirname "$0")" && pwd)
case $output in /*) ;; *) output=$PWD/$output ;; esac
mkdir -p "$(dirname "$output")"
cd "$here"
# -z now: everything is resolved at load, as ctypes does, so that -z relro covers
# every pointer that the loader writes. -z nodelete: a Go
# runtime cannot be unloaded. The header that cgo writes beside the library is
# not ours to publish; shunt.h is. invalidptr: what C passes for a pointer may be none,
# as the streams 1 and 2 and the address of an empty message; Go would abort when it
# moves a stack with one.
link="-Wl,-soname,libshunt.so.1 -Wl,--version-script=$here/libshunt.map"
link="$link -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack -Wl,-z,nodelete -Wl,-z,defs"
CGO_ENABLED=1 go build -trimpath -buildmode=c-shared \
  -ldflags "-s -w -X runtime.godebugDefault=invalidptr=0 -extldflags '$link'" \
  -o "$output" .
rm -f "${output%.so}.h"
