#!/bin/sh
# wheel.sh DIST [TORCH...]: builds the wheel into DIST, from what portable.sh has built, and checks its tag.
# PYTHON has what python/requirements-wheel.txt says. Each TORCH is a directory with a package torch, for which the
# wheel then carries the extension of shunt.torch.
set -eu
cd "$(dirname "$0")/.."
dist=${1:?usage: wheel.sh DIST [TORCH...]}
shift
python=${PYTHON:-python3}
ZIG="$(command -v "$python") -m ziglang"
export ZIG CC="$PWD/scripts/portable-cc.sh"

rm -rf build/portable/torch build/python
for torch; do
  CXX="$PWD/scripts/portable-cxx.sh" PYTHONPATH="python:$torch" "$python" -m shunt.torch.build \
    --output build/portable/torch/lib
done
cp LICENSE THIRD_PARTY_NOTICES python/
trap 'rm -f python/LICENSE python/THIRD_PARTY_NOTICES' EXIT
"$python" -m build --wheel --no-isolation --outdir "$dist" python >/dev/null
"$python" python/wheel_check.py "$dist"/*.whl
