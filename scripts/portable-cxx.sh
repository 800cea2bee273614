#!/bin/bash
# portable-cxx.sh: portable-cc.sh for a C++ source that becomes a shared object in one step, as that of shunt.torch.
# g++ compiles, zig links, against the machine's own libstdc++ (torch's extensions must use the process's).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
compile=() link=() output=
while [ $# -gt 0 ]; do
  case $1 in
    -o) output=$2 && shift ;;
    -shared | -L* | -l*) link+=("$1") ;;
    *) compile+=("$1") ;;
  esac
  shift
done
object=$output.o
trap 'rm -f "$object"' EXIT
g++ -include "$here/portable.hpp" -c "${compile[@]}" -o "$object"
for name in libstdc++.so.6 libgcc_s.so.1; do
  link+=("-L$(dirname "$(g++ -print-file-name=$name)")" "-l:$name")
done
"$here/portable-cc.sh" -s -o "$output" "$object" "${link[@]}"
