#!/bin/sh
# portable-go.sh COMMAND...: runs a command, such as go build, in the environment in which Go and cgo compile for glibc
# 2.28 and newer on PORTABLE_ARCH: x86_64 or aarch64 (unset: this machine's). PYTHON has ziglang.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${PORTABLE_ARCH:=$(uname -m)} in
  x86_64) GOARCH=amd64 ;;
  aarch64) GOARCH=arm64 ;;
  *) echo "portable-go: no build for processor $PORTABLE_ARCH: x86_64 and aarch64 are known" >&2 && exit 2 ;;
esac
ZIG="$(command -v "${PYTHON:-python3}") -m ziglang" CC=$here/portable-cc.sh CGO_ENABLED=1
# res_search had another name before glibc 2.34, behind a macro of resolv.h.
# Without -g, which go has by default: behind -s it has zig keep what that drops.
CGO_CFLAGS='-O2 -Dres_search=__res_search' CGO_LDFLAGS=-O2
export PORTABLE_ARCH GOARCH CGO_ENABLED ZIG CC CGO_CFLAGS CGO_LDFLAGS
exec "$@"
