#!/bin/bash
# pythons.sh VERSION...: finds the headers of each version of CPython, such as 3.12, and prints the folders, one a line.
# PYTHONS has interpreters, or folders with Python.h, that go first; then come python3.12 on the PATH and what pyenv and
# uv (or $UV) have, then what python-headers.sh can fetch into PYTHON_HEADERS. Says on stderr which versions are
# missing.
# With --interpreters before the versions: finds and prints interpreters, with or without headers.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
wanted=headers
if [ "${1:-}" = --interpreters ]; then
  wanted=interpreters
  shift
fi

# of INTERPRETER VERSION: the folder of the interpreter's headers, or its path; nothing if it is another version,
# free-threaded, or without headers where these are wanted.
of() {
  "$1" -I -c '
import os, sys, sysconfig
include = sysconfig.get_path("include")
if "%d.%d" % sys.version_info[:2] == sys.argv[1] and not sysconfig.get_config_var("Py_GIL_DISABLED"):
    if sys.argv[2] == "interpreters":
        print(sys.executable)
    elif os.path.exists(os.path.join(include, "Python.h")):
        print(include)' "$2" "$wanted" 2>/dev/null || true
}

# version_of FOLDER: the version of the headers.
version_of() {
  awk '$2 == "PY_MAJOR_VERSION" { major = $3 } $2 == "PY_MINOR_VERSION" { print major "." $3 }' "$1/patchlevel.h"
}

# candidates VERSION: interpreters that may have this version.
candidates() {
  local version=$1 uv=${UV:-uv}
  type -aP "python$version" || true
  if command -v pyenv >/dev/null; then
    ls -d "$(pyenv root)/versions/$version".*/bin/"python$version" 2>/dev/null || true
  fi
  if command -v "$uv" >/dev/null; then
    "$uv" python find --no-project --no-python-downloads "$version" 2>/dev/null || true
  fi
}

# search VERSION: prints what is wanted, or nothing.
search() {
  local version=$1 python found
  for python in ${PYTHONS:-}; do
    if [ -d "$python" ]; then
      [ -e "$python/Python.h" ] || { echo "pythons: PYTHONS names $python, which has no Python.h" >&2; exit 2; }
      found=$([ $wanted != headers ] || [ "$(version_of "$python")" != "$version" ] || echo "$python")
    else
      command -v "$python" >/dev/null || { echo "pythons: PYTHONS names $python, which is not found" >&2; exit 2; }
      found=$(of "$python" "$version")
    fi
    [ -z "$found" ] || { echo "$found"; return; }
  done
  while read -r python; do
    found=$(of "$python" "$version")
    [ -z "$found" ] || { echo "$found"; return; }
  done < <(candidates "$version")
  [ $wanted != headers ] || [ -z "${PYTHON_HEADERS:-}" ] || "$here/python-headers.sh" "$PYTHON_HEADERS" "$version" \
    || [ $? = 75 ]
}

missing=()
for version; do
  found=$(search "$version")
  if [ -n "$found" ]; then echo "$found"; else missing+=("$version"); fi
done
[ ${#missing[@]} = 0 ] || echo "pythons: missing: no $wanted of CPython ${missing[*]}; name them in PYTHONS" >&2
