#!/bin/sh
# build.sh OUTPUT: builds the NCCL-compatible library as OUTPUT. CC and CFLAGS are honoured.
set -eu
output=${1:?usage: build.sh OUTPUT}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$(dirname "$output")"
# shellcheck disable=SC2086 # CFLAGS is a list
${CC:-cc} -std=gnu11 -O2 -g -Wall -Wextra -fPIC -fvisibility=hidden -fstack-protector-strong \
  -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -I"$here" -I"$here/../include" -I"$here/../../plugin" \
  -shared -Wl,-soname,libnccl.so.2 -Wl,--version-script="$here/libnccl.map" -Wl,-z,now -Wl,-z,relro \
  -Wl,-z,noexecstack -Wl,-z,nodelete -Wl,-z,defs ${CFLAGS:-} \
  -o "$output" "$here"/*.c -lpthread -ldl
