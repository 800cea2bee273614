#!/bin/sh
# release.sh: the linker's flags that tell the shunt command its version, that of shunt.h, and its commit.
set -eu
cd "$(dirname "$0")/.."
number() { sed -n "s/^#define SHUNT_API_$1 //p" capi/include/shunt.h; }
commit=$(git rev-parse HEAD 2>/dev/null || true)
echo "-X main.release=$(number MAJOR).$(number MINOR).$(number PATCH) -X main.commit=$commit"
