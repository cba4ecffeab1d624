#!/bin/sh
# Runs golangci-lint as .golangci.yml says, the version named here, built into
# .tools: it has too many dependencies of its own to share our go.mod.
set -eu
VERSION=v2.15.0
cd "$(dirname "$0")/.."
tools=$(pwd)/.tools
if [ "$(cat "$tools/golangci-lint.version" 2>/dev/null)" != $VERSION ]; then
	mkdir -p "$tools/bin"
	GOBIN=$tools/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$VERSION
	echo $VERSION >"$tools/golangci-lint.version"
fi
"$tools/bin/golangci-lint" run "$@"
