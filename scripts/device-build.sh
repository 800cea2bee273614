#!/usr/bin/env bash
# device-build.sh: builds, into build/device, everything that the tests and
# benchmarks on GPUs need on a machine without Go, compilers and network: the
# folder holds run.sh and session.sh (scripts/device-run.sh, device-session.sh)
# and an archive of programs. nvcc is used where it is found; what needs it is
# built over there otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
GO=${GO:-go}
out=$PWD/build/device
stage=$PWD/build/device-stage
rm -rf "$stage" "$out"
mkdir -p "$out" "$stage"/{bin,lib,tests,python,kernels,src/{transports/cudaipc,host/executor,bench}}

step() { printf 'device-build: %s\n' "$*"; }
small=(-trimpath -ldflags "-s -w")

step "shunt and libshunt.so"
$GO build "${small[@]}" -o "$stage/bin/shunt" ./cmd/shunt
sh capi/build.sh "$stage/lib/libshunt.so"
ln -s libshunt.so "$stage/lib/libshunt.so.1"

step "transports as plugins"
for name in cudaipc nccl; do
  if [ -d "transports/$name/process" ]; then
    $GO build "${small[@]}" -o "$stage/bin/shunt-transport-$name" "./transports/$name/process"
  fi
  if [ -d "transports/$name/shared" ]; then
    $GO build "${small[@]}" -buildmode=c-shared -o "$stage/lib/shunt-transport-$name.so" "./transports/$name/shared"
    rm -f "$stage/lib/shunt-transport-$name.h"
  fi
done

$GO build "${small[@]}" -o "$stage/bin/shunt-transport-sockets" ./tests/internal/sockets/process

# Those that use a GPU; the conformance suite is in the command. They run in a copy of their folder's test data.
for package in host/executor transports/nccl tests/internal/device tests/internal/faults; do
  if ! compgen -G "$package/*_test.go" >/dev/null; then continue; fi
  step "tests of $package"
  mkdir -p "$stage/tests/$package"
  $GO test -c "${small[@]}" -o "$stage/tests/$package/run.test" "./$package"
  if [ -d "$package/testdata" ]; then cp -r "$package/testdata" "$stage/tests/$package/"; fi
done

step "programs in C"
for source in capi/test/gpu.c bench/c/bench_stream.c; do
  ${CC:-cc} -std=gnu99 -O2 -Wall -Wextra -Icapi/include -Iplugin -o "$stage/bin/$(basename "$source" .c)" "$source" \
    -L"$stage/lib" -Wl,-rpath,'$ORIGIN/../lib' -lshunt -ldl -lpthread
done

if [ "$(uname -m)" = x86_64 ]; then
  ${CC:-cc} -shared -fPIC -O2 -Wall -Iplugin -o "$stage/lib/libcuda-12.0.so" cuda/testdata/old.c -ldl
fi

step "the Python package, its tests and examples"
if [ ! -e python/shunt/_calls.abi3.so ]; then
  step "without shunt._calls (make python-calls builds it): calls from Python are slower"
fi
cp -r python/shunt python/tests tests/internal/torchfuzz "$stage/python/"
cp -r examples LICENSE "$stage/" # a text that the examples read
# The README's program for torch, as it is printed.
awk '/^<!-- snippet: torch -->/ { on = 1; next } on && /^```$/ { exit } on && !/^```/' \
  README.md >"$stage/python/readme_torch.py"
# Those of the guide that need GPUs.
mkdir -p "$stage/python/guide"
awk -v to="$stage/python/guide" '/^<!-- snippet: gpu-/ { name = $3; next } name && /^```$/ { name = "" }
  name && !/^```/ { print >(to "/" name ".py") }' docs/guide/gpus.md
mkdir -p "$stage/bench"
cp -r bench/loads bench/python bench/torch_ranks.py "$stage/bench/"
find "$stage/python" "$stage/bench" -name __pycache__ -prune -exec rm -rf {} +

step "kernels, their check and benchmark"
cp -r transports/cudaipc/{kernels,images} "$stage/src/transports/cudaipc/"
cp -r bench/kernels "$stage/src/bench/"
cp host/executor/float.h "$stage/src/host/executor/" # the reference's, of check.cu
mkdir -p "$stage/src/scripts"
cp scripts/device-report.py scripts/device-counters.sh scripts/device-topo.py "$stage/src/scripts/"
if nvcc=$(command -v nvcc); then
  for program in check bench; do
    # Newer than its source, so that bench/kernels/run takes it.
    "$nvcc" -std=c++17 -O2 -arch=sm_90 -cudart static -L"$(dirname "$nvcc")/../lib" "bench/kernels/$program.cu" \
      -o "$stage/kernels/$program" -ldl ||
      step "$program of the kernels could not be built here; the machine with the GPUs will try"
  done
fi

git rev-parse HEAD >"$stage/revision" 2>/dev/null || echo unknown >"$stage/revision"
# The programs have the kernels' images in common: the window spans them all.
tar -C "$stage" -c . | xz --threads=1 --lzma2=preset=1,dict=256MiB >"$out/programs.tar.xz"
cp scripts/device-run.sh "$out/run.sh"
cp scripts/device-session.sh "$out/session.sh"
cp scripts/device-common.sh "$out/common.sh"
rm -rf "$stage"
bytes=$(du -sb "$out" | cut -f1)
step "build/device: $((bytes >> 20)) MiB; run it there with: bash build/device/run.sh"
if [ "$bytes" -gt $((45 << 20)) ]; then
  step "more than 45 MiB"
  exit 1
fi
