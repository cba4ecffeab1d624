#!/bin/sh
# Installs the coding agents that test/agents drives, of test/agents/package.json and
# its lock, below the cache, and prints the directory. Each lock has one of its own,
# so that a newer one leaves a run that is under way alone.
set -eu
cd "$(dirname "$0")/../test/agents"

# What would also be run unpinned from the network, or not at all: npm keeps install
# scripts back, so the two that put a program in its place are run by hand.
put='@anthropic-ai/claude-code/install.cjs opencode-ai/postinstall.mjs'

all=${XDG_CACHE_HOME:-$HOME/.cache}/carboy-test/agents
dir=$all/$(cat package.json package-lock.json | sha256sum | cut -c1-16)
if [ ! -e "$dir" ]; then
	command -v npm >/dev/null || {
		echo "scripts/agents.sh: needs npm" >&2
		echo "hint: sudo apt-get install npm" >&2
		exit 1
	}
	mkdir -p "$all"
	part=$(mktemp -d "$all/.part-XXXXXX")
	trap 'rm -rf "$part"' EXIT
	cp package.json package-lock.json "$part"
	# Not npm ci, which wants every machine's build of a program in the lock: a
	# registry may lack those for others. What the lock has is taken as it says.
	(cd "$part" && npm install --ignore-scripts --no-audit --no-fund --loglevel=error >&2)
	for script in $put; do
		(cd "$part/node_modules/$(dirname "$script")" && node "$(basename "$script")" >&2)
	done
	chmod 755 "$part" # sandboxes of every user read it
	mv -T "$part" "$dir" 2>/dev/null || [ -d "$dir" ] # another run was quicker
fi
echo "$dir"
