#!/bin/sh
# After an install or upgrade: tells systemd of the unit, and restarts nothing. What
# runs goes on with the program that it was started from.
set -eu
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
