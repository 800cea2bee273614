#!/bin/sh
# torch-headers.sh DIRECTORY VERSION: PyPI's torch of this version without what it depends on, and of it only what an
# extension is compiled and linked with, in DIRECTORY/VERSION (0.5 GB; the download has as much). PYTHON has pip.
set -eu
to=$1/$2
mkdir -p "$1"
exec 9>"$to.lock"
flock 9
[ ! -e "$to/.ready" ] || exit 0

rm -rf "$to"
"${PYTHON:-python3}" -m pip install -q --root-user-action ignore --no-deps --target "$to" "torch==$2" 9>&-
find "$to/torch/lib" -type f ! -name 'libtorch.so' ! -name 'libtorch_python.so' ! -name 'libtorch_cpu.so' ! -name 'libc10.so' \
  -delete
find "$to" -mindepth 1 -maxdepth 1 ! -name torch -exec rm -rf {} +
find "$to/torch" -mindepth 1 -maxdepth 1 ! -name include ! -name lib ! -name __init__.py ! -name version.py -exec rm -rf {} +
touch "$to/.ready"
