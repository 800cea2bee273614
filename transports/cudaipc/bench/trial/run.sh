#!/bin/bash
# On a machine with 2 to 4 GPUs, from the repository's root: builds the kernels on
# trial beside the committed ones for sm_90, checks them, memcheck and racecheck, and
# times old against new against NCCL in graphs, in one process each for broadcast,
# reduce, all_gather and send and recv. Below 4 minutes with 60 processors.
# Leaves log.txt, bench.json and table.txt in $OUT. Nothing of the repository changes.
N=transports/cudaipc/bench/trial T=transports/cudaipc OUT=${OUT:-build/trial} L=$OUT/log.txt
mkdir -p $OUT; W=$(mktemp -d)
export NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1 TORCH_SYMM_MEM_DISABLE_MULTICAST=1
nccl=${NCCL:-$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")')}
gpus=$(nvidia-smi -L | wc -l)
s=$(date +%s)
at() { echo "== $(( $(date +%s)-s )) s: $*" | tee -a $L; }
mkdir -p $W/$T $W/host $W/cubins; cp -r $T/kernels $T/bench $W/$T/; cp -r host/executor $W/host/
cp $N/*.cu $N/*.cuh $W/$T/kernels/
for p in bench check; do (timeout 100 nvcc -std=c++17 -O2 -arch=sm_90 -cudart static -DSHUNT_TRIAL $W/$T/bench/$p.cu -o $W/$p -ldl > $W/$p.log 2>&1) & done
# all_reduce with other stages: kernels and benchmark of another layout each.
stages="STAGES:2 STAGES:8 STAGE_BYTES:8192 STAGE_BYTES:32768"
for v in $stages; do
  V=$W/${v/:/_}; mkdir -p $V; cp -r $W/$T $V/t; mkdir $V/cubins
  sed -i "s/^\(#define SHUNT_${v%:*}\) [0-9]*/\1 ${v#*:}/" $V/t/kernels/layout.h
  (timeout 100 nvcc -std=c++17 -O2 -arch=sm_90 -cudart static $V/t/bench/bench.cu -o $V/bench -ldl > $V.log 2>&1) &
  (timeout 100 nvcc -std=c++17 -arch=sm_90 --cubin -DSHUNT_DTYPE=float32 $V/t/kernels/all_reduce.cu -o $V/cubins/all_reduce_float32.cubin >> $V.log 2>&1) &
done
NVCC=nvcc JOBS=${JOBS:-60} timeout 100 sh $W/$T/kernels/compile --dev $W/cubins ${TYPES:-float32 float16 int64} > $W/compile.log 2>&1; at "kernels rc $? ($(ls $W/cubins | wc -l))"
wait; cat $W/*.log >> $L; at "programs: $(ls $W/bench $W/check 2>&1 | wc -l)"
new=chain,ring,_long; mixed=$new,staged,direct
check() { timeout $1 env SHUNT_CHECK_ONLY=$2 $W/check $3 $W/cubins $4 $5 $6 > $W/c 2>&1; rc=$?; tail -12 $W/c >> $L; at "check $3 GPUs $6 rc $rc: $(grep -m1 'cases\|WRONG\|fault\|gave up' $W/c)"; }
for n in 4 3 2; do [ $n -le $gpus ] && check 25 $mixed $n 5 $n float32; done
n=$((gpus < 4 ? gpus : 4)); for t in float16 int64; do check 20 $mixed $n 2 7 $t; done
# A chain passes something on from three ranks up.
m=$((gpus < 3 ? gpus : 3))
for t in memcheck racecheck; do SHUNT_CHECK_ONLY=$new timeout 40 compute-sanitizer --tool $t --target-processes all --report-api-errors no --error-exitcode 9 $W/check $m $W/cubins 0 1 float32 > $W/t 2>&1; rc=$?; tail -15 $W/t >> $L; at "$t rc $rc: $(tail -1 $W/t)"; done
run() { timeout 45 $W/bench --images $W/cubins --samples 11 --min 8388608 --max 536870912 --variants --json $OUT/bench.json --nccl "$nccl" "$@" >> $L 2>&1; at "bench $* rc $?"; }
for c in reduce all_gather sendrecv broadcast; do [ $(( $(date +%s)-s )) -lt 240 ] && run --ranks $n --only $c; done
for c in reduce sendrecv; do [ $(( $(date +%s)-s )) -lt 215 ] && run --ranks 2 --only $c; done
[ $n -eq 4 ] && [ $(( $(date +%s)-s )) -lt 215 ] && run --ranks 3 --only broadcast,reduce
for v in $stages; do
  [ $(( $(date +%s)-s )) -lt 225 ] || break
  timeout 30 $W/${v/:/_}/bench --images $W/${v/:/_}/cubins --samples 11 --min 134217728 --max 536870912 --variants --ranks $n --only all_reduce > $W/v 2>&1; rc=$?
  cat $W/v >> $L; at "all_reduce, SHUNT_$v, rc $rc: $(grep -o 'staged_float32 64x512 [0-9.]*' $W/v | tr '\n' ' ')"
done
timeout 30 $W/bench --images $W/cubins --samples 11 --min 134217728 --max 536870912 --variants --ranks $n --only all_reduce --nccl "$nccl" > $W/v 2>&1; cat $W/v >> $L; at "all_reduce as it is: $(grep -o 'staged_float32 64x512 [0-9.]*' $W/v | tr '\n' ' ')"
python3 $N/table.py $OUT/bench.json | tee $OUT/table.txt
rm -rf $W
