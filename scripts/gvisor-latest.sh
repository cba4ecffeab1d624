#!/bin/sh
# Tries the newest gVisor that upstream publishes, in a copy of this tree:
# builds the binary over it and runs the tests of the wall and those end to
# end. Says how old the pin is and what held, and exits 0 only if all did and
# the pin is not too old. This tree stays as it is. With a version as its
# argument it tries that one instead: upstream may have newer ones than it
# publishes as its latest.
set -eu
cd "$(dirname "$0")/.."
module=gvisor.dev/gvisor
want=${1:-latest}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

# What is tracked or could be, as it stands: a fix may be under way.
git ls-files -co --exclude-standard -z |
	tar --null --ignore-failed-read -T - -cf - 2>/dev/null | tar -xf - -C "$tmp"
cd "$tmp"

version() { go list -m -f '{{.Version}}' $module; }

pinned=$(version)
go get "$module@$want"
newest=$(version)
echo "pinned  $pinned"
old=0
scripts/gvisor-age.sh "$pinned" || old=1
echo "trying  $newest"
[ "$pinned" != "$newest" ] || echo "which is the pin: no newer one is published"

try() {
	name=$1
	shift
	if "$@" >"$tmp/.log" 2>&1; then
		echo "ok      $name"
	else
		echo "FAILED  $name"
		tail -n 60 "$tmp/.log"
		exit 1
	fi
}

scripts/deps.sh
GOFLAGS="-mod=mod -trimpath -buildvcs=false"
CGO_ENABLED=0
export GOFLAGS CGO_ENABLED
try build make build STATIC=
export CARBOY_BIN="$tmp/bin/carboy"
try "tests of the wall" go test -timeout 20m ./internal/backend/...
try "tests end to end" go test -timeout 20m ./test/e2e/...
[ "$pinned" = "$newest" ] || echo "to take it: go get $module@$newest && make test"
exit $old
