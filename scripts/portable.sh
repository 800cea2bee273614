#!/bin/sh
# portable.sh DIR: builds bin/shunt, lib/libshunt.so, libnccl.so.2 and the plugins into DIR, for glibc 2.28 and newer.
# What a wheel and an archive carry. PYTHON has ziglang, as python/requirements-wheel.txt says.
set -eu
cd "$(dirname "$0")/.."
out=${1:?usage: portable.sh DIR}
mkdir -p "$out/bin" "$out/lib/shunt/plugins"
out=$(cd "$out" && pwd)

ZIG="$(command -v "${PYTHON:-python3}") -m ziglang"
export ZIG CC="$PWD/scripts/portable-cc.sh"
# res_search had another name before glibc 2.34, behind a macro of resolv.h.
export CGO_CFLAGS='-O2 -g -Dres_search=__res_search'
strip='-s -w'
plugin=$out/lib/shunt/plugins/shunt-transport

sh capi/build.sh "$out/lib/libshunt.so"
# zig compiles this one too, in one step, and clang has other warnings.
CFLAGS=-Wno-error sh capi/nccl/build.sh "$out/lib/shunt/nccl/libnccl.so.2"
go build -tags portable -ldflags "$strip $(sh scripts/release.sh)" -o "$out/bin/shunt" ./cmd/shunt
for name in shm cudaipc; do
  go build -ldflags "$strip" -o "$plugin-$name" "./transports/$name/process"
done
# Not cudaipc as a shared object too: it would be the fourth copy of the kernels, and PyPI takes 100 MB.
for name in shm nccl; do
  go build -buildmode c-shared -ldflags "$strip" -o "$plugin-$name.so" "./transports/$name/shared"
  rm -f "$plugin-$name.h"
done
