#!/bin/sh
# Runs each fuzz target for FUZZTIME, one after the other. What one finds is
# left in its package's testdata, to be fixed and committed with the fix.
#
# Minimising is kept short: where coverage varies from run to run, as it does
# with goroutines, it takes all of the time.
#
# Targets whose test binary links gVisor's sentry are only named: Go's instrumentation
# overflows the stack of functions there that may not grow it, so they don't
# build. go test still runs their seeds.
set -u
cd "$(dirname "$0")/.." || exit 1

linked=$(go list -test -f '{{.ImportPath}} {{.Dir}} {{join .Deps " "}}' ./... |
	awk '$1 ~ /\.test$/ && / gvisor\.dev\/gvisor\/pkg\/sentry\// { print $2 }') || exit 1

rc=0
for file in $(git ls-files -co --exclude-standard '*_test.go'); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		package=./$(dirname "$file")
		if echo "$linked" | grep -qxF "$(cd "$package" && pwd)"; then
			echo "== $package $target: not fuzzed, it links gVisor's sentry"
			continue
		fi
		echo "== $package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" -fuzzminimizetime 5x "$package" || rc=1
	done
done
exit $rc
