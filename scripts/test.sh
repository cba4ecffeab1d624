#!/bin/sh
# Runs every test. Arguments go to go test: scripts/test.sh -run Stop
#
# With the race detector, except where a test binary links gVisor's sentry:
# compiling that once more costs four minutes of processor time from cold, and
# the sentry, which is the test binary executed again, would run under it too.
# The packages that the wall is made of are under the detector by themselves.
# Tests that drive the built binary are as well, but not that binary.
#
# scripts/machine.sh sees that the machine offers what tests need, so a test that
# is skipped all the same is a failure, unless test/report says why it may be.
set -eu
cd "$(dirname "$0")/.."

# Tests send signals to what they start: whoever runs this with some ignored,
# as nohup does, must not hand that down.
if [ -z "${CARBOY_TEST_SIGNALS:-}" ] && env --default-signal true 2>/dev/null; then
	CARBOY_TEST_SIGNALS=default exec env --default-signal sh scripts/test.sh "$@"
fi

# A line for each test binary: its package, and how to run it.
plan=$(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk '
	$1 ~ /\.test$/ { sub(/\.test$/, "", $1); print $1, / gvisor\.dev\/gvisor\/pkg\/sentry\// ? "plain" : "race" }')

# go list names external test packages and packages as they are compiled for
# a test as well; only binaries end in .test.
of() {
	echo "$plan" | awk -v kind="$1" '$2 == kind { print $1 }'
}

tests() {
	go test -json -shuffle=on -timeout 45m "$@" || echo '{"Action":"fail"}'
}

verbose=
case " $* " in *" -v "*) verbose=-v ;; esac
race=$(of race)
plain=$(of plain)
# These say of some tests that the detector leaves no room for them.
again='./internal/egress/link ./internal/guest/jail'
# shellcheck disable=SC2086 # one word for each package
{
	[ -z "$race" ] || (export CGO_ENABLED=1 && tests -race "$@" $race)
	export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
	[ -z "$plain" ] || tests "$@" $plain
	[ $# -gt 0 ] || set -- -run '^(TestMemory|TestInitForgets)$'
	tests "$@" $again
} | CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false" go run ./test/report $verbose
