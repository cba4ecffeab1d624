#!/bin/sh
# Prints the version to stamp into the binary: the tag, or how far from it, or
# the commit; "unknown" outside a git tree.
cd "$(dirname "$0")/.." || exit 1
git describe --tags --always --dirty 2>/dev/null || echo unknown
