#!/usr/bin/env bash
# run.sh: runs Shunt's tests and benchmarks on this machine's GPUs.
#
#   run.sh [STEP...]      smoke conformance tests graphs faults fuzz kernels sanitize
#                         bench regret carriers counters, or all; default: smoke conformance tests
#
# Everything it needs lies beside it (make device-test builds it). Full logs go
# to $OUT, or out/ beside this file; a table comes last; the exit status is 0 if
# every part passed. Variables: GPUS, the most that are used; NCCL, the path of
# NCCL's library; MAX, the largest size of the benchmarks; FUZZ_SECONDS, how
# long the fuzzer runs in each configuration; ALLOCATOR_SECONDS, how long the allocator's threads (30).
set -uo pipefail
. "$(dirname "$0")/common.sh"

# Ranks that share one GPU all use the first, and take milliseconds a call.
on_first= few=
if [ "$present" -lt 2 ]; then on_first="env LOCAL_RANK=0" few="--iters 10"; fi

smoke() {
  need smoke || return
  part doctor 60 "$shunt" doctor
  part topo 20 python3 src/scripts/device-topo.py "$shunt"
  part smoke-go 60 "$shunt" bench --memory cuda -n 2 --collective all_reduce --graph --eager --max 4M --factor 64 $few
  part smoke-c 60 "$shunt" run -n 2 $on_first bin/gpu
  part smoke-python 60 "$shunt" run -n 2 $on_first python3 python/tests/gpu_programs.py smoke
  part readme-torch 60 \
    bash -c 'out=$("$@" python3 python/readme_torch.py) && echo "$out" && [ "$out" = $'"'"'sum 3\nsum 3'"'"' ]' \
    readme "$shunt" run -n 2
  local program
  for program in python/guide/*.py; do
    part "guide-$(basename "$program" .py)" 60 "$shunt" run -n 2 $on_first python3 "$program"
  done
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
  part test-nccl 60 env -C tests/transports/nccl ./run.test -test.v -test.timeout 50s -test.run OnAGPU
  part nccl-registered 120 env SHUNT_NCCL_REGISTER=on "$shunt" conformance --transport builtin:nccl --memory cuda \
    -n "1,$gpus" \
    --filter '^(fresh_memory|mixed_sequence|group_exchange|two_graphs)/'
  part test-device 320 env -C tests/tests/internal/device ./run.test -test.v -test.timeout 310s
  need python || return
  part test-python 120 "$shunt" run -n 2 python3 python/tests/gpu_programs.py all
  part test-signals 180 "$shunt" run -n "$gpus" python3 python/tests/gpu_signals.py
  part conditional 560 env SHUNT_TIMEOUT=10s "$shunt" run -n "$gpus" python3 python/tests/gpu_conditional.py
  part freed-memory 90 "$shunt" run -n 2 python3 python/tests/gpu_memory.py 10
  part freed-memory-expandable 90 env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
    "$shunt" run -n 2 python3 python/tests/gpu_memory.py 20
  part chain 90 python3 python/tests/gpu_chain.py
  part allocator $((${ALLOCATOR_SECONDS:-30} + 90)) python3 python/tests/gpu_allocator.py "${ALLOCATOR_SECONDS:-30}"
  part allocator-locks 60 env SHUNT_CHECK=on python3 python/tests/gpu_allocator.py 10
  part mem-pool 60 "$shunt" run -n 2 python3 python/tests/gpu_mem_pool.py
  local module
  for module in cupy jax; do
    if python3 -c "import cupy, $module" 2>/dev/null; then
      part "arrays-$module" 60 env XLA_PYTHON_CLIENT_PREALLOCATE=false \
        "$shunt" run -n 2 python3 python/tests/gpu_arrays.py "$module"
    else
      skip "arrays-$module" "python3 lacks cupy or $module"
    fi
  done
  part host-time-go 60 env -C tests/host/executor ./run.test -test.run '^$' -test.bench OnAGPU -test.benchmem
  part host-time-c 60 "$shunt" run -n 2 bin/bench_stream
  part host-time-python 60 "$shunt" run -n 2 python3 bench/python/bench_stream.py
}

graphs() { # issue of long runs: replays, changing splits, many communicators
  need graphs || return
  if [ ! -x tests/tests/internal/device/run.test ]; then skip graphs "this build has no such tests"; return; fi
  part graphs 560 env -C tests/tests/internal/device ./run.test -test.v -test.timeout 550s \
    -test.run 'Graph|Streams|Memory'
}

faults() {
  need faults || return
  part faults 560 env -C tests/tests/internal/faults ./run.test -test.v -test.timeout 550s -test.run OnDevices
}

fuzz() { # random programs of torch in every carrier, with and without expandable segments, as processes and threads
  need fuzz || return
  local carrier n
  for n in $(worlds); do
    for carrier in default "${carriers[@]}"; do # default: NCCL too, where there is one
      part "fuzz-${carrier%%:*}-$n" 560 python3 python/torchfuzz/fuzz.py --memory cuda -n "$n" \
        --seconds "${FUZZ_SECONDS:-15}" --transport "${carrier#default}"
      cat "$logs/fuzz-${carrier%%:*}-$n.log"
    done
  done
}

kernels() {
  need kernels || return
  part kernels-check 300 env OUT="$OUT" BIN="$root/kernels" IMAGES="$root/src/transports/cudaipc/images" \
    sh src/bench/kernels/run check 20
}

sanitize() {
  need sanitize || return
  if ! command -v compute-sanitizer >/dev/null; then skip sanitize "compute-sanitizer is not installed"; return; fi
  part sanitize 560 env OUT="$OUT" BIN="$root/kernels" IMAGES="$root/src/transports/cudaipc/images" \
    sh src/bench/kernels/run sanitize
}

bench() {
  need bench || return
  local n against=()
  if [ -n "$nccl" ] && [ -e "$nccl" ]; then
    against=(--against nccl --nccl "$nccl")
  else
    skip nccl "no library; NCCL=path names it"
  fi
  # A fault of symmetric memory is not to cost the table.
  part symmetric 60 "$shunt" bench --memory cuda -n 2 --symmetric --no-in-place --max 128M --factor 64 \
    --collective all_gather,all_to_all,broadcast
  if [ "$status" = 0 ]; then against+=(--symmetric); fi
  for n in $(worlds); do
    part "bench-$n" 560 "$shunt" bench --memory cuda -n "$n" --graph --eager --no-in-place \
      --max "${MAX:-1G}" "${against[@]}" \
      --save "$OUT/bench-$n.json" \
      --collective all_reduce,all_gather,reduce_scatter,all_to_all,all_to_all_v,broadcast,reduce,sendrecv
    cat "$OUT/bench-$n.log"
    part "symm-mem-$n" 180 "$shunt" run -n "$n" python3 bench/python/bench_symm_mem.py --max "$(bytes "${MAX:-1G}")" \
      --json "$OUT/symm-mem-$n.json"
    cat "$OUT/symm-mem-$n.log"
    part "alignment-$n" 120 "$shunt" run -n "$n" python3 bench/python/bench_alignment.py --csv "$OUT/alignment-$n.csv"
    cat "$OUT/alignment-$n.log"
  done
  for n in $(worlds); do
    part "loads-$n" 240 "$shunt" run -n "$n" python3 bench/loads/loads.py --max-sms 8,24 --json "$OUT/loads-$n.json"
    cat "$OUT/loads-$n.log"
  done
  part report 20 python3 src/scripts/device-report.py "$OUT"/bench-*.json --symmetric-memory "$OUT"/symm-mem-*.json
  cat "$OUT/report.log"
}

regret() { # where what is chosen is slower than the best algorithm, or than NCCL
  need regret || return
  local n against=() max=${MAX:-1G}
  if [ -n "$nccl" ] && [ -e "$nccl" ]; then
    against=(--nccl "$nccl")
  else
    skip nccl "no library; NCCL=path names it"
  fi
  if [ "$gpus" -gt "$present" ]; then # ranks share: no figures of use, but all of it runs
    part regret-shared 240 "$shunt" tune --regret --memory cuda -n 2 --graph --eager --max 64K --factor 64 --iters 10 \
      --collective all_reduce,all_gather,broadcast
    cat "$OUT/regret-shared.log"
    return
  fi
  for n in $(worlds); do
    part "regret-$n" 560 "$shunt" tune --regret --memory cuda -n "$n" --graph --eager --max "$max" "${against[@]}"
    cat "$OUT/regret-$n.log"
  done
}
# bytes of a size such as 64M
bytes() { numfmt --from=iec "$1"; }

carriers() { # the other carriers in turn with the builtin one, alone and beside other work
  need carriers || return
  local busy others
  others=$(IFS=,; echo "${carriers[*]}") # builtin too: how far apart equals are
  for busy in 0 50 100; do
    part "carriers-busy$busy" 180 "$shunt" bench --memory cuda -n "$gpus" --against "$others" --busy "$busy" \
      --no-in-place \
      --max 64M --factor 16 --collective all_reduce,all_gather,all_to_all
    cat "$OUT/carriers-busy$busy.log"
  done
}

counters() {
  need counters || return
  part counters 400 bash src/scripts/device-counters.sh "$shunt" "$gpus"
  cat "$OUT/counters.log"
}

steps=("$@")
if [ ${#steps[@]} = 0 ]; then steps=(smoke conformance tests); fi
if [ "${steps[*]}" = all ]; then
  steps=(smoke conformance tests graphs faults fuzz kernels sanitize carriers bench regret counters)
fi
for s in "${steps[@]}"; do
  case $s in
    smoke | conformance | tests | graphs | faults | fuzz | kernels | sanitize | bench | regret | carriers | counters)
      "$s" ;;
    *)
      known="smoke conformance tests graphs faults fuzz kernels sanitize bench regret carriers counters"
      echo "run.sh: no step is called $s; there are $known, and all" >&2
      exit 2
      ;;
  esac
done
report
