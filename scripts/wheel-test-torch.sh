#!/bin/bash
# wheel-test-torch.sh DIST TORCH VERSION...: for each version of CPython such as 3.12, installs the wheel of DIST and
# PyPI's torch of this version into a fresh environment, and runs a program of torch.distributed there that can compile
# nothing. The interpreter is found by pythons.sh; where there is none, and as root with debootstrap, it is that of the
# Debian or Ubuntu that python-headers.sh names. UV installs; torch's libraries are on the disk once (5 GB in $TMPDIR).
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "${1:?usage: wheel-test-torch.sh DIST TORCH VERSION...}"/*_"$(uname -m).whl") torch=$2
shift 2
work=$(mktemp -d)
trap 'umount "$work"/*/proc "$work"/*/dev/shm 2>/dev/null || true; rm -rf "$work"' EXIT
# Packages that several environments have are links to one file.
export UV_CACHE_DIR=${UV_CACHE_DIR:-$work/cache} UV_LINK_MODE=hardlink

program=$work/hello.py
sed -n '/<!-- snippet: python -->/,/^```$/p' README.md | sed '1,2d;$d' >"$program"
cp python/wheel_tests/installed.py "$work/"

failed=() missing=() passed=()
for version; do
  echo "== CPython $version, torch $torch"
  root=$work/$version
  python=$(scripts/pythons.sh --interpreters "$version" 2>/dev/null)
  mkdir -p "$root/home"
  if [ -n "$python" ]; then
    at=$root enter=()
    "$UV" venv -q --python "$python" "$root/venv"
    "$UV" pip install -q --only-binary :all: --python "$root/venv/bin/python" numpy "torch==$torch" "$wheel"
  elif [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null \
    && suite=$(scripts/python-headers.sh --suite "$version"); then
    at='' enter=(chroot "$root")
    debootstrap --variant=minbase --include="python$version,python$version-venv" --components=main,universe \
      --no-check-gpg \
      "${suite% *}" "$root" '' "/usr/share/debootstrap/scripts/${suite#* }" >"$work/log" 2>&1 \
      || { tail -5 "$work/log"; exit 1; }
    mkdir -p "$root/dev/shm" "$root/home"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/dev/shm"
    chroot "$root" "python$version" -m venv --without-pip /venv
    "$UV" pip install -q --only-binary :all: --python-version "$version" \
      --target "$root/venv/lib/python$version/site-packages" numpy "torch==$torch" "$wheel"
    # What pip would write, with the interpreter's path inside.
    printf '#!/venv/bin/python\nimport sys\nfrom shunt._command import main\nsys.exit(main())\n' >"$root/venv/bin/shunt"
    chmod +x "$root/venv/bin/shunt"
  else
    echo "no interpreter of CPython $version here"
    missing+=("$version")
    continue
  fi
  cp "$program" "$work/installed.py" "$root/home/"
  # The command that pip would write.
  printf '#!%s/venv/bin/python\nimport sys\nfrom shunt._command import main\nsys.exit(main())\n' \
    "$at" >"$root/venv/bin/shunt"
  chmod +x "$root/venv/bin/shunt"
  if "${enter[@]}" env -i -C "$at/home" PATH="$at/venv/bin" HOME="$at/home" LANG=C.UTF-8 \
    "$at/venv/bin/python" "$at/home/installed.py" "$at/home/hello.py"; then
    passed+=("$version")
  else
    failed+=("$version")
  fi
  umount "$root/proc" "$root/dev/shm" 2>/dev/null || true
  rm -rf "$root"
done
others="${missing:+; not tried: ${missing[*]}}${failed:+; FAILED: ${failed[*]}}"
echo "torch $torch by the wheel's extension: CPython ${passed[*]:-none}$others"
[ ${#failed[@]} = 0 ] && [ ${#passed[@]} != 0 ]
