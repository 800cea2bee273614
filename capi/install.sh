#!/bin/sh
# install.sh LIBRARY: installs libshunt.so, its headers, its licenses, and the files
# for pkg-config and CMake under $DESTDIR$PREFIX (PREFIX defaults to /usr/local).
# LIBDIR is lib by default: relative to PREFIX, or absolute and below it.
set -eu
umask 022 # what is installed is for all users
library=${1:?usage: install.sh LIBRARY}
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr/local}
case $prefix in /*) ;; *) echo "install.sh: PREFIX $prefix is not absolute" >&2; exit 2 ;; esac
prefix=${prefix%/}
libdir=${LIBDIR:-lib}
libdir=${libdir#"$prefix/"}
case /$libdir/ in
  //* | */./* | */../*) echo "install.sh: LIBDIR $LIBDIR is not below PREFIX ${prefix:-/}" >&2; exit 2 ;;
esac
root=${DESTDIR:-}$prefix
# From LIBDIR to PREFIX: the files for pkg-config and CMake find both from where they lie.
back=$(echo "$libdir" | sed 's|[^/][^/]*|..|g')

number() { sed -n "s/^#define SHUNT_API_$1 //p" "$here/include/shunt.h"; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)

mkdir -p "$root/include" "$root/$libdir/pkgconfig" "$root/$libdir/cmake/shunt" "$root/share/doc/shunt"
install -m 644 "$here/../LICENSE" "$here/../THIRD_PARTY_NOTICES" "$root/share/doc/shunt/"
install -m 755 "$library" "$root/$libdir/libshunt.so.$version"
ln -sf "libshunt.so.$version" "$root/$libdir/libshunt.so.$(number MAJOR)"
ln -sf "libshunt.so.$(number MAJOR)" "$root/$libdir/libshunt.so"
install -m 644 "$here/include/shunt.h" "$here"/../plugin/shunt_*.h "$root/include/"

fill() {
  sed -e "s|@BACK@|$back|" -e "s|@VERSION@|$version|" -e "s|@MAJOR@|$(number MAJOR)|" "$here/pkg/$1.in" >"$root/$2"
}
fill shunt.pc "$libdir/pkgconfig/shunt.pc"
fill shuntConfig.cmake "$libdir/cmake/shunt/shuntConfig.cmake"
fill shuntConfigVersion.cmake "$libdir/cmake/shunt/shuntConfigVersion.cmake"
