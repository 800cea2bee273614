#!/usr/bin/env bash
# session.sh: all that is to be shown on GPUs, in parts of less than ten minutes
# each, for where GPUs can be had for a short while only.
#
#   session.sh check      smoke, executor, examples, every kernel by itself and under compute-sanitizer,
#                         conformance with every carrier, messages above 4 GiB
#   session.sh table      the table: against NCCL and torch's symmetric memory, on all GPUs and on 2
#   session.sh faults     carriers beside other work, kills, soaks, replays, changing splits
#   session.sh loads      collectives beside computation against NCCL, on all GPUs and on 2, and the kernels of others
#   session.sh tune       every algorithm of every collective, on all GPUs and on 2, and the tuning files
#   session.sh onegpu     what ranks that take turns on one GPU can show: worlds of 2 to 8, NCCL's of 4, the fuzzer
#   session.sh diagnose   counters of large messages; the fault of NCCL that shaped the benchmark
#
# Everything it needs lies beside it (make device-build). $OUT, or out/ beside this
# file, gets logs.tgz and, from the table, JSON and Markdown, from tune its tables and
# files: no more than eight files. A short table comes last. Each step has a limit, and no step begins when
# SECONDS_A_PART (default 540) are over; steps that did not run are named.
set -uo pipefail
LOGS=$(mktemp -d "${TMPDIR:-/tmp}/shunt-session.XXXXXX")
DEVICE_ROOT=${DEVICE_ROOT:-${TMPDIR:-/tmp}/shunt-device-$(id -u)}
TAIL=${TAIL:-8}
if [ "${1:-}" = onegpu ]; then export SHUNT_SHARE_GPU=on GPUS=${GPUS:-4}; fi
. "$(dirname "$0")/common.sh"
end=$(($(date +%s) + ${SECONDS_A_PART:-540}))

# kept packs the logs after every step, so that nothing is lost with the machine.
kept() { tar -czf "$OUT/logs.tgz" -C "$logs" . 2>/dev/null || true; }

# step NAME SECONDS COMMAND...: a part, if there is time for it.
step() {
  local name=$1 limit=$2 left=$((end - $(date +%s)))
  shift 2
  if [ "$left" -lt 10 ]; then
    skip "$name" "no time left"
    failed=1
    status=124
    return
  fi
  if [ "$limit" -gt "$left" ]; then limit=$left; fi
  part "$name" "$limit" "$@"
  printf '%s\n' "${table[-1]}"
}
# shown is a step whose output is wanted here too.
shown() {
  step "$@"
  if [ -e "$logs/$1.log" ]; then tail -n 60 "$logs/$1.log" | cut -c1-260; fi
}
kernels() { # kernels COMMAND ARGS...: of the benchmark of the kernels
  env OUT="$logs" BIN="$root/kernels" IMAGES="$root/src/transports/cudaipc/images" sh src/bench/kernels/run "$@"
}
export -f kernels
export logs root
long='Alone|Beside|AnotherOrder' # tests of tests/internal/device with steps of their own
two() { if [ "$gpus" -gt 2 ]; then echo 2; fi; }
test_of() { # test_of FOLDER FLAGS...: a test binary in its folder
  local folder=$1
  shift
  env -C "tests/$folder" ./run.test -test.v "$@"
}
export -f test_of

check() {
  local n carrier
  step doctor 30 "$shunt" doctor
  shown topo 20 python3 src/scripts/device-topo.py "$shunt"
  step smoke-go 40 "$shunt" bench --memory cuda -n 2 --collective all_reduce --graph --eager --max 4M --factor 64
  step smoke-c 30 "$shunt" run -n 2 bin/gpu
  step smoke-python 60 "$shunt" run -n 2 python3 python/tests/gpu_programs.py all
  step replays 60 "$shunt" run -n 2 python3 python/tests/gpu_replays.py
  step chain 60 python3 python/tests/gpu_chain.py
  step freed-memory 60 "$shunt" run -n 2 python3 python/tests/gpu_memory.py 5
  step freed-memory-expandable 60 env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
    "$shunt" run -n 2 python3 python/tests/gpu_memory.py 10
  shown allocator 60 python3 python/tests/gpu_allocator.py 15
  step allocator-locks 60 env SHUNT_CHECK=on python3 python/tests/gpu_allocator.py 10
  shown mem-pool 60 "$shunt" run -n 2 python3 python/tests/gpu_mem_pool.py
  step symmetric 30 "$shunt" bench --memory cuda -n "$gpus" --symmetric --no-in-place --max 128M --factor 64 \
    --collective all_gather,all_to_all,all_reduce,broadcast
  step kernels-check 60 bash -c 'kernels check 15'
  step executor 40 bash -c 'test_of host/executor -test.timeout 35s -test.run GPU -test.bench OnAGPU -test.benchmem'
  step host-time-c 30 "$shunt" run -n 2 bin/bench_stream
  step host-time-python 40 "$shunt" run -n 2 python3 bench/python/bench_stream.py
  step example-experts 40 python3 examples/experts/experts.py
  for n in "$gpus" $(two); do
    for carrier in "${carriers[@]}"; do
      step "conformance-short-${carrier%%:*}-$n" 60 "$shunt" conformance --memory cuda --short --timeout 8s \
        --max-failures 40 --transport "$carrier" -n "$n"
    done
  done
  for n in "$gpus" $(two); do
    step "conformance-symmetric-$n" 60 "$shunt" conformance --memory cuda --symmetric --short --timeout 8s \
      --max-failures 40 -n "$n"
  done
  # An engine whose commands are posted by the GPU and done by another process.
  step conformance-engine 60 "$shunt" conformance --memory cuda --short --timeout 20s --max-failures 40 \
    --transport "process:$root/bin/shunt-transport-sockets" -n 2 --hosts 1,2 --filter 'float32/n[0-9]{1,5}/|barrier'
  if [ -n "$nccl" ] && [ -e "$nccl" ]; then
    for carrier in builtin:nccl "shared:$root/lib/shunt-transport-nccl.so"; do
      for n in "$gpus" $(two); do
        step "conformance-${carrier%%:*}-nccl-$n" 90 env SHUNT_NCCL_LIBRARY="$nccl" "$shunt" conformance \
          --memory cuda --short --timeout 20s --max-failures 40 --transport "$carrier" -n "$n"
      done
    done
    step "conformance-process-nccl" 60 env SHUNT_NCCL_LIBRARY="$nccl" "$shunt" conformance --memory cuda --short \
      --timeout 20s --max-failures 40 --transport "process:$root/bin/shunt-transport-nccl" -n "$gpus" \
      --filter 'float32|barrier|graph'
    step "conformance-hosts-nccl" 90 env SHUNT_NCCL_LIBRARY="$nccl" "$shunt" conformance --memory cuda --short \
      --timeout 20s --max-failures 40 --transport builtin:nccl -n "$gpus" --hosts 2
    shown hosts-nccl 60 env SHUNT_NCCL_LIBRARY="$nccl" python3 python/tests/gpu_hosts.py "$gpus"
  else
    skip nccl "no library; NCCL=path names it"
  fi
  if [ -e lib/libcuda-12.0.so ]; then # without what newer drivers have
    step old-driver 60 env SHUNT_LIBCUDA="$root/lib/libcuda-12.0.so" "$shunt" conformance --memory cuda --short \
      --timeout 8s --max-failures 40 -n "$gpus"
  fi
  if command -v compute-sanitizer >/dev/null; then
    step sanitize-kernels 100 bash -c 'kernels sanitize'
    # The kernels of symmetric memory have copies behind and beside them; rank 0 is watched.
    step sanitize-symmetric 60 env "SHUNT_ALGO=all_reduce=cudaipc/ce_reduce,*" "$shunt" bench --memory cuda -n 2 \
      --symmetric --no-in-place --eager --min 1M --max 64M --factor 64 --iters 4 \
      --collective all_gather,all_to_all,all_reduce \
      --under 'compute-sanitizer --tool memcheck --target-processes all --error-exitcode 9'
  else
    skip sanitize "compute-sanitizer is not installed"
  fi
  # More than 2^32 elements, and more bytes than that of elements of 4.
  step large-uint8 60 "$shunt" bench --memory cuda -n 2 --min 5G --max 5G --iters 2 --dtype uint8 --no-in-place \
    --apart --limit 30s \
    --collective all_reduce,all_gather,broadcast,sendrecv
  step large-float32 60 "$shunt" bench --memory cuda -n "$gpus" --min 6G --max 6G --iters 2 --no-in-place --apart \
    --limit 30s \
    --collective all_reduce,all_to_all,reduce_scatter
  # The part faults has those of a lone rank, which take a minute, and loads those beside other kernels.
  step tests-device 60 \
    bash -c "test_of tests/internal/device -test.timeout 55s -test.skip '$long' -device.replays=1000 -device.inits=10"
  for carrier in "${carriers[@]}"; do # as far as time allows
    step "conformance-full-${carrier%%:*}" 130 "$shunt" conformance --memory cuda --timeout 10s --max-failures 40 \
      --stop-after 110s --transport "$carrier" -n "$gpus"
  done
}

table() {
  local n against=() bench=(--memory cuda --graph --eager --no-in-place --max "${MAX:-1G}"
    --collective all_reduce,all_gather,reduce_scatter,all_to_all,all_to_all_v,broadcast,reduce,sendrecv)
  if [ -n "$nccl" ] && [ -e "$nccl" ]; then
    against=(--against nccl --nccl "$nccl")
  else
    skip nccl "no library; NCCL=path names it"
  fi
  # A fault of symmetric memory is not to cost the table.
  step symmetric 30 "$shunt" bench --memory cuda -n "$gpus" --symmetric --no-in-place --max 128M --factor 64 \
    --collective all_gather,all_to_all,broadcast
  if [ "$status" = 0 ]; then bench+=(--symmetric); fi
  for n in "$gpus" $(two); do
    step "bench-$n" 260 "$shunt" bench "${bench[@]}" "${against[@]}" -n "$n" --save "$OUT/bench-$n.json"
    cut -c1-250 "$logs/bench-$n.log" 2>/dev/null | grep -v '^\[' || true
    shown "symm-mem-$n" 90 "$shunt" run -n "$n" python3 bench/python/bench_symm_mem.py \
      --max "$(numfmt --from=iec "${MAX:-1G}")" --seconds 60 --json "$OUT/symm-mem-$n.json"
    shown "alignment-$n" 90 "$shunt" run -n "$n" python3 bench/python/bench_alignment.py --csv "$OUT/alignment-$n.csv"
  done
  step report 20 python3 src/scripts/device-report.py "$OUT"/bench-*.json --symmetric-memory "$OUT"/symm-mem-*.json \
    --output "$OUT/table.md"
  sed -n '1,60p' "$OUT/table.md" 2>/dev/null || true
}

faults() {
  local busy others plugin=-faults.cudaipc=$root/bin/shunt-transport-cudaipc
  local faults="test_of tests/internal/faults -test.timeout"
  others=$(IFS=,; echo "${carriers[*]}") # builtin too: how far apart equals are
  for busy in 0 50 100; do
    shown "carriers-busy$busy" 60 "$shunt" bench --memory cuda -n "$gpus" --against "$others" --busy "$busy" \
      --iters 2000 --no-in-place --max 16M --factor 64 --collective all_reduce,all_to_all --limit 30s
  done
  # Whether streams that share a connection to the GPU matter beside other work.
  shown carriers-busy50-connections 40 env CUDA_DEVICE_MAX_CONNECTIONS=32 "$shunt" bench --memory cuda -n "$gpus" \
    --busy 50 --no-in-place \
    --max 16M --factor 64 --collective all_reduce
  step soak-splits 60 bash -c "$faults 55s -faults.calls=60000 $plugin -test.run SoakChangingSplitsOnDevices"
  step soak-counts 60 bash -c "$faults 55s -faults.calls=60000 $plugin -test.run SoakCountsOnDevices"
  step wrong-counts 60 bash -c "$faults 55s $plugin -test.run 'ImpossibleCountsOnDevices|DifferentLengthsOnDevices'"
  shown soak-communicators 120 \
    bash -c "$faults 115s -faults.communicators=1000 $plugin -test.run SoakCommunicatorsOnDevices"
  step replays 60 bash -c "test_of tests/internal/device -test.timeout 55s -test.skip '$long' -device.replays=10000"
  step alone 120 bash -c "test_of tests/internal/device -test.timeout 115s -test.run Alone"
  step killed-plugin 60 bash -c "$faults 55s -faults.loops=4 $plugin -test.run KilledPluginOnDevices"
  shown killed-rank 90 bash -c "$faults 85s -faults.loops=50 $plugin -test.run KilledRankOnDevices"
}

loads() {
  local n
  step beside 150 bash -c "test_of tests/internal/device -test.timeout 145s -test.run 'Beside|AnotherOrder'"
  for n in "$gpus" $(two); do
    shown "loads-$n" 180 "$shunt" run -n "$n" python3 bench/loads/loads.py --max-sms 8,24 --rounds 11 --seconds 140 \
      --json "$OUT/loads-$n.json"
  done
}

tune() {
  local n
  for n in "$gpus" $(two); do
    step "tune-$n" 250 "$shunt" tune --memory cuda -n "$n" --graph --max "${MAX:-1G}" -o "$OUT/tuning-$n.json"
    grep -v '^\[' "$logs/tune-$n.log" >"$OUT/tuning-$n.txt" 2>/dev/null || true
    cut -c1-250 "$OUT/tuning-$n.txt"
  done
}

onegpu() {
  local carrier filter='float32|barrier'
  step chain 60 python3 python/tests/gpu_chain.py
  step replays 60 "$shunt" run -n 2 python3 python/tests/gpu_replays.py
  conform "" 300 4 --transport builtin:cudaipc
  conform "" 120 3,8 --transport builtin:cudaipc --filter "$filter"
  for carrier in "$shared" "$process"; do
    conform "${carrier%%:*}" 60 2,4 --transport "$carrier" --filter "$filter"
  done
  if [ -n "$nccl" ] && [ -e "$nccl" ]; then # it takes ranks that share a GPU where each is a host of its own
    export SHUNT_NCCL_LIBRARY=$nccl NCCL_SOCKET_IFNAME=lo
    conform nccl 120 4 --transport builtin:nccl --hosts 4 --filter "$filter|graph"
    conform nccl-shared 60 4 --transport "shared:$root/lib/shunt-transport-nccl.so" --hosts 4 --filter "$filter"
    conform nccl-process 90 4 --transport "process:$root/bin/shunt-transport-nccl" --hosts 4 --filter "$filter"
    shown hosts-nccl 60 python3 python/tests/gpu_hosts.py 4
  else
    skip nccl "no library; NCCL=path names it"
  fi
  step fuzz 90 python3 python/torchfuzz/fuzz.py --memory cuda -n 4 --seconds 10 --ranks processes
  conform "" 90 2 --transport builtin:cudaipc --filter "$filter"
}
conform() { # conform NAME SECONDS WORLDS FLAGS...: conformance of ranks that wait for their turns
  step "conformance${1:+-$1}-$3" "$2" "$shunt" conformance --memory cuda --short --timeout 60s --max-failures 40 \
    -n "$3" "${@:4}"
}

diagnose() {
  shown nccl-reuse 150 python3 src/bench/kernels/nccl_reuse.py ${nccl:+"$nccl"}
  shown counters 330 bash src/scripts/device-counters.sh "$shunt" "$gpus"
}

part_wanted=${1:-}
case $part_wanted in
  check | table | faults | loads | tune | onegpu | diagnose) ;;
  *)
    echo "usage: session.sh check|table|faults|loads|tune|onegpu|diagnose" >&2
    exit 2
    ;;
esac
need "$part_wanted" || report
"$part_wanted"
report
