#!/bin/sh
# tarball.sh DIST: packs what portable.sh has built for PORTABLE_ARCH (unset: this machine's) as
# DIST/shunt-VERSION-linux-ARCH.tar.gz: command, library, headers, pkg-config and CMake files, plugins, manual pages,
# completion for shells, and install.sh, which copies all of it under a prefix, from where uninstall-shunt removes it.
set -eu
cd "$(dirname "$0")/.."
dist=${1:?usage: tarball.sh DIST}
arch=${PORTABLE_ARCH:-$(uname -m)}
portable=build/portable-$arch
# The command writes its manual pages; one for another processor does not run here.
shunt=$portable/bin/shunt
if [ "$arch" != "$(uname -m)" ]; then
  shunt=build/portable-$(uname -m)/bin/shunt
  PORTABLE_ARCH=$(uname -m) scripts/portable-go.sh go build -tags portable -ldflags "-s -w $(sh scripts/release.sh)" \
    -o "$shunt" ./cmd/shunt
fi
version=$("$shunt" version | sed -n '1s/^shunt //p')
name=shunt-$version-linux-$arch
root=build/$name

rm -rf "$root"
DESTDIR=$PWD/$root PREFIX=/ sh capi/install.sh "$portable/lib/libshunt.so"
mkdir -p "$root/bin" "$root/lib/shunt" "$root/share/man/man1" "$root/share/man/man7"
cp "$portable/bin/shunt" "$root/bin/"
cp -r "$portable/lib/shunt/." "$root/lib/shunt/"
"$shunt" man "$root/share/man"
mv "$root"/share/man/*.1 "$root/share/man/man1/"
mv "$root"/share/man/*.7 "$root/share/man/man7/"
completion() {
  mkdir -p "$root/share/$2"
  "$shunt" completion "$1" >"$root/share/$2/$3"
}
completion bash bash-completion/completions shunt
completion zsh zsh/site-functions _shunt
completion fish fish/vendor_completions.d shunt.fish
cp scripts/install-archive.sh "$root/install.sh"
chmod +x "$root/install.sh"
mkdir -p "$dist"
tar -C build --mode u=rwX,go=rX --owner 0 --group 0 --sort name -czf "$dist/$name.tar.gz" "$name"
ls -l "$dist/$name.tar.gz"
