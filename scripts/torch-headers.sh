#!/bin/sh
# torch-headers.sh DIRECTORY VERSION: PyPI's torch of this version without what it depends on, and of it only what an
# extension is compiled and linked with, in DIRECTORY/VERSION (0.5 GB; the download has as much), and METADATA, which
# names the versions of CPython that it is for. PYTHON has pip.
set -eu
to=$1/$2
mkdir -p "$1"
exec 9>"$to.lock"
flock 9
[ ! -e "$to/.ready" ] || [ ! -e "$to/METADATA" ] || exit 0

rm -rf "$to"
# The one for CPython 3.12, which is as good as any: they differ in libtorch_python.so, of which only names are linked.
"${PYTHON:-python3}" -m pip install -q --root-user-action ignore --no-deps --only-binary :all: --python-version 3.12 \
  --target "$to" "torch==$2" 9>&-
mv "$to"/torch-*.dist-info/METADATA "$to/"
find "$to/torch/lib" -type f ! -name 'libtorch.so' ! -name 'libtorch_python.so' ! -name 'libtorch_cpu.so' \
  ! -name 'libc10.so' \
  -delete
find "$to" -mindepth 1 -maxdepth 1 ! -name torch ! -name METADATA -exec rm -rf {} +
find "$to/torch" -mindepth 1 -maxdepth 1 ! -name include ! -name lib ! -name __init__.py ! -name version.py \
  -exec rm -rf {} +
touch "$to/.ready"
