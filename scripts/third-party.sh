#!/bin/sh
# Prints the licence and notice files of the modules that are linked into
# binaries, each under the module's name and version.
set -eu
cd "$(dirname "$0")/.."
go version -m "$@" | awk '$1 == "dep" { print $2, $3 }' | sort -u | while read -r module version; do
	dir=$(go list -m -f '{{.Dir}}' "$module")
	found=
	for f in "$dir"/LICENSE* "$dir"/LICENCE* "$dir"/COPYING* "$dir"/NOTICE* "$dir"/PATENTS*; do
		[ -f "$f" ] || continue
		found=y
		printf '==== %s %s: %s\n\n' "$module" "$version" "${f##*/}"
		cat "$f"
		printf '\n\n'
	done
	if [ -z "$found" ]; then
		echo "scripts/third-party.sh: $module has no licence file" >&2
		exit 1
	fi
done
printf '==== gitleaks, of which the rules are embedded: LICENSE\n\n'
cat internal/gitgate/scan/rules/LICENSE
printf '\n\n==== Go standard library: LICENSE\n\n'
cat "$(go env GOROOT)/LICENSE"
