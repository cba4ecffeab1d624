#!/bin/sh
# Runs each fuzz target for FUZZTIME, one after the other. What one finds is
# left in its package's testdata, to be fixed and committed with the fix.
set -u
cd "$(dirname "$0")/.." || exit 1
rc=0
for file in $(git ls-files -co --exclude-standard '*_test.go'); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		package=./$(dirname "$file")
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" "$package" || rc=1
	done
done
exit $rc
