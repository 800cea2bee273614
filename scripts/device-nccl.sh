#!/usr/bin/env bash
# device-nccl.sh: the NCCL-compatible library on this machine's GPUs, within three minutes on two.
#
#   device-nccl.sh [build matrix lifecycle torch jax cupy]      all by default
#
# Run it in a checkout that has bin/libshunt.so and bin/nccl/libnccl.so.2, where cc is, and python3 has torch with
# NVIDIA's NCCL. Logs go to $OUT, by default out/. Variables: PYTHON, the interpreter; GPUS, how many ranks (2);
# where there are fewer GPUs they share them, and what only the real NCCL does is left out: it rejects such ranks.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
OUT=${OUT:-out}
mkdir -p "$OUT"
python=${PYTHON:-python3}
gpus=${GPUS:-2}
library=$PWD/bin/nccl/libnccl.so.2
programs=$PWD/capi/nccl/test/programs
export SHUNT_LIBRARY=${SHUNT_LIBRARY:-$PWD/bin/libshunt.so} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
find_nccl='import importlib.util as u
print(list(u.find_spec("nvidia.nccl").submodule_search_locations)[0] + "/lib/libnccl.so.2")'
export SHUNT_NCCL_LIBRARY=${SHUNT_NCCL_LIBRARY:-$("$python" -c "$find_nccl")}
# No NVLink multicast, neither ours nor in what we compare with.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
ulimit -c 0
failed=0
here=$(nvidia-smi -L 2>/dev/null | wc -l)
shared=
if [ "$here" -lt "$gpus" ]; then export SHUNT_SHARE_GPU=on; shared=1; fi

# step NAME SECONDS COMMAND...: its output goes to a log, of which the end is shown.
step() {
  local name=$1 limit=$2 start=$SECONDS status
  shift 2
  timeout -k 5 "$limit" "$@" >"$OUT/nccl-$name.log" 2>&1
  status=$?
  printf '== %s: %s, %d s\n' "$name" "$([ $status = 0 ] && echo passed || echo "FAILED ($status)")" $((SECONDS - start))
  tail -n "${TAIL:-15}" "$OUT/nccl-$name.log" | cut -c1-400
  [ $status = 0 ] || failed=1
}

build() {
  local name
  for name in matrix lifecycle groups; do
    cc -std=gnu11 -O1 -g -Wno-unused-function -Icapi/nccl -I"$programs" -o "$OUT/$name" "$programs/$name.c" "$library" \
      -Wl,-rpath,"$(dirname "$library")" -ldl -lm -lpthread || return 1
  done
}

# processes PROGRAM: a process for each GPU; it fails when one of them does.
processes() {
  local rank status=0 pids=() meeting
  meeting=$(mktemp -d)
  for ((rank = 0; rank < gpus; rank++)); do
    "$OUT/$1" process "$gpus" "$rank" "$meeting/id" &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || status=1; done
  rm -rf "$meeting"
  return $status
}

launch() { "$python" -m torch.distributed.run --nproc-per-node "$gpus" --master-port "$1" bench/torch/over_nccl.py; }
preloaded() { LD_PRELOAD=$library launch 29621; }
watched() { SHUNT_NCCL_FORWARD=all LD_PRELOAD=$library launch 29622; }
plain() { launch 29623; }

# over VARIABLES... -- PROGRAM ARGS...: a program of JAX or CuPy in one process over the library, with variables set.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
over() {
  local set=()
  while [ "$1" != -- ]; do set+=("$1"); shift; done
  shift
  env LD_PRELOAD="$library" "${set[@]}" "$python" "$programs/$1" "${@:2}"
}
# ranks PROGRAM ARGS...: in a process for each GPU.
ranks() {
  local meeting status=0
  meeting=$(mktemp -d)
  MEETING=$meeting/id "${SHUNT_COMMAND:-bin/shunt}" run -n "$gpus" --env LD_PRELOAD="$library" -- \
    "$python" "$programs/$1" "${@:2}" || status=$?
  rm -rf "$meeting"
  return $status
}
# tries MODULE: whether its programs can run here; says why where not.
tries() {
  if [ -n "$shared" ]; then echo "== $1: skipped, $here GPUs for $gpus ranks"; return 1; fi
  "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)" \
    || { echo "== $1: skipped, $python has no $1"; return 1; }
}
export -f build processes launch preloaded watched plain over ranks
export OUT python gpus library programs

for part in "${@:-build matrix lifecycle torch jax cupy}"; do
  for name in $part; do
    case $name in
      build) step build 10 bash -c build ;;
      matrix)
        step matrix-thread 40 "$OUT/matrix" thread "$gpus"
        step matrix-processes 40 bash -c 'processes matrix'
        [ -n "$shared" ] \
          || SHUNT_NCCL_FORWARD=all MATRIX_LARGEST=3 step matrix-over-nccl 20 "$OUT/matrix" thread "$gpus" ;;
      lifecycle)
        for program in lifecycle groups; do
          step "$program-thread" 10 "$OUT/$program" thread "$gpus"
          step "$program-processes" 15 bash -c "processes $program"
        done
        [ -n "$shared" ] || SHUNT_NCCL_FORWARD=all step groups-over-nccl 20 bash -c "processes groups" ;;
      torch)
        step torch-shunt 25 bash -c preloaded
        [ -z "$shared" ] || continue
        step torch-forwarded 25 bash -c watched
        step torch-plain 25 bash -c plain ;;
      jax)
        tries jax || continue
        parts="loops several train groups timed"
        step jax 60 bash -c 'over -- jax_programs.py'
        step jax-graphs 40 bash -c "over XLA_FLAGS='--xla_gpu_graph_min_graph_size=1 \
          --xla_gpu_enable_command_buffer=FUSION,CUBLAS,COLLECTIVES' -- jax_programs.py $parts"
        step jax-symmetric 40 bash -c "over XLA_FLAGS=--xla_gpu_experimental_enable_nccl_symmetric_buffers=true -- \
          jax_programs.py $parts"
        step jax-watched 40 bash -c "over SHUNT_NCCL_FORWARD=all -- jax_programs.py $parts"
        step jax-processes 60 bash -c "ranks jax_programs.py" ;;
      cupy)
        tries cupy || continue
        step cupy-threads 30 bash -c 'over -- cupy_programs.py thread'
        step cupy-processes 30 bash -c 'ranks cupy_programs.py process'
        step cupyx 30 bash -c 'ranks cupy_programs.py cupyx' ;;
      *)
        echo "device-nccl.sh: unknown part $name; known are build, matrix, lifecycle, torch, jax and cupy" >&2
        exit 2 ;;
    esac
  done
done
exit $failed
