#!/bin/sh
# Runs every test, in stages, and says what became of them. Arguments go to go test:
# scripts/test.sh -run Stop
#
# With the race detector, except where a test binary links gVisor's sentry:
# compiling that once more costs four minutes of processor time from cold, and
# the sentry, which is the test binary executed again, would run under it too.
# The packages that the wall is made of are under the detector by themselves.
# Tests that drive the built binary are as well, but not that binary.
#
# A test that failed is run again, alone (scripts/stage.sh); test/report says what that
# is good for. It also holds skips to a list: scripts/machine.sh sees that the machine
# offers what tests need. What it finds is kept in bin/test.json and bin/flaky.json.
set -eu
cd "$(dirname "$0")/.."

# Tests send signals to what they start: whoever runs this with some ignored,
# as nohup does, must not hand that down.
if [ -z "${CARBOY_TEST_SIGNALS:-}" ] && env --default-signal true 2>/dev/null; then
	CARBOY_TEST_SIGNALS=default exec env --default-signal sh scripts/test.sh "$@"
fi

# What tests leave behind ends with the run, or before the next.
if [ -z "${CARBOY_WORLD:-}" ]; then
	CARBOY_WORLD=1 exec scripts/world.sh scripts/test.sh "$@"
fi
unset CARBOY_WORLD

began=$(date +%s)
out=$PWD/bin
said=$out/tests
rm -rf "$said"
mkdir -p "$said"

# What is built as the product is, with its flags.
static='-trimpath -buildvcs=false'
export CARBOY_GOTESTSUM="$out/gotestsum"
CGO_ENABLED=0 GOFLAGS=$static go build -o "$CARBOY_GOTESTSUM" gotest.tools/gotestsum

# How much longer than on a quiet machine tests wait for what has to happen.
CARBOY_PATIENCE=$(CGO_ENABLED=0 GOFLAGS=$static go run ./test/patience/measure)
export CARBOY_PATIENCE
echo "scripts/test.sh: this machine takes $CARBOY_PATIENCE times as long as a quiet one"

# A line for each test binary: its package, and the stage that runs it. go list names
# external test packages, and packages as they are compiled for a test, as well; only
# binaries end in .test.
plan=$(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk '
	$1 ~ /\.test$/ {
		sub(/\.test$/, "", $1)
		stage = "race"
		if (/ gvisor\.dev\/gvisor\/pkg\/sentry\//) stage = "plain"
		if ($1 ~ /\/test\/(e2e|escape)$/) stage = "alone"
		print $1, stage
	}')

# of STAGE: its packages, in one line.
of() {
	echo "$plan" | awk -v stage="$1" '$2 == stage { printf "%s%s", sep, $1; sep = " " }'
}

# stage NAME PACKAGES FLAG...
stage() {
	name=$1 packages=$2
	shift 2
	[ -z "$packages" ] || scripts/stage.sh "$said/$name.json" "$packages" -shuffle=on "$@"
}

export CGO_ENABLED=1
stage 1-units "$(of race)" -race -p 2 -timeout 20m "$@"
(
	export CGO_ENABLED=0 GOFLAGS="$static"
	stage 2-sentry "$(of plain)" -p 2 -timeout 20m "$@"
	# These say of some tests that the detector leaves no room for them.
	[ $# -gt 0 ] || set -- -run '^(TestMemory|TestOffersMemory|TestInitForgets)$'
	stage 3-again './internal/egress ./internal/egress/link ./internal/guest/jail' "$@"
)
# What follows makes sandboxes from outside and attacks them, and waits a good deal: there are
# two lanes, each a world where no processes but its own are seen. A test of test/e2e is
# skipped in one of them.
limit=60m
[ -z "${CARBOY_LONG:-}" ] || limit=10h

# lane NAME PACKAGE FLAG...
lane() {
	name=$1 package=$2
	shift 2
	case " $(of alone) " in
	*"/${package#./} "*) scripts/world.sh scripts/stage.sh "$said/$name.json" "$package" -shuffle=on -race -p 1 -timeout "$limit" "$@" ;;
	esac
}

# share 1 and share 0 are all of test/e2e. The first is larger: the other lane has test/escape.
tests=$(go test -race -list '^(Test|Fuzz|Example)' ./test/e2e | grep -E '^(Test|Fuzz|Example)' || true)
share() {
	echo "$tests" | awk -v of="$1" '(NR % 5 < 3) == of { printf "%s%s", sep, $0; sep = "|" }'
}

lane 4-e2e-1 ./test/e2e -skip "^($(share 0))\$" "$@" &
first=$!
lane 4-escape ./test/escape "$@"
lane 4-e2e-2 ./test/e2e -skip "^($(share 1))\$" "$@"
wait "$first"

CGO_ENABLED=0 GOFLAGS=$static go run ./test/report -out "$out" -began "$began" "$said"/*.json
