#!/usr/bin/env bash
# device-torch.sh: shunt.torch on this machine's GPUs, with torch's nccl as the truth, within 150 seconds.
#
#   device-torch.sh [compile smoke tests table train experts groups]      the first four by default
#
# train, experts and groups are the programs of bench/torch: four minutes on two GPUs.
#
# Run it in a checkout that has bin/libshunt.so, where python3 has torch, and g++ and Python's headers are. Logs and the
# table go to $OUT, by default out/. Variables: PYTHON, the interpreter; GPUS, how many ranks (2), which share GPUs
# where there are fewer (gloo is the truth then, and the table is left out); TESTS_SECONDS, how long the tests may take
# (60).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
OUT=${OUT:-out}
mkdir -p "$OUT"
python=${PYTHON:-python3}
gpus=${GPUS:-2}
export SHUNT_LIBRARY=${SHUNT_LIBRARY:-$PWD/bin/libshunt.so} PYTHONPATH=$PWD/python PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
export SHUNT_TORCH_CACHE=${SHUNT_TORCH_CACHE:-${TMPDIR:-/tmp}/shunt-torch-ext}
# No NVLink multicast, neither ours nor in what we compare with.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
ulimit -c 0
failed=0
here=$(nvidia-smi -L 2>/dev/null | wc -l)
if [ "$here" -lt "$gpus" ]; then export SHUNT_SHARE_GPU=on; fi

# step NAME SECONDS COMMAND...: its output goes to a log, of which the end is shown.
step() {
  local name=$1 limit=$2 start=$SECONDS status
  shift 2
  timeout -k 5 "$limit" "$@" >"$OUT/torch-$name.log" 2>&1
  status=$?
  printf '== %s: %s, %d s\n' "$name" "$([ $status = 0 ] && echo passed || echo "FAILED ($status)")" $((SECONDS - start))
  grep -v 'frame #\|c10d_logger' "$OUT/torch-$name.log" | tail -n "${TAIL:-40}" | cut -c1-300
  [ $status = 0 ] || failed=1
}
launch() { "$python" -m torch.distributed.run --nproc-per-node "$gpus" --master-port "$1" "${@:2}"; }
export -f launch
export python gpus

for part in "${@:-compile smoke tests table}"; do
  for name in $part; do
    case $name in
      compile) step compile 90 "$python" -m shunt.torch.build ;;
      smoke) step smoke 40 bash -c 'launch 29611 bench/torch/smoke.py' ;;
      tests) step tests $((${TESTS_SECONDS:-60} + 20)) "$python" -m torch_tests.run --device cuda --worlds "$gpus" \
        --limit "${TESTS_SECONDS:-60}" ;;
      table)
        if [ "$here" -lt "$gpus" ]; then
          echo "== table: skipped, $here GPUs for $gpus ranks"
        else
          step table 50 bash -c 'launch 29612 bench/torch/table.py'
        fi ;;
      train) step train 200 bash -c 'launch 29613 bench/torch/train.py' ;;
      experts) step experts 120 bash -c 'launch 29614 bench/torch/experts.py' ;;
      groups) step groups 40 bash -c 'launch 29615 bench/torch/groups.py' ;;
      *) echo "device-torch.sh: unknown part $name; see its first lines" >&2; exit 2 ;;
    esac
  done
done
exit $failed
