#!/bin/sh
# Measures what the way through a gate costs, beside mitmproxy and squid with
# ssl-bump. Arguments go to carboy-bench gate: scripts/bench-gate.sh --only
# requests
#
# The two are Debian's packages. They are unpacked into a temporary directory
# and never installed, and run in a network of their own: nothing stays.
#
# CARBOY_BIN is the binary to measure; bin/carboy otherwise. make builds both. Needs root.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
CARBOY_BIN=$(readlink -f "${CARBOY_BIN:-$here/bin/carboy}")
export CARBOY_BIN
if [ ! -x "$CARBOY_BIN" ]; then
	echo "bench-gate: there is no $CARBOY_BIN: make build, or set CARBOY_BIN" >&2
	exit 1
fi

tmp=$(mktemp -d)
chmod 755 "$tmp" # squid gives up being root
bench=

clean() {
	trap '' INT TERM HUP
	set +e
	if [ -n "$bench" ]; then
		kill -TERM "$bench" 2>/dev/null && wait "$bench"
	fi
	rm -rf "$tmp"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# unpack NAME PACKAGE puts a package, and what it needs and is not installed,
# below $tmp/NAME.
unpack() {
	mkdir -p "$tmp/debs-$1/partial" "$tmp/$1"
	if ! apt-get install -qq -y --no-install-recommends --download-only \
		-o Dir::Cache::archives="$tmp/debs-$1" -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$2" >"$tmp/apt" 2>&1; then
		echo "bench-gate: $2 can't be had, and is not measured: $(tail -n 1 "$tmp/apt")" >&2
		return 1
	fi
	for deb in "$tmp/debs-$1"/*.deb; do
		[ ! -e "$deb" ] || dpkg-deb -x "$deb" "$tmp/$1"
	done
}

squid=
mitmproxy=
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
	echo "bench-gate: fetching squid and mitmproxy" >&2
	if [ -x /usr/sbin/squid ]; then squid=/; elif unpack squid squid-openssl; then squid=$tmp/squid; fi
	if [ -x /usr/bin/mitmdump ]; then mitmproxy=/; elif unpack mitmproxy mitmproxy; then mitmproxy=$tmp/mitmproxy; fi
else
	echo "bench-gate: squid and mitmproxy are not measured: this machine has no apt-get" >&2
fi

# In a session of its own, so that a Ctrl-C reaches it once, from clean.
setsid "$here/bin/carboy-bench" gate --squid "$squid" --mitmproxy "$mitmproxy" "$@" &
bench=$!
rc=0
wait "$bench" || rc=$?
bench=
exit "$rc"
