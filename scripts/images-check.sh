#!/bin/sh
# images-check.sh: fails when the images of kernels are not what the compiler makes of their sources.
#
# All images of cudaipc take half an hour, so those of one dtype, one of the smaller, stand for them: what has the sums
# of its sources was made of them, or of none. `transports/cudaipc/kernels/compile --check` is all. What was found alike
# once, by the sums of sources, images and compiler, is not compiled again on the same machine.
set -eu
cd "$(dirname "$0")/.."
transports/cudaipc/kernels/compile --sums
sum=$(find transports/cudaipc/kernels transports/cudaipc/images cmd/shunt/internal/bench/kernels host/executor/kernels \
  internal/kernelc scripts/images-check.sh -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-32)
known=${XDG_CACHE_HOME:-$HOME/.cache}/shunt/images-$sum
if [ -e "$known" ]; then
  echo "images are up to date, as $known says"
  exit
fi
transports/cudaipc/kernels/compile --check int32
cmd/shunt/internal/bench/kernels/compile --check
host/executor/kernels/compile --check
mkdir -p "$(dirname "$known")"
touch "$known"
