#!/bin/sh
# Runs every test, in stages, and says what became of them. Arguments go to go test:
# scripts/test.sh -run Stop
#
# With the race detector, but for three kinds of packages. What links gVisor's sentry: compiling
# that once more costs four minutes of processor time from cold, and the sentry, which is the
# test binary executed again, would run under it too; the packages that the wall is made of
# are under the detector by themselves. What begins nothing that runs beside it, in its
# code or its tests: there is nothing to detect. And, but in make test-long, what it makes
# several times as slow: what computes a lot or executes its test binary again (slow), and the
# tests that drive the built binary, which is not under it anyhow.
#
# make test has vetted everything before, so go test does not do it again.
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

# What begins something that runs beside it.
beside='(^|[^a-z."])go (func|[a-zA-Z_.]+\()|\.Go\(|\.Parallel\(|AfterFunc|httptest|http\.Serve'
single=$(go list -f '{{.ImportPath}} {{.Dir}}' ./... | while read -r package dir; do
	grep -qE "$beside" "$dir"/*.go || printf ' %s' "$package"
done)

# What the detector makes several times as slow.
slow='internal/(backend/hostimage|backend/process|cli|cli/screen|pod|program|quarantine)'
[ -z "${CARBOY_LONG:-}" ] || slow=none

# A line for each test binary: its package, and the stage that runs it. go list names
# external test packages, and packages as they are compiled for a test, as well; only
# binaries end in .test. What links the sentry takes longest, and begins first.
plan=$(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk -v single="$single" -v slow="/$slow\$" '
	BEGIN { split(single, names); for (i in names) plain[names[i]] }
	$1 ~ /\.test$/ {
		sub(/\.test$/, "", $1)
		stage = "race"
		if ($1 in plain || $1 ~ slow) stage = "plain"
		if (/ gvisor\.dev\/gvisor\/pkg\/sentry\//) stage = "sentry"
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
	[ -z "$packages" ] || scripts/stage.sh "$said/$name.json" "$packages" -vet=off -shuffle=on "$@"
}

# A race detector waits for a second at the end of each process, and tests start many.
export CGO_ENABLED=1 GORACE=atexit_sleep_ms=0
stage 1-units "$(of race)" -race -p 3 -timeout 20m "$@"
(
	export CGO_ENABLED=0 GOFLAGS="$static"
	stage 2-plain "$(of sentry) $(of plain)" -p 2 -timeout 20m "$@"
	# These say of some tests that the detector leaves no room for them.
	[ $# -gt 0 ] || set -- -run '^(TestMemory|TestOffersMemory|TestInitForgets)$'
	stage 3-again './internal/egress ./internal/egress/link ./internal/guest/jail' "$@"
)
# What follows makes sandboxes and attacks them, and has the machine for itself.
alone=$(of alone)
for name in escape e2e; do
	case " $alone " in *"/test/$name "*) ;; *) continue ;; esac
	limit=60m
	[ "$name" = e2e ] || limit=40m
	race=
	[ -z "${CARBOY_LONG:-}" ] || limit=10h race=-race
	(
		[ -n "$race" ] || export CGO_ENABLED=0 GOFLAGS="$static"
		# Much of it is waiting. $race is one word or none.
		# shellcheck disable=SC2086
		stage "4-$name" "./test/$name" $race -p 1 -parallel 3 -timeout "$limit" "$@"
	)
done

CGO_ENABLED=0 GOFLAGS=$static go run ./test/report -out "$out" -began "$began" "$said"/*.json
