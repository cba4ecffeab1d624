#!/bin/sh
# After a removal: tells systemd. After a purge: removes root's state and
# configuration, in which nothing runs or is mounted any more.
set -eu
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
if [ "${1:-}" = purge ]; then
	rm -rf --one-file-system /var/lib/carboy /var/cache/carboy /run/carboy /etc/carboy
fi
