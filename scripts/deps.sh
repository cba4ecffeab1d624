#!/bin/sh
# Installs what the tests need and this machine lacks: Debian packages, where
# we are root, and the clients of npm that test/e2b drives. Run again, it does
# nothing.
set -eu
cd "$(dirname "$0")/.."

# A command, and the Debian package that has it.
needed='
busybox busybox-static
chromium chromium
curl curl
getent libc-bin
git git
ip iproute2
losetup mount
mkfs.ext4 e2fsprogs
mkfs.xfs xfsprogs
newuidmap uidmap
npm npm
openssl openssl
ps procps
qemu-system-x86_64 qemu-system-x86
python3 python3
sshd openssh-server
tini tini
unshare util-linux
'

# A module of the machine's own Python, and the package that has it.
modules='
ipykernel python3-ipykernel
matplotlib python3-matplotlib
pandas python3-pandas
'

missing() {
	echo "$needed" | while read -r command package; do
		[ -z "$command" ] || command -v "$command" >/dev/null || echo "$package"
	done
	echo "$modules" | while read -r module package; do
		[ -z "$module" ] || [ -e "/usr/lib/python3/dist-packages/$module" ] || echo "$package"
	done
}

# Debian keeps some of them where only root's PATH leads.
PATH=$PATH:/usr/sbin:/sbin
packages=$(missing)
if [ -n "$packages" ]; then
	# shellcheck disable=SC2086 # one word for each package
	set -- $packages
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "scripts/deps.sh: the tests need $*" >&2
		echo "hint: sudo apt-get install $*" >&2
		exit 1
	fi
	echo "scripts/deps.sh: installing $*" >&2
	export DEBIAN_FRONTEND=noninteractive
	# What is a server is not to serve: tests start their own.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		trap 'rm -f "$policy"' EXIT
		printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
	fi
	install="apt-get install -qq -y --no-install-recommends $*"
	# The package lists may be missing or too old to install from.
	$install >/dev/null 2>&1 || { apt-get update -qq && $install >/dev/null; }
	packages=$(missing)
	if [ -n "$packages" ]; then
		echo "scripts/deps.sh: still missing:" $packages >&2
		exit 1
	fi
fi

# The kernel that test/vm boots: Debian's for machines in a cloud, of the release
# that is installed here. It is unpacked, and not installed.
kernels=${XDG_CACHE_HOME:-$HOME/.cache}/carboy-test/kernel

kernel() {
	apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2; exit }'
}

unpack() {
	mkdir -p "$kernels"
	part=$(mktemp -d "$kernels/.part-XXXXXX")
	if (cd "$part" && apt-get download -qq "$1" >/dev/null 2>&1 && dpkg -x ./*.deb new); then
		chmod 755 "$part/new"
		mv -T "$part/new" "$kernels/$1" 2>/dev/null || true # another run was quicker
	fi
	rm -rf "$part"
	[ -d "$kernels/$1/boot" ]
}

if [ "$(uname -m)" = x86_64 ] && command -v apt-get >/dev/null; then
	name=$(kernel)
	if [ -z "$name" ] && [ "$(id -u)" = 0 ]; then
		apt-get update -qq
		name=$(kernel)
	fi
	if [ ! -d "$kernels/${name:-none}/boot" ]; then
		echo "scripts/deps.sh: unpacking ${name:-a kernel}" >&2
		unpack "$name" || { apt-get update -qq && name=$(kernel) && unpack "$name"; } ||
			ls "$kernels"/*/boot >/dev/null 2>&1 || { # an older one will do
			echo "scripts/deps.sh: there is no kernel for test/vm: apt-get download ${name:-linux-image-cloud-amd64} fails" >&2
			exit 1
		}
	fi
fi

# npm ci starts by deleting everything: leave a tree alone that is this lock's.
cd test/e2b
if ! cmp -s package-lock.json node_modules/.installed-lock; then
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
	cp package-lock.json node_modules/.installed-lock
fi
