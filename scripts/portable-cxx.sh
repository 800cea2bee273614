#!/bin/bash
# portable-cxx.sh: portable-cc.sh for C++ sources that become a shared object, as that of shunt.torch.
# g++ compiles, zig links, against the machine's own libstdc++ (torch's extensions must use the process's).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
# Texts of assertions name files of these folders.
maps=()
for argument; do
  case $argument in -I* | -isystem*) folder=${argument#-I} && maps+=("-ffile-prefix-map=${folder#-isystem}=.") ;; esac
done
for argument; do
  case $argument in -c) exec g++ -include "$here/portable.hpp" "${maps[@]}" "$@" ;; esac
done
libraries=()
for name in libstdc++.so.6 libgcc_s.so.1; do
  libraries+=("-L$(dirname "$(g++ -print-file-name=$name)")" "-l:$name")
done
exec "$here/portable-cc.sh" -s "$@" "${libraries[@]}"
