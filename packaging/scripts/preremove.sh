#!/bin/sh
# Before a removal: ends root's sandboxes and daemon, and keeps their files. An
# upgrade ends nothing.
set -eu
case ${1:-} in
upgrade | failed-upgrade | 1) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now carboy.service || true
fi
if [ -d /var/lib/carboy ]; then
	# The system's home, whatever variables the caller has.
	env -u XDG_STATE_HOME -u XDG_RUNTIME_DIR -u XDG_CACHE_HOME -u XDG_CONFIG_HOME /usr/bin/carboy uninstall --stop || {
		echo "carboy: root's sandboxes could not all be ended; to see them: carboy ls" >&2
		exit 1
	}
	echo "carboy: root's sandboxes were ended, and their files stay in /var/lib/carboy" >&2
fi
echo "carboy: what other users run goes on; each has: carboy uninstall" >&2
