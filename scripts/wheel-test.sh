#!/bin/bash
# wheel-test.sh DIST: installs the wheel of DIST into fresh environments, links a program in C with the first one's
# library, and uses them with an environment that has neither Go nor a compiler, checkout or SHUNT_* variable: a venv of
# $PYTHON, one made by $UV, and, as root, what debootstrap unpacks of the suites in CHROOTS: Debian 12 (glibc 2.36),
# Ubuntu 22.04 (2.35) and Debian 11 (2.31), whose Python is too old for the package, so that only the command and its
# plugins run there.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "${1:?usage: wheel-test.sh DIST}"/*_"$(uname -m).whl")
python=${PYTHON:-python3} chroots=${CHROOTS-bookworm jammy bullseye}
work=$(mktemp -d)
trap 'umount "$work"/*/proc "$work"/*/dev/shm 2>/dev/null || true; rm -rf "$work"' EXIT

# README's programs for Python and C, as printed.
program=$work/hello.py
sed -n '/<!-- snippet: python -->/,/^```$/p' README.md | sed '1,2d;$d' >"$program"
sed -n '/<!-- snippet: c -->/,/^```$/p' README.md | sed '1,2d;$d' >"$work/hello.c"
cp python/wheel_tests/installed.py "$work/"

# clean PATH COMMAND...: the command in an empty directory, with this PATH and nothing else of the environment.
clean() {
  local path=$1 empty
  shift
  empty=$(mktemp -d -p "$work")
  (cd "$empty" && env -i PATH="$path" HOME="$empty" LANG=C.UTF-8 "$@")
}

echo "== venv"
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install -q numpy "$wheel"
clean "$work/venv/bin" python "$work/installed.py" "$program"
package=$(echo "$work"/venv/lib/python*/site-packages/shunt)
cc "$work/hello.c" -I"$package/include" -L"$package/lib" -lshunt -Wl,-rpath,"$package/lib" -o "$work/linked"
sums=$(clean "$work/venv/bin" shunt run -n 2 "$work/linked" | grep -c '^sum 3$' || true)
[ "$sums" = 2 ] || { echo "a program in C that is linked with the wheel: $sums of 2 ranks print the sum"; exit 1; }

if [ -n "${TORCH_PYTHON:-}" ]; then
  echo "== venv, with torch"
  "$TORCH_PYTHON" -m venv --without-pip "$work/with-torch"
  site=$("$work/with-torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$TORCH_PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/torch-env.pth"
  "$TORCH_PYTHON" -m pip --python "$work/with-torch/bin/python" install -q --no-deps "$wheel"
  clean "$work/with-torch/bin" python "$work/installed.py" "$program"
fi

if [ -x "${UV:-}" ]; then
  echo "== uv"
  "$UV" venv -q --python "$python" "$work/uv"
  "$UV" pip install -q --python "$work/uv/bin/python" numpy "$wheel"
  clean "$work/uv/bin" python "$work/installed.py" "$program"
fi

for suite in $chroots; do
  if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "== $suite: not tried, which needs root and debootstrap"
    continue
  fi
  echo "== $suite"
  root=$work/$suite
  options=()
  case $suite in
    jammy | noble) options=(--no-check-gpg --components=main,universe) ;;
  esac
  debootstrap "${options[@]}" --variant=minbase --include=python3,python3-venv "$suite" "$root" \
    >"$work/$suite.log" 2>&1 || { tail -5 "$work/$suite.log"; exit 1; }
  mount -t proc proc "$root/proc"
  mount -t tmpfs tmpfs "$root/dev/shm" 2>/dev/null ||
    { mkdir -p "$root/dev/shm" && mount -t tmpfs tmpfs "$root/dev/shm"; }
  chroot "$root" python3 --version
  chroot "$root" ldd --version | sed -n 1p
  minor=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  mkdir -p "$root/wheels"
  cp "$wheel" "$root/wheels/" && cp "$work/installed.py" "$program" "$root/"
  if [ "$minor" = 3.9 ]; then # unpacked, as pip refuses it
    chroot "$root" python3 -m zipfile -e "/wheels/${wheel##*/}" /unpacked
    chmod -R +x "$root/unpacked/shunt/bin" "$root/unpacked/shunt/lib/shunt/plugins"
    for transport in builtin:shm process:shm shared:shm; do
      chroot "$root" env -i /unpacked/shunt/bin/shunt bench -n 2 --max 1K --budget 5ms --collective all_reduce \
        --transport $transport
    done
  else
    "$python" -m pip download -q --only-binary :all: --python-version "$minor" -d "$root/wheels" numpy
    chroot "$root" python3 -m venv /venv
    chroot "$root" /venv/bin/pip install -q --no-index --find-links /wheels numpy shunt-ccl
    chroot "$root" env -i PATH=/venv/bin HOME=/root /bin/sh -c 'cd /root && exec python /installed.py /hello.py'
  fi
  umount "$root/proc" "$root/dev/shm"
done
echo "the wheel works in all of them"
