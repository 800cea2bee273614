#!/bin/sh
# install.sh [PREFIX]: installs Shunt from this folder under PREFIX, by default /usr/local ($DESTDIR is honoured), and
# PREFIX/bin/uninstall-shunt, which removes exactly these files. What an archive before has installed there goes first.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:-/usr/local}
case $prefix in /*) ;; *) echo "install.sh: PREFIX $prefix is not absolute" >&2; exit 2 ;; esac
root=${DESTDIR:-}$prefix
uninstall=$root/bin/uninstall-shunt
files=$(cd "$here" && find bin lib include share ! -type d | sort)
if [ -x "$uninstall" ]; then "$uninstall"; fi
for file in $files; do
  mkdir -p "$root/$(dirname "$file")"
  cp -P --remove-destination "$here/$file" "$root/$file"
done
{
  echo '#!/bin/sh'
  echo '# Removes Shunt from the prefix that this file lies in.'
  echo 'cd "$(dirname "$0")/.." || exit 1'
  echo "rm -f \\"
  for file in $files; do echo "  $file \\"; done
  echo '  bin/uninstall-shunt'
  echo 'rmdir -p lib/shunt/plugins lib/shunt/nccl lib/cmake/shunt lib/pkgconfig share/doc/shunt 2>/dev/null || true'
} >"$uninstall"
chmod 755 "$uninstall"
echo "Shunt is in $prefix; $prefix/bin/uninstall-shunt removes it"
