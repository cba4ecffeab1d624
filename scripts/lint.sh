#!/bin/sh
# The gates that need nothing but Go: format, vet, staticcheck, the scripts'
# syntax. All of them run; the exit code says whether each was content.
#
#	scripts/lint.sh [quick]
#
# quick is without staticcheck, which reads all dependencies a second time.
set -u
cd "$(dirname "$0")/.." || exit 1
rc=0

# Directories, not files: so generated code is left as its generator wrote it.
unformatted=$(go tool gofumpt -l api client contrib cmd internal test) || rc=1
if [ -n "$unformatted" ]; then
	echo "not formatted; run: go tool gofumpt -w" $unformatted >&2
	rc=1
fi

go vet ./... || rc=1
[ "${1:-}" = quick ] || go tool staticcheck ./... || rc=1

for f in .ci/run scripts/*.sh packaging/scripts/*.sh; do
	case $(head -n 1 "$f") in
	*bash) bash -n "$f" || rc=1 ;;
	*) sh -n "$f" || rc=1 ;;
	esac
done
if command -v shellcheck >/dev/null; then
	shellcheck .ci/run scripts/*.sh packaging/scripts/*.sh || rc=1
fi

exit $rc
