# device-common.sh: what run.sh and session.sh share: unpacking, the
# environment, and running parts with time limits. Sourced, from the folder
# that make device-build has made. Variables: OUT, where logs go; GPUS, the most
# that are used (with SHUNT_SHARE_GPU=on ranks, which share what there is); NCCL,
# the path of NCCL's library; DEVICE_ROOT, where to unpack.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
OUT=${OUT:-$here/out}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
logs=${LOGS:-$OUT}
mkdir -p "$logs"
root=${DEVICE_ROOT:-$here/unpacked}

# No NVLink multicast, neither ours nor in what we compare with.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
ulimit -c 0

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
if [ "$gpus" -gt "$present" ] && [ "${SHUNT_SHARE_GPU:-}" != on ]; then gpus=$present; fi
find_nccl='import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")'
nccl=${NCCL:-$(python3 -c "$find_nccl" 2>/dev/null || true)}
shared=shared:$root/lib/shunt-transport-cudaipc.so
process=process:$root/bin/shunt-transport-cudaipc
carriers=(builtin:cudaipc)
if [ -e "${shared#*:}" ]; then carriers+=("$shared"); fi
if [ -e "${process#*:}" ]; then carriers+=("$process"); fi

table=()
failed=0
status=0
# part NAME SECONDS COMMAND...: runs it with a time limit; its output goes to a log,
# its exit status is in status.
part() {
  local name=$1 limit=$2 start end verdict note=
  shift 2
  start=$(date +%s.%N)
  timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1
  status=$?
  end=$(date +%s.%N)
  case $status in
    0) verdict=ok ;;
    124 | 137) verdict=TIMEOUT ;;
    *) verdict="FAIL ($status)" ;;
  esac
  # A test binary that skipped everything has shown nothing.
  if [ "$status" = 0 ] && grep -q '^--- SKIP' "$logs/$name.log"; then
    note="$(grep -c '^--- SKIP' "$logs/$name.log") skipped"
  fi
  if [ "$status" != 0 ]; then
    failed=1
    printf '\n== %s failed; the end of its output:\n' "$name"
    tail -n "${TAIL:-25}" "$logs/$name.log" | cut -c1-400
  fi
  local took
  took=$(echo "$start $end" | awk '{print $2 - $1}')
  table+=("$(printf '%-34s %-10s %7.1f s  %s' "$name" "$verdict" "$took" "$note")")
  if declare -F kept >/dev/null; then kept; fi
}
skip() { table+=("$(printf '%-34s %-10s %9s  %s' "$1" skipped "" "$2")"); }
# worlds are 2 and as many as there are, if that is more.
worlds() { if [ "$gpus" -gt 2 ]; then echo "2 $gpus"; else echo 2; fi; }
need() { # need STEP: two GPUs, or ranks that share one
  if [ "$gpus" -lt 2 ]; then
    # Others have programs that give each rank the GPU of its number.
    skip "$1" "needs 2 GPUs, there are $gpus; one serves session.sh onegpu, and with SHUNT_SHARE_GPU=on GPUS=2 \
run.sh smoke conformance"
    failed=1
    return 1
  fi
}
# report prints the table of parts and ends with the status of all.
report() {
  {
    printf '\n%s, revision %s, %s GPUs\n' \
      "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)" "$(cat revision)" \
      "$gpus"
    printf '%s\n' "${table[@]}"
  } | tee "$logs/table.txt"
  if declare -F kept >/dev/null; then kept; fi
  exit $failed
}
