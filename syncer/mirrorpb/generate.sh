#!/bin/sh
# Makes mirror.pb.go anew: protoc 3.21 from the PATH, the plugin as go.mod says.
set -eu
cd "$(dirname "$0")"
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
go build -o "$tool/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
protoc --plugin="protoc-gen-go=$tool/protoc-gen-go" --go_out=. --go_opt=paths=source_relative mirror.proto
