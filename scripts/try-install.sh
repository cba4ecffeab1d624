#!/bin/sh
# Tries what docs/install.md says in a clean, minimal tree of Debian's: scripts/try-install.sh
# [BASE]. BASE is what debootstrap --variant=minbase made, and is only copied; without
# it one is made. Needs root, debootstrap and some minutes; what it makes is gone
# afterwards.
#
# The tree is entered in mount and process namespaces of its own, and has this
# machine's Go, the modules that it has fetched, and its way to Debian's packages.
set -eu
cd "$(dirname "$0")/.."
suite=${SUITE:-bookworm}
tmp=$(mktemp -d)
trap 'rm -rf --one-file-system "$tmp"' EXIT
trap 'exit 130' INT TERM
tree=$tmp/tree

say() { echo "scripts/try-install.sh: $*" >&2; }

[ "$(id -u)" = 0 ] || {
	say "needs root"
	exit 1
}
if [ -n "${1:-}" ]; then
	cp -a "$1" "$tree"
else
	say "a tree of $suite"
	debootstrap --variant=minbase --include=ca-certificates "$suite" "$tree" >"$tmp/log" 2>&1 || {
		tail -n 20 "$tmp/log" >&2
		exit 1
	}
fi

# The same commit, as two versions.
mkdir -p "$tree/try"
for version in 0.0.1 0.0.2; do
	say "packages of version $version"
	ARCHES=$(go env GOARCH) CARBOY_VERSION=v$version scripts/release.sh "$tmp/$version" >"$tmp/log" 2>&1 || {
		tail -n 20 "$tmp/log" >&2
		exit 1
	}
	cp "$tmp/$version"/*.deb "$tree/try/carboy_$version.deb"
done
git clone -q --no-hardlinks . "$tree/try/carboy"
cp scripts/try-install-inside.sh "$tree/try/inside.sh"

# The way to packages, as this machine has it.
cp -L /etc/resolv.conf /etc/hosts "$tree/etc/"
rm -rf "$tree/etc/apt/sources.list" "$tree/etc/apt/sources.list.d" "$tree/etc/apt/apt.conf.d"
cp -r /etc/apt/sources.list.d /etc/apt/apt.conf.d "$tree/etc/apt/"
[ ! -e /etc/apt/sources.list ] || cp /etc/apt/sources.list "$tree/etc/apt/"
cp -r /usr/share/keyrings/. "$tree/usr/share/keyrings/" 2>/dev/null || true
cp -r /etc/ssl/certs/. "$tree/etc/ssl/certs/" 2>/dev/null || true

mkdir -p "$tree/goroot" "$tree/root/go/pkg/mod" "$tree/root/.cache/go-build" "$tmp/up/mod" "$tmp/up/build" "$tmp/work/mod" "$tmp/work/build"
goroot=$(go env GOROOT) modules=$(go env GOMODCACHE) cache=$(go env GOCACHE)
export tree tmp goroot modules cache
say "entering it"
unshare --mount --pid --fork --kill-child --propagation private sh -eu -c '
	mount --bind "$tree" "$tree"
	mount --bind -o ro "$goroot" "$tree/goroot"
	mount -t overlay -o "lowerdir=$modules,upperdir=$tmp/up/mod,workdir=$tmp/work/mod" overlay "$tree/root/go/pkg/mod"
	mount -t overlay -o "lowerdir=$cache,upperdir=$tmp/up/build,workdir=$tmp/work/build" overlay "$tree/root/.cache/go-build"
	mount -t proc proc "$tree/proc"
	mount --rbind /sys "$tree/sys"
	mount --rbind /dev "$tree/dev"
	mount -t tmpfs -o mode=755 tmpfs "$tree/run"
	cd "$tree"
	mkdir host
	pivot_root . host
	umount -l /host
	rmdir /host
	cd /
	exec env -i PATH=/goroot/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
		DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
		GOPROXY=off sh -eu /try/inside.sh
'
say "all of it held"
