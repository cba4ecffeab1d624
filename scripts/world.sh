#!/bin/sh
# Runs a command in a world that ends with it, or with whoever asked, however that ends:
#
#	scripts/world.sh COMMAND ARGUMENT...
#
# The world has process IDs, mounts, IPC and a /dev/shm that nobody outside sees: what tests
# leave running ends with it. Temporary files lie below TMPDIR, a directory that all users
# may enter, and that is made in CARBOY_WORLDS (/tmp).
#
# What a world leaves behind that was killed, the next one removes before it begins: its
# directory, loop devices of what is in there, and cgroups of a Carboy (CARBOY_GROUPS) that
# has had no process for a minute. While another world stands, nothing is removed.
set -eu

# The kernel ends this when its parent ends, what this has started when this ends, and all
# processes of a namespace when the first of them ends.
mortal="setpriv --pdeathsig KILL"
if [ -z "${CARBOY_MORTAL:-}" ]; then
	CARBOY_MORTAL=1 exec $mortal sh "$0" "$@"
fi
unset CARBOY_MORTAL

worlds=${CARBOY_WORLDS:-/tmp}

# remove DIRECTORY...: with the loop devices of what is in there.
remove() {
	for dir; do
		losetup --list --noheadings --raw --output NAME,BACK-FILE | while read -r device file; do
			case $file in "$dir"/*) losetup --detach "$device" ;; esac
		done
		rm -rf --one-file-system "$dir"
	done
}

sweep() {
	# shellcheck disable=SC2046 # mktemp's names have no spaces
	remove $(find "$worlds" -maxdepth 1 -name 'cw.*' -user "$(id -u)")
	# Where one process is left, in whichever hierarchy, empty groups are in use, too: by a
	# Carboy outside of any world.
	find /sys/fs/cgroup -type d -mmin +1 -path "${CARBOY_GROUPS:-*/carboy/*}" -prune -print | while read -r top; do
		one=$(find /sys/fs/cgroup -path "*/carboy/${top##*/}/*" -name cgroup.procs -exec cat {} + | head -c 1)
		[ -n "$one" ] || find "$top" -depth -type d -mmin +1 -exec rmdir {} \;
	done 2>/dev/null
}

# Every world that stands shares this lock. Nothing in it has the descriptor.
exec 8>"$worlds/carboy-worlds.lock"
if flock --nonblock 8; then
	sweep || true
fi
flock --shared 8

TMPDIR=$(mktemp -d "$worlds/cw.XXXXXX")
export TMPDIR
chmod 755 "$TMPDIR"

rc=0
# The first process sees to those that have lost their parent.
# shellcheck disable=SC2016,SC2086 # it is expanded inside; two words and more
$mortal unshare --pid --fork --kill-child --mount --mount-proc --ipc sh -euc '
	mount -t tmpfs -o mode=1777 tmpfs /dev/shm
	exec tini -g -- "$@"' sh "$@" 8>&- || rc=$?
remove "$TMPDIR"
exit $rc
