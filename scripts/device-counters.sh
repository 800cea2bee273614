#!/usr/bin/env bash
# device-counters.sh: hardware counters of large messages in kernels of cudaipc: what goes to memory and
# through the L2 cache, and how busy the multiprocessors are. Rank 0 alone runs under
# ncu, which measures three kernels of each; what has too many counters for
# one pass is asked for in several runs, because a kernel that waits for its peers
# cannot be run again by itself.
#
#   device-counters.sh SHUNT RANKS [COLLECTIVE...]
#
# SIZE of the messages, LIMIT in seconds of a run; LINKS=1 asks for the links' too.
set -uo pipefail
shunt=$1
ranks=$2
shift 2
collectives=("$@")
if [ ${#collectives[@]} = 0 ]; then collectives=(all_reduce all_gather reduce broadcast); fi
ncu=${NCU:-$(command -v ncu || ls -d /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | tail -n 1)}
if [ -z "$ncu" ]; then
  echo "no ncu: counters are not measured"
  exit 0
fi
"$ncu" --version | tail -n 1
size=${SIZE:-128M}
# Each set is few enough counters of different units for one pass; of the links'
# own counters, and of samples of what warps wait for, none came in 12 seconds on
# H200s, so they are asked for with LINKS only.
sets=(
  dram__bytes_read.sum,dram__bytes_write.sum
  lts__t_bytes.sum,sm__warps_active.avg.per_cycle_active,sm__inst_executed.avg.per_cycle_elapsed
  gpu__time_duration.sum
  ${LINKS:+nvltx__bytes.sum,nvlrx__bytes.sum group:smsp__pcsamp_warp_stall_reasons}
)
measured=0
refused=0
for collective in "${collectives[@]}"; do
  for set in "${sets[@]}"; do
    # Replay by application, with as many counters as one pass takes, runs every
    # kernel once. The first kernels warm up.
    under="$ncu --target-processes all --replay-mode application --clock-control none --cache-control none"
    under+=" --kernel-name-base function --kernel-name regex:^shunt_${collective}_ --launch-skip 4 --launch-count 3"
    under+=" --metrics $set --print-summary per-kernel --csv"
    log=$(mktemp)
    timeout -k 5 "${LIMIT:-20}" "$shunt" bench --memory cuda -n "$ranks" --transport builtin:cudaipc \
      --eager --no-check --no-in-place --collective "$collective" \
      --min "$size" --max "$size" --iters 12 --under "$under" >"$log" 2>&1
    status=$?
    if grep -q ERR_NVGPUCTRPERM "$log"; then
      echo "counters are refused on this machine (ERR_NVGPUCTRPERM)"
      rm -f "$log"
      exit 0
    fi
    if lines=$(sed 's/^\[0\] //' "$log" | grep -E '^"'); then
      measured=$((measured + 1))
      echo "== $collective of $size, $ranks GPUs"
      echo "$lines"
    else
      refused=$((refused + 1))
      why=$(grep -iE 'error|==' "$log" | head -n 3 | tr '\n' ' ') || true
      echo "== $collective of $size: nothing measured (status $status): $why"
    fi
    rm -f "$log"
    # Where nothing comes of the first sets there is no sense in the others.
    if [ "$measured" = 0 ] && [ "$refused" -ge 4 ]; then
      echo "no counters on this machine"
      exit 0
    fi
  done
done
