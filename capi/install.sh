#!/bin/sh
# install.sh LIBRARY: installs libshunt.so, its headers, its licenses, and the files
# for pkg-config and CMake under $DESTDIR$PREFIX (PREFIX defaults to /usr/local).
# LIBDIR is relative to PREFIX and defaults to lib.
set -eu
library=${1:?usage: install.sh LIBRARY}
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-lib}
root=${DESTDIR:-}$prefix
case $prefix in /*) ;; *) echo "install.sh: PREFIX $prefix is not absolute" >&2; exit 2 ;; esac

number() { sed -n "s/^#define SHUNT_API_$1 //p" "$here/include/shunt.h"; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)

mkdir -p "$root/include" "$root/$libdir/pkgconfig" "$root/$libdir/cmake/shunt" "$root/share/doc/shunt"
install -m 644 "$here/../LICENSE" "$here/../THIRD_PARTY_NOTICES" "$root/share/doc/shunt/"
install -m 755 "$library" "$root/$libdir/libshunt.so.$version"
ln -sf "libshunt.so.$version" "$root/$libdir/libshunt.so.$(number MAJOR)"
ln -sf "libshunt.so.$(number MAJOR)" "$root/$libdir/libshunt.so"
install -m 644 "$here/include/shunt.h" "$here"/../plugin/shunt_*.h "$root/include/"

fill() {
  sed -e "s|@PREFIX@|$prefix|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@VERSION@|$version|g" -e "s|@MAJOR@|$(number MAJOR)|g" \
    "$here/pkg/$1.in" >"$root/$2"
  chmod 644 "$root/$2"
}
fill shunt.pc "$libdir/pkgconfig/shunt.pc"
fill shuntConfig.cmake "$libdir/cmake/shunt/shuntConfig.cmake"
fill shuntConfigVersion.cmake "$libdir/cmake/shunt/shuntConfigVersion.cmake"
