#!/bin/sh
# Prints the version to stamp into the binary: CARBOY_VERSION, or the tag, or how far
# from it, or the commit; "unknown" outside a git tree. With --package it is as
# packages have it, where each is newer than those before: 1.2.3, 1.2.3~rc1,
# 1.2.3+4.gabcdef0, or the commit's time and name where there is no tag.
cd "$(dirname "$0")/.." || exit 1
version=${CARBOY_VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo unknown)}
if [ "${1:-}" != --package ]; then
	echo "$version"
	exit
fi
case $version in
v[0-9]*) echo "${version#v}" | sed 's/-\([0-9][0-9]*\)-g/+\1.g/; s/-dirty$/+dirty/; s/-/~/g' ;;
*) echo "0~$(date -u -d "@$(scripts/epoch.sh)" +%Y%m%d%H%M%S).$(echo "$version" | tr - +)" ;;
esac
