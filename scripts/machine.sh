#!/bin/sh
# What the tests need of this machine, each thing tried by other means than the
# product's: where all is well here, no test may say that something is missing.
# Programs are scripts/deps.sh's, which comes first.
set -u

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
PATH=$PATH:/usr/sbin:/sbin
rc=0

# needs WHAT HINT COMMAND...: the command ends well, or one line says what to do.
needs() {
	what=$1 hint=$2
	shift 2
	"$@" >"$tmp/said" 2>&1 && return
	echo "scripts/machine.sh: this machine has no $what: $hint ($(tr '\n' ' ' <"$tmp/said"))" >&2
	rc=1
}

# In a mount namespace and a directory of its own.
mounts() {
	unshare --mount sh -euc "cd '$(mktemp -d "$tmp/XXXXXX")' && $1"
}

# A cgroup for an instance is made and removed: in version 1's trees, or in version 2's
# where its controllers are.
cgroups() {
	for dir in memory pids cpu freezer; do
		group=/sys/fs/cgroup/$dir/carboy-probe-$$
		[ -d "/sys/fs/cgroup/$dir" ] && mkdir "$group" && rmdir "$group" || return
	done
}
cgroup2() {
	group=/sys/fs/cgroup/carboy-probe-$$
	grep -qw memory /sys/fs/cgroup/cgroup.controllers && grep -qw pids /sys/fs/cgroup/cgroup.controllers &&
		mkdir "$group" && rmdir "$group"
}
anycgroups() { [ -e /sys/fs/cgroup/cgroup.controllers ] && cgroup2 || cgroups; }
unified() {
	for dir in /sys/fs/cgroup /sys/fs/cgroup/unified; do
		group=$dir/carboy-probe-$$
		[ -e "$dir/cgroup.procs" ] && [ -e "$dir/cgroup.subtree_control" ] && mkdir "$group" && rmdir "$group" && return
	done
	return 1
}

container="in a container, start it with --privileged"

needs "root" "run make test as root" test "$(id -u)" = 0
needs "right to mount" "$container" mounts 'mount -t tmpfs tmpfs .'
needs "overlay file systems" "modprobe overlay; $container" mounts \
	'mount -t tmpfs tmpfs . && cd "$PWD" && mkdir l u w m && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w overlay m'
needs "loop devices with ext4" "modprobe loop; modprobe ext4; $container" mounts \
	'truncate -s 16M f && mkdir m && mkfs.ext4 -q f && mount -o loop f m'
needs "ext4 that can be damaged" "a kernel that has trigger_fs_error in /sys/fs/ext4" mounts \
	'truncate -s 16M f && mkdir m && mkfs.ext4 -q f && mount -o loop f m && test -w "/sys/fs/ext4/$(basename "$(findmnt -no SOURCE m)")/trigger_fs_error"'
needs "cgroups that we may divide" "mount /sys/fs/cgroup writable; $container" anycgroups
needs "cgroup version 2" "mount cgroup2 at /sys/fs/cgroup or at /sys/fs/cgroup/unified; $container" unified
needs "device nodes" "$container" mounts 'mknod n c 1 3 && echo >n'
needs "network interfaces" "modprobe tun; give /dev/net/tun; $container" \
	unshare --net sh -c 'ip tuntap add dev t0 mode tap && ip link set t0 up && ip link set lo up'
needs "user namespaces" "sysctl user.max_user_namespaces=10000 and kernel.unprivileged_userns_clone=1" \
	setpriv --reuid 65534 --regid 65534 --clear-groups unshare --user --map-root-user true
needs "process namespaces" "$container" unshare --pid --fork --mount-proc true
needs "emulated machine" "apt-get install qemu-system-x86" sh -c '[ "$(uname -m)" != x86_64 ] || qemu-system-x86_64 --version'
exit $rc
