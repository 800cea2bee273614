#!/usr/bin/env bash
# Runs every fuzzer of the repository, one after the other, for the given time
# each (30s by default). Stops at the first finding.
set -euo pipefail
time=${1:-30s}
go=${GO:-go}

for package in $($go list ./...); do
  dir=$($go list -f '{{.Dir}}' "$package")
  targets=$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null | sed 's/^func //' || true)
  for target in $targets; do
    echo "== $package $target"
    $go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package"
  done
done
