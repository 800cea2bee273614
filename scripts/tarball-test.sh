#!/bin/bash
# tarball-test.sh ARCHIVE: unpacks and installs it, moves the prefix, builds a C program there by pkg-config and by
# CMake, runs it on 2 ranks, uses the plugins, reads a manual page, and removes it: nothing may be left.
set -euo pipefail
archive=$(realpath "${1:?usage: tarball-test.sh ARCHIVE}")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n '/<!-- snippet: c -->/,/^```$/p' README.md | sed '1,2d;$d' >"$work/hello.c"
tar -C "$work" -xzf "$archive"
! grep -rlF "$PWD/" "$work" || { echo "these name a folder of the machine that built them"; exit 1; }
debug=$(find "$work" -type f -exec readelf -SW {} + 2>/dev/null | grep -cF ' .debug_' || true)
[ "$debug" = 0 ] || { echo "files have $debug sections of debug information"; exit 1; }
mkdir "$work/other"
touch "$work/other/kept" # of another package
"$work"/shunt-*/install.sh "$work/first"
mv "$work/first" "$work/prefix"
mkdir "$work/prefix/share/other"
prefix=$work/prefix
export PATH=$prefix/bin:$PATH PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
cd "$work"
sums() { [ "$(shunt run -n 2 "$@" | grep -c '^sum 3$')" = 2 ] || { echo "wrong: $*"; exit 1; }; }
cc hello.c $(pkg-config --cflags --libs shunt) -o by-pkg-config
sums ./by-pkg-config
mkdir cmake
cat >cmake/CMakeLists.txt <<'C'
cmake_minimum_required(VERSION 3.16)
project(hello C)
find_package(shunt 1.0 REQUIRED)
add_executable(by-cmake ../hello.c)
target_link_libraries(by-cmake shunt::shunt)
C
cmake -S cmake -B cmake/build -DCMAKE_PREFIX_PATH="$prefix" >cmake.log || { cat cmake.log; exit 1; }
cmake --build cmake/build >>cmake.log || { cat cmake.log; exit 1; }
sums cmake/build/by-cmake
for transport in process:shm shared:shm; do SHUNT_TRANSPORTS=$transport sums ./by-pkg-config; done
shunt version
[ -s "$prefix/share/man/man1/shunt-run.1" ] && [ -s "$prefix/share/man/man7/shunt-options.7" ]
bash -c ". $prefix/share/bash-completion/completions/shunt"
uninstall-shunt
left=$(cd "$prefix" && find * | tr '\n' ' ')
[ "$left" = "share share/other " ] || { echo "left: $left; want share/other of another package alone"; exit 1; }
echo "the archive works"
