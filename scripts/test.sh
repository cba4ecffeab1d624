#!/bin/sh
# Runs every test. Arguments go to go test: scripts/test.sh -run Stop
#
# With the race detector, except where a test binary links gVisor: compiling
# gVisor once more for it costs four minutes of processor time from cold, and
# the sentry, which is the test binary executed again, would run under it too.
# The packages that the wall is made of are under the detector by themselves.
# Tests that drive the built binary are as well, but not that binary.
set -eu
cd "$(dirname "$0")/.."

# Tests send signals to what they start: whoever runs this with some ignored,
# as nohup does, must not hand that down.
if [ -z "${CARBOY_TEST_SIGNALS:-}" ] && env --default-signal true 2>/dev/null; then
	CARBOY_TEST_SIGNALS=default exec env --default-signal sh scripts/test.sh "$@"
fi

# A line for each test binary: its package, and how to run it.
plan=$(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk '
	$1 ~ /\.test$/ { sub(/\.test$/, "", $1); print $1, / gvisor\.dev\/gvisor\// ? "plain" : "race" }')

# go list names external test packages and packages as they are compiled for
# a test as well; only binaries end in .test.
of() {
	echo "$plan" | awk -v kind="$1" '$2 == kind { print $1 }'
}

rc=0
race=$(of race)
plain=$(of plain)
# shellcheck disable=SC2086 # one word for each package
if [ -n "$race" ]; then
	CGO_ENABLED=1 go test -race -shuffle=on -timeout 30m "$@" $race || rc=1
fi
# shellcheck disable=SC2086
if [ -n "$plain" ]; then
	CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false" \
		go test -shuffle=on -timeout 30m "$@" $plain || rc=1
fi
exit $rc
