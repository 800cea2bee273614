#!/bin/sh
# portable.sh DIR: builds bin/shunt, lib/libshunt.so, libnccl.so.2 and the plugins into DIR, for glibc 2.28 and newer on
# PORTABLE_ARCH (unset: this machine's). What a wheel and an archive carry. PYTHON has ziglang, as
# python/requirements-wheel.txt says.
set -eu
cd "$(dirname "$0")/.."
out=${1:?usage: portable.sh DIR}
mkdir -p "$out/bin" "$out/lib/shunt/plugins"
out=$(cd "$out" && pwd)

strip='-s -w'
portable=scripts/portable-go.sh plugin=$out/lib/shunt/plugins/shunt-transport

$portable sh capi/build.sh "$out/lib/libshunt.so"
# zig compiles this one too, in one step, and clang has other warnings.
CFLAGS="-Wno-error -s" $portable sh capi/nccl/build.sh "$out/lib/shunt/nccl/libnccl.so.2"
$portable go build -tags portable -ldflags "$strip $(sh scripts/release.sh)" -o "$out/bin/shunt" ./cmd/shunt
for name in shm cudaipc nccl; do
  $portable go build -ldflags "$strip" -o "$plugin-$name" ./cmd/shunt-transport
done
# Not cudaipc as a shared object too: it would be the third copy of the kernels, and PyPI takes 100 MB.
for name in shm nccl; do
  $portable go build -buildmode c-shared -ldflags "$strip" -o "$plugin-$name.so" "./transports/$name/shared"
  rm -f "$plugin-$name.h"
done
