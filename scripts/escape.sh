#!/bin/sh
# Tries to get out of every wall, and then takes one part of each wall away at
# a time and wants the attempts to notice. Builds what it needs and prints the
# table of weaknesses and of the attempts that turned red.
#
# With CARBOY_BIN set, that binary is tried and not built; likewise
# CARBOY_WEAK_BIN with CARBOY_WEAK_GUEST. CARBOY_ESCAPE_WALLS names the walls,
# with commas between. CARBOY_ESCAPE_FULL=1 makes every attempt for every
# weakness, not the expected ones alone. CARBOY_ESCAPE_COMPOSE=1h makes up sequences
# of system calls for an hour behind each wall; CARBOY_ESCAPE_SEED=N, those of one seed.
# Arguments go to go test.
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

if [ -z "${CARBOY_BIN:-}" ]; then
	echo "building" >&2
	make -s build BIN="$tmp"
	CARBOY_BIN=$tmp/carboy
fi
if [ -z "${CARBOY_WEAK_BIN:-}" ]; then
	echo "building what is weak" >&2
	make -s weak BIN="$tmp"
	CARBOY_WEAK_BIN=$tmp/carboy-weak
	CARBOY_WEAK_GUEST=$tmp/carboy-guest-weak
fi
export CARBOY_BIN CARBOY_WEAK_BIN CARBOY_WEAK_GUEST="${CARBOY_WEAK_GUEST:-}"
export CARBOY_LONG=1 # every row, not one of each kind
export CARBOY_ESCAPE_TABLE="$tmp/table"

rc=0
limit=30m
if [ -n "${CARBOY_ESCAPE_COMPOSE:-}" ]; then
	limit=0 # as long as was asked for
fi
CGO_ENABLED=0 go test -count=1 -timeout "$limit" "$@" ./test/escape || rc=$?
if [ -s "$tmp/table" ]; then
	cat "$tmp/table"
fi
exit $rc
