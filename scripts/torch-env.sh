#!/bin/sh
# torch-env.sh VENV VERSION: PyPI's torch of this version, and pytest as python/requirements-torch.txt says, in an
# environment outside the checkout that all checkouts share (4.7 GB, 3 minutes the first time).
# Ends with 75, and the reason, where it cannot be had: no room or no network. PYTHON makes it.
set -eu
cd "$(dirname "$0")/.."
venv=$1 room=8 skip=75

mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
wants=$(mktemp) log=$(mktemp)
trap 'rm -f "$wants" "$log"' EXIT
sed "s/^torch==.*/torch==$2/" python/requirements-torch.txt >"$wants"
! cmp -s "$wants" "$venv/.ready" || exit 0

free=$(df -Pk "$(dirname "$venv")" | awk 'NR == 2 { print int($4 / 1048576) }')
if [ "$free" -lt $room ]; then
  echo "no environment for torch: $free GB are free in $(dirname "$venv"), installing torch takes $room GB" >&2
  exit $skip
fi
[ -x "$venv/bin/pip" ] || "${PYTHON:-python3}" -m venv "$venv" 9>&-
if ! "$venv/bin/pip" install -q -r "$wants" >"$log" 2>&1 9>&-; then
  cat "$log" >&2
  offline='name resolution|network is unreachable|connection (refused|timed out|reset)'
  if grep -qiE "$offline|connecttimeout|newconnectionerror|proxyerror" "$log"; then
    echo "no environment for torch: the package index cannot be reached" >&2
    exit $skip
  fi
  exit 1
fi
cp "$wants" "$venv/.ready"
