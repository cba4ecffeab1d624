#!/bin/sh
# Measures carboy against all its peers, those included that this machine
# lacks. Arguments go to carboy-bench: scripts/bench.sh --only start
#
# Missing peers are Debian's packages. They are unpacked into a temporary
# directory and never installed: no service starts, and nothing stays. Docker's
# engine is started there too, on a socket of its own, without a network, with
# gVisor as a second runtime: an installed runsc, else the one in carboy. Where
# an engine answers already, that one is measured as it is.
#
# CARBOY_BIN is the binary to measure; bin/carboy otherwise. make builds both. Needs root for all
# but bubblewrap.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
CARBOY_BIN=$(readlink -f "${CARBOY_BIN:-$here/bin/carboy}")
export CARBOY_BIN
if [ ! -x "$CARBOY_BIN" ]; then
	echo "bench: there is no $CARBOY_BIN: make build, or set CARBOY_BIN" >&2
	exit 1
fi

tmp=$(mktemp -d)
groups=carboy-bench-$$ # the engine's control groups
engine=
bench=

# Whatever is taken away is tried to the end.
clean() {
	trap '' INT TERM HUP
	set +e
	if [ -n "$bench" ]; then
		kill -TERM "$bench" 2>/dev/null && wait "$bench"
	fi
	if [ -n "$engine" ] && kill -TERM "$engine" 2>/dev/null; then
		wait "$engine"
	fi
	# What an engine mounts it may leave when it is killed; the deepest first.
	awk -v below="$tmp/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r at; do
		umount -l "$at"
	done
	find /sys/fs/cgroup -mindepth 1 -maxdepth 3 -depth -type d -path "*/$groups*" -exec rmdir {} + 2>/dev/null
	rm -rf "$tmp"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# unpack PACKAGE... puts packages, and what they need and is not installed,
# below $tmp/debian.
unpack() {
	mkdir -p "$tmp/debs/partial" "$tmp/debian"
	if ! apt-get install -qq -y --no-install-recommends --download-only \
		-o Dir::Cache::archives="$tmp/debs" -o Debug::NoLocking=1 -o APT::Sandbox::User=root "$@" >"$tmp/apt" 2>&1; then
		echo "bench: $* can't be had, and is not measured: $(tail -n 1 "$tmp/apt")" >&2
		return
	fi
	for deb in "$tmp"/debs/*.deb; do
		[ ! -e "$deb" ] || dpkg-deb -x "$deb" "$tmp/debian"
	done
}

missing=
command -v bwrap >/dev/null || missing="$missing bubblewrap"
command -v runc >/dev/null || missing="$missing runc"
own=
if ! { command -v docker && docker version; } >/dev/null 2>&1; then
	own=1
	command -v dockerd >/dev/null || missing="$missing docker.io"
fi
if [ -n "$missing" ]; then
	if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
		echo "bench: fetching$missing" >&2
		# shellcheck disable=SC2086 # one word for each package
		unpack $missing
	else
		echo "bench:$missing: missing, and this machine has no apt-get" >&2
	fi
fi
# What the machine has comes first, but for a docker that has no engine.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:$tmp/debian/usr/bin:$tmp/debian/usr/sbin
LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
for lib in "$tmp"/debian/usr/lib/*-linux-gnu*; do
	[ ! -d "$lib" ] || LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export PATH
[ -z "$LD_LIBRARY_PATH" ] || export LD_LIBRARY_PATH

# start_engine runs Docker's engine until clean.
start_engine() {
	mkdir -p "$tmp/bin" "$tmp/docker"
	# The program that carboy carries is gVisor's own command line where it is called by
	# this name, and by no path.
	ln -s "$(command -v runsc || echo "${CARBOY_BIN%/*}/programs/carboy-gvisor")" "$tmp/bin/carboy-runsc"
	# Docker makes the control groups; gVisor's own would need a newer tree of
	# them than some machines have.
	cat >"$tmp/bin/runsc-for-docker" <<END
#!/bin/sh
PATH=$tmp/bin:\$PATH
exec carboy-runsc --platform=systrap --network=none --ignore-cgroups "\$@"
END
	chmod 755 "$tmp/bin/runsc-for-docker"
	DOCKER_HOST=unix://$tmp/docker/sock
	DOCKER_API_VERSION=1.41 # what Debian's engine speaks
	export DOCKER_HOST DOCKER_API_VERSION
	setsid dockerd --iptables=false --ip6tables=false --bridge=none --host "$DOCKER_HOST" --data-root "$tmp/docker/data" \
		--exec-root "$tmp/docker/exec" --pidfile "$tmp/docker/pid" --config-file "$tmp/docker/none.json" \
		--cgroup-parent "/$groups" --add-runtime "runsc=$tmp/bin/runsc-for-docker" >"$tmp/docker/log" 2>&1 &
	engine=$!
	tries=0
	until docker version >/dev/null 2>&1; do
		tries=$((tries + 1))
		if [ "$tries" -gt 100 ] || ! kill -0 "$engine" 2>/dev/null; then
			echo "bench: dockerd does not start: $(tail -n 1 "$tmp/docker/log")" >&2
			return
		fi
		sleep 0.1
	done
}

if [ -n "$own" ] && command -v dockerd >/dev/null; then
	echo '{}' >"$tmp/none" && mkdir -p "$tmp/docker" && mv "$tmp/none" "$tmp/docker/none.json"
	start_engine
fi

# In a session of its own, so that a Ctrl-C reaches it once, from clean.
setsid "$here/bin/carboy-bench" "$@" &
bench=$!
rc=0
wait "$bench" || rc=$?
bench=
exit "$rc"
