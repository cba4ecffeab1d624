#!/bin/sh
# Puts the rules of gitleaks where package gitgate/scan embeds them, with their licence,
# from its published module. They are data: nothing of the module is compiled or linked.
set -eu
cd "$(dirname "$0")/.."
module=github.com/zricethezav/gitleaks/v8@v8.30.1
sum=h1:PmEvCfVI7ti9dV3s5aMZUY7sS2GxRvG3yzih7E+cS3w=
to=internal/gitgate/scan/rules

[ -f $to/rules.toml ] && [ "$(cat $to/.of 2>/dev/null)" = "$module $sum" ] && exit
json=$(go mod download -json $module)
field() { printf '%s\n' "$json" | sed -n "s/^.*\"$1\": \"\\(.*\\)\",\\{0,1\\}\$/\\1/p"; }
if [ "$(field Sum)" != $sum ]; then
	echo "scripts/rules.sh: $module is not what it was: $(field Sum)" >&2
	exit 1
fi
dir=$(field Dir)
mkdir -p $to
install -m 644 "$dir/config/gitleaks.toml" $to/rules.toml
install -m 644 "$dir/LICENSE" $to/LICENSE
echo "$module $sum" >$to/.of
