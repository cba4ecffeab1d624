#!/bin/sh
# What scripts/try-install.sh does inside its tree.
set -eu
step() { echo "==> $*"; }
fail() {
	echo "FAILED: $*" >&2
	exit 1
}
as() { # user, command: with a login's environment, and no more
	su - "$1" -c "$2"
}
# What runs of carboy's, by /proc: a minimal tree has no ps.
runs() { grep -lz -e carboy -e runsc /proc/[0-9]*/cmdline 2>/dev/null || true; }
# An apt that says nothing but what goes wrong.
apt_get() { apt-get -qq -y -o Dpkg::Use-Pty=0 "$@" >/tmp/apt.log 2>&1 || {
	cat /tmp/apt.log >&2
	fail "apt-get $*"
}; }

step "git and make, and no Python"
apt_get update
apt_get install --no-install-recommends git make
! command -v python3 >/dev/null || fail "this tree is not minimal"

step "README's first command"
cd /try/carboy
first=$(sed -n 's/^\$ \(make build && .*\)/\1/p' README.md | head -n 1)
echo "\$ $first"
sh -c "$first" | tee /tmp/first
grep -q gvisor /tmp/first || fail "that is not gVisor"
bin/carboy uninstall --yes >/dev/null

step "make install, and uninstall"
make -s share
make -s install
carboy version
make -s uninstall
[ -z "$(find /usr/local -name '*carboy*')" ] || fail "make uninstall left $(find /usr/local -name '*carboy*')"
cd /

step "the .deb, with apt"
apt_get install /try/carboy_0.0.1.deb
carboy version
useradd -m -s /bin/sh dev
grep dev /etc/subuid
carboy doctor | head -n 5
as dev "carboy doctor" | head -n 5

step "a run as root and as an ordinary user, behind both walls"
for user in root dev; do
	for wall in gvisor process; do
		got=$(as $user "carboy run --isolation $wall -- sh -c 'echo works; id -u'" | tr '\n' ' ')
		[ "$got" = "works 1000 " ] || fail "$user, $wall: $got"
		echo "$user $wall: $got"
	done
done

step "an upgrade under sandboxes that run"
for user in root dev; do
	for wall in gvisor process; do
		as $user "carboy create --isolation $wall --name $wall; carboy exec $wall -- sh -c 'echo kept >file'" >/dev/null
		as $user "carboy exec $wall -- sh -c 'for i in \$(seq 120); do echo \$i; sleep 0.25; done'" >/tmp/out-$user-$wall &
	done
done
sleep 2
apt_get install /try/carboy_0.0.2.deb
for user in root dev; do
	for wall in gvisor process; do
		tail -n 1 /tmp/out-$user-$wall | grep -qx 120 && fail "it ended before the upgrade did: nothing was tried"
		# By the old daemon, with the new program; then by the new one.
		[ "$(as $user "carboy exec $wall -- cat file" 2>/dev/null)" = kept ] || fail "$user, $wall: after the upgrade"
	done
	as $user "carboy version; carboy daemon stop; carboy ls; carboy version"
	for wall in gvisor process; do
		[ "$(as $user "carboy exec $wall -- cat file")" = kept ] || fail "$user, $wall: by the new daemon"
	done
done
wait
for user in root dev; do
	for wall in gvisor process; do
		seq 120 | cmp - /tmp/out-$user-$wall || fail "$user, $wall: output was lost"
		as $user "carboy stop $wall && carboy start $wall" >/dev/null # by the new program alone
		[ "$(as $user "carboy exec $wall -- cat file")" = kept ] || fail "$user, $wall: by the new program"
	done
done
echo "120 lines each, and the files"

step "carboy uninstall, as an ordinary user"
as dev "carboy uninstall --dry-run; carboy uninstall --yes"
[ -z "$(find / -xdev -uid +99999 2>/dev/null | head -n 1)" ] || fail "files of subordinate ids are left"
[ -z "$(find /home/dev -name '*carboy*')" ] || fail "left: $(find /home/dev -name '*carboy*')"

step "apt-get remove, with root's sandboxes running, and purge"
[ -n "$(runs)" ] || fail "nothing runs that a removal could end"
apt_get remove carboy
tail -n 5 /tmp/apt.log
running=$(runs)
[ -z "$running" ] || fail "that runs still: $running"
[ -d /var/lib/carboy/boxes ] || fail "removing took the files of sandboxes"
apt_get purge carboy
left=$(find / -xdev -name '*carboy*' -not -path '/try/*' -not -path '/root/*' -not -path '/tmp/*' -not -path '/proc/*' -not -path '/var/cache/apt/*' 2>/dev/null)
[ -z "$left" ] || fail "left: $left"
! grep carboy /proc/self/mountinfo || fail "mounts are left"
! losetup -a | grep /var/lib/carboy || fail "loop devices are left"
step "nothing is left"
