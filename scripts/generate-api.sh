#!/bin/sh
# Writes the Go code of the protobuf definitions below api, with pinned tools
# that it installs into .tools. Needs go and npm.
set -eu

BUF=1.75.0
PROTOC_GEN_GO=v1.36.12
PROTOC_GEN_CONNECT_GO=v1.21.1

root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/.tools
mkdir -p "$tools/bin"

# have NAME WANTED: NAME was installed, and as this version.
have() {
	[ -x "$tools/bin/$1" ] && [ "$(cat "$tools/$1.version" 2>/dev/null)" = "$2" ]
}

plugin() {
	have "$1" "$3" && return
	GOBIN=$tools/bin go install "$2@$3"
	echo "$3" >"$tools/$1.version"
}

plugin protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go $PROTOC_GEN_GO
plugin protoc-gen-connect-go connectrpc.com/connect/cmd/protoc-gen-connect-go $PROTOC_GEN_CONNECT_GO
if ! have buf $BUF; then
	npm install --silent --no-fund --no-audit --prefix "$tools" "@bufbuild/buf@$BUF"
	ln -sf ../node_modules/.bin/buf "$tools/bin/buf"
	echo $BUF >"$tools/buf.version"
fi

cd "$root/api"
PATH=$tools/bin:$PATH
buf lint
buf generate
