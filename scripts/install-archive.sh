#!/bin/sh
# install.sh [PREFIX]: installs Shunt from this folder under PREFIX, by default /usr/local ($DESTDIR is honoured), and
# PREFIX/bin/uninstall-shunt, which removes exactly these files and the folders made for them. What an archive before
# has installed there goes first.
set -eu
umask 022 # what is installed is for all users
here=$(cd "$(dirname "$0")" && pwd)
prefix=${1:-/usr/local}
case $prefix in /*) ;; *) echo "install.sh: PREFIX $prefix is not absolute" >&2; exit 2 ;; esac
root=${DESTDIR:-}$prefix
uninstall=$root/bin/uninstall-shunt
files=$(cd "$here" && find bin lib include share ! -type d | sort)
if [ -x "$uninstall" ]; then "$uninstall"; fi
made=
for folder in $(cd "$here" && find bin lib include share -type d | sort); do
  if [ ! -d "$root/$folder" ]; then mkdir -p "$root/$folder" && made="$folder $made"; fi
done
for file in $files; do
  cp -P --remove-destination "$here/$file" "$root/$file"
  if [ ! -L "$root/$file" ]; then chmod u=rwX,go=rX "$root/$file"; fi
done
{
  echo '#!/bin/sh'
  echo '# Removes Shunt from the prefix that this file lies in.'
  echo 'cd "$(dirname "$0")/.." || exit 1'
  echo "rm -f \\"
  for file in $files; do echo "  $file \\"; done
  echo '  bin/uninstall-shunt'
  echo "rmdir $made 2>/dev/null || true"
} >"$uninstall"
chmod 755 "$uninstall"
echo "Shunt is in $prefix; $prefix/bin/uninstall-shunt removes it"
