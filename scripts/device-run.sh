#!/usr/bin/env bash
# run.sh: runs Shunt's tests and benchmarks on this machine's GPUs.
#
#   run.sh [STEP...]      smoke conformance tests graphs faults kernels sanitize
#                         bench carriers, or all; default: smoke conformance tests
#
# Everything it needs lies beside it (make device-test builds it). Full logs go
# to $OUT, or out/ beside this file; a table comes last; the exit status is 0 if
# every part passed. Variables: GPUS, the most that are used; NCCL, the path of
# NCCL's library; MAX, the largest size of the benchmarks.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
OUT=${OUT:-$here/out}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
root=${DEVICE_ROOT:-$here/unpacked}

# No NVLink multicast, neither ours nor in what we compare with.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1

unpack() {
  if command -v xz >/dev/null; then tar -C "$root" -xJf "$here/programs.tar.xz"
  else python3 -m tarfile -e "$here/programs.tar.xz" "$root"; fi
}
# Unpacked once for each build.
if ! cmp -s "$here/programs.tar.xz" "$root/programs.tar.xz"; then
  rm -rf "$root" && mkdir -p "$root" && unpack && cp "$here/programs.tar.xz" "$root/" || exit 2
fi
cd "$root" || exit 2
export SHUNT_LIBRARY=$root/lib/libshunt.so SHUNT_COMMAND=$root/bin/shunt PYTHONPATH=$root/python PYTHONUNBUFFERED=1
shunt=$root/bin/shunt
present=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
gpus=${GPUS:-$present}
if [ "$gpus" -gt "$present" ]; then gpus=$present; fi
nccl=${NCCL:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null || true)}
carriers=(builtin:cudaipc)
if [ -e "lib/shunt-transport-cudaipc.so" ]; then carriers+=("shared:$root/lib/shunt-transport-cudaipc.so"); fi
if [ -e "bin/shunt-transport-cudaipc" ]; then carriers+=("process:$root/bin/shunt-transport-cudaipc"); fi

table=()
failed=0
# part NAME SECONDS COMMAND...: runs it with a time limit; its output goes to a log.
part() {
  local name=$1 limit=$2 status start end verdict note=
  shift 2
  start=$(date +%s.%N)
  timeout -k 10 "$limit" "$@" >"$OUT/$name.log" 2>&1
  status=$?
  end=$(date +%s.%N)
  case $status in
    0) verdict=ok ;;
    124 | 137) verdict=TIMEOUT ;;
    *) verdict="FAIL ($status)" ;;
  esac
  # A test binary that skipped everything has shown nothing.
  if [ "$status" = 0 ] && grep -q '^--- SKIP' "$OUT/$name.log"; then note="$(grep -c '^--- SKIP' "$OUT/$name.log") skipped"; fi
  if [ "$status" != 0 ]; then
    failed=1
    printf '\n== %s failed; the end of its output:\n' "$name"
    tail -n 25 "$OUT/$name.log"
  fi
  table+=("$(printf '%-34s %-10s %7.1f s  %s' "$name" "$verdict" "$(echo "$start $end" | awk '{print $2 - $1}')" "$note")")
}
skip() { table+=("$(printf '%-34s %-10s %9s  %s' "$1" skipped "" "$2")"); }
# worlds are 2 and as many as there are, if that is more.
worlds() { if [ "$gpus" -gt 2 ]; then echo "2 $gpus"; else echo 2; fi; }
need() { # need STEP: two GPUs
  if [ "$gpus" -lt 2 ]; then
    skip "$1" "needs 2 GPUs, there are $gpus"
    failed=1
    return 1
  fi
}

smoke() {
  need smoke || return
  part doctor 60 "$shunt" doctor
  part smoke-go 60 "$shunt" bench --memory cuda -n 2 --collective all_reduce --graph --eager --max 4M --factor 64
  part smoke-c 60 "$shunt" run -n 2 bin/gpu
  part smoke-python 60 "$shunt" run -n 2 python3 python/tests/gpu_programs.py smoke
}

conformance() {
  need conformance || return
  local carrier n
  for carrier in "${carriers[@]}"; do
    for n in $(worlds); do
      part "conformance-${carrier%%:*}-$n" 240 "$shunt" conformance --memory cuda --transport "$carrier" -n "$n" \
        --junit "$OUT/conformance-${carrier%%:*}-$n.xml"
    done
  done
}

tests() {
  # Those that use a GPU; the others need compilers and sources, and run where those are.
  part test-host-executor 240 env -C tests/host/executor ./run.test -test.v -test.timeout 230s -test.run OnAGPU
  part test-device 240 env -C tests/tests/device ./run.test -test.v -test.timeout 230s
  need python || return
  part test-python 120 "$shunt" run -n 2 python3 python/tests/gpu_programs.py all
  part host-time-go 60 env -C tests/host/executor ./run.test -test.run '^$' -test.bench OnAGPU -test.benchmem
  part host-time-c 60 "$shunt" run -n 2 bin/bench_stream
  part host-time-python 60 "$shunt" run -n 2 python3 python/bench/bench_stream.py
}

graphs() { # issue of long runs: replays, changing splits, many communicators
  need graphs || return
  if [ ! -x tests/tests/device/run.test ]; then skip graphs "this build has no such tests"; return; fi
  part graphs 560 env -C tests/tests/device ./run.test -test.v -test.timeout 550s -test.run 'Graph|Streams|Memory'
}

faults() {
  need faults || return
  part faults 560 env -C tests/tests/faults ./run.test -test.v -test.timeout 550s -test.run OnDevices
}

kernels() {
  need kernels || return
  part kernels-check 300 env OUT="$OUT" BIN="$root/kernels" IMAGES="$root/src/transports/cudaipc/images" \
    sh src/transports/cudaipc/bench/run check 20
}

sanitize() {
  need sanitize || return
  if ! command -v compute-sanitizer >/dev/null; then skip sanitize "compute-sanitizer is not installed"; return; fi
  part sanitize 560 env OUT="$OUT" BIN="$root/kernels" IMAGES="$root/src/transports/cudaipc/images" \
    sh src/transports/cudaipc/bench/run sanitize
}

bench() {
  need bench || return
  local n against=()
  if [ -n "$nccl" ] && [ -e "$nccl" ]; then against=(--against nccl --nccl "$nccl"); else skip nccl "no library; NCCL=path names it"; fi
  for n in $(worlds); do
    part "bench-$n" 560 "$shunt" bench --memory cuda -n "$n" --graph --eager --no-in-place --max "${MAX:-1G}" "${against[@]}" \
      --collective all_reduce,all_gather,reduce_scatter,all_to_all,all_to_all_v,broadcast,reduce,sendrecv
    cat "$OUT/bench-$n.log"
  done
}

carriers() { # the process carrier beside the builtin one, alone and beside other work
  need carriers || return
  local carrier busy
  for busy in 0 50; do
    for carrier in "${carriers[@]}"; do
      part "carrier-${carrier%%:*}-busy$busy" 180 "$shunt" bench --memory cuda -n "$gpus" --transport "$carrier" --busy "$busy" --no-in-place \
        --max 64M --factor 16 --collective all_reduce,all_gather,all_to_all
      cat "$OUT/carrier-${carrier%%:*}-busy$busy.log"
    done
  done
}

steps=("$@")
if [ ${#steps[@]} = 0 ]; then steps=(smoke conformance tests); fi
if [ "${steps[*]}" = all ]; then steps=(smoke conformance tests graphs faults kernels sanitize carriers bench); fi
for s in "${steps[@]}"; do
  case $s in
    smoke | conformance | tests | graphs | faults | kernels | sanitize | bench | carriers) "$s" ;;
    *)
      echo "run.sh: no step is called $s; there are smoke conformance tests graphs faults kernels sanitize bench carriers, and all" >&2
      exit 2
      ;;
  esac
done
{
  printf '\n%s, revision %s, %s GPUs\n' "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)" "$(cat revision)" "$gpus"
  printf '%s\n' "${table[@]}"
} | tee "$OUT/table.txt"
exit $failed
