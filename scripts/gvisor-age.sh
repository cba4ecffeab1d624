#!/bin/sh
# Says how old a pin of gVisor is, by the date in its pseudo-version, and exits
# 1 once that is eight weeks: what a pin lacks by then no module proxy tells,
# whose newest version may stay the same for months.
# Usage: gvisor-age.sh VERSION [DATE]
set -eu
most=56 # days
pinned=$(printf '%s\n' "$1" | sed -n 's/^.*[-.]\([0-9]\{8\}\)[0-9]\{6\}-[0-9a-f]\{12\}$/\1/p')
[ -n "$pinned" ] || {
	echo "gvisor-age: $1 has no date" >&2
	exit 2
}
days=$((($(date -u -d "${2:-now}" +%s) - $(date -u -d "$pinned" +%s)) / 86400))
echo "age     $days days"
[ "$days" -lt "$most" ] || {
	echo "the pin is older than eight weeks: see docs/adr/0002-gvisor-pin.md" >&2
	exit 1
}
