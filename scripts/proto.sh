#!/bin/sh
# Regenerates plugin/proto/*.pb.go from plugin/proto/transport.proto. Needs
# protoc (Debian: protobuf-compiler); installs the two Go generators into bin/.
set -eu
cd "$(dirname "$0")/.."
mkdir -p bin
GOBIN="$PWD/bin" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN="$PWD/bin" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1
made=$(mktemp -d plugin/proto/.made.XXXXXX)
trap 'rm -rf "$made"' EXIT
PATH="$PWD/bin:$PATH" protoc -I plugin/proto \
	--go_out="$made" --go_opt=paths=source_relative \
	--go-grpc_out="$made" --go-grpc_opt=paths=source_relative \
	plugin/proto/transport.proto
# At once, so that a compiler that runs at the same time sees one or the other.
for file in "$made"/*.go; do
	cmp -s "$file" "plugin/proto/${file##*/}" || mv "$file" plugin/proto/
done
