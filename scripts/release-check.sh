#!/bin/sh
# Builds the release of the commit that is checked out twice, from two directories, and
# compares each file byte by byte.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
commit=$(git rev-parse HEAD)
CARBOY_VERSION=$(git describe --tags --always)
export CARBOY_VERSION
for tree in "$tmp/one" "$tmp/another/place"; do
	git clone -q --no-hardlinks . "$tree"
	git -C "$tree" checkout -q "$commit"
	"$tree/scripts/release.sh" "$tree/bin/release" 2>"$tmp/log" || {
		cat "$tmp/log" >&2
		exit 1
	}
done
if ! diff -rq "$tmp/one/bin/release" "$tmp/another/place/bin/release"; then
	echo "scripts/release-check.sh: two builds of one commit differ" >&2
	exit 1
fi
echo "the same bytes, built twice:"
cat "$tmp/one/bin/release/SHA256SUMS"
