#!/bin/bash
# wheel.sh DIST [TORCH...]: builds the wheel into DIST, from what portable.sh has built for PORTABLE_ARCH (unset: this
# machine's), and checks its tag.
# PYTHON has what python/requirements-wheel.txt says. Each TORCH is a directory of torch-headers.sh, for which the wheel
# then carries the extension of shunt.torch, once for each version of CPython in PYTHON_VERSIONS (by default PYTHON's)
# that this torch is for and that pythons.sh finds.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=${1:?usage: wheel.sh DIST [TORCH...]}
shift
python=${PYTHON:-python3}
export PORTABLE_ARCH=${PORTABLE_ARCH:-$(uname -m)}
export ZIG="$(command -v "$python") -m ziglang" CC="$PWD/scripts/portable-cc.sh"
portable=build/portable-$PORTABLE_ARCH
if [ $# != 0 ] && [ "$PORTABLE_ARCH" != "$(uname -m)" ]; then
  echo "wheel: the extension of shunt.torch is built for this machine only;" \
    "on $PORTABLE_ARCH the import compiles it: pass TORCH_VERSIONS=" >&2
  exit 2
fi

rm -rf "$portable/torch" build/python
declare -A headers
if [ $# != 0 ]; then
  for version in ${PYTHON_VERSIONS:-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}; do
    headers[$version]=$(PYTHONS="${PYTHONS:-} $python" UV="$(dirname "$python")/uv" scripts/pythons.sh "$version")
  done
fi
for torch; do
  folders=()
  for version in $(sed -n 's/^Classifier: Programming Language :: Python :: \(3\.[0-9]*\)$/\1/p' "$torch/METADATA"); do
    [ -z "${headers[$version]:-}" ] || folders+=("${headers[$version]}")
  done
  if [ ${#folders[@]} = 0 ]; then echo "wheel: no CPython of torch in $torch has headers here" >&2 && exit 1; fi
  CXX="$PWD/scripts/portable-cxx.sh" PYTHONPATH="python:$torch" "$python" -m shunt.torch.build \
    --output "$portable/torch/lib" --headers "${folders[@]}"
done
rm -f "$dist"/*_"$PORTABLE_ARCH.whl"
"$python" -m build --wheel --no-isolation --outdir "$dist" python >/dev/null
"$python" python/wheel_check.py "$dist"/*_"$PORTABLE_ARCH.whl"
