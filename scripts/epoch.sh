#!/bin/sh
# Prints the time that what is packaged bears, in seconds since 1970:
# SOURCE_DATE_EPOCH, or when the commit was made, or 0 outside a git tree.
cd "$(dirname "$0")/.." || exit 1
echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
