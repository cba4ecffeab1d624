#!/bin/sh
# Runs the tests of some packages, and then runs each test that failed once more, alone:
#
#	scripts/stage.sh FILE 'PACKAGE...' FLAG...
#
# Flags are go test's. What go test says of each test goes to FILE, for test/report, which
# judges the run: this script always succeeds. With more than twelve failures nothing is
# run again. CARBOY_GOTESTSUM names the runner.
set -eu
file=$1 packages=$2
shift 2
format=pkgname
case " $* " in *" -v "*) format=standard-verbose ;; esac
"$CARBOY_GOTESTSUM" --format "$format" --hide-summary skipped --jsonfile "$file" \
	--rerun-fails=1 --rerun-fails-max-failures=12 --rerun-fails-abort-on-data-race \
	--packages "$packages" -- "$@" || echo '{"Action":"fail"}' >>"$file"
