#!/bin/sh
# Builds a release of the commit that is checked out: scripts/release.sh [DIR]. In
# DIR (bin/release) are then, for each of ARCHES (amd64 arm64), an archive, a .deb, an
# .rpm and a bill of materials of each program, and for all of them a statement of provenance and a
# list of digests. The same commit, toolchain and modules give the same bytes; scripts/
# release-check.sh compares.
#
# Nothing is signed: a signature of SHA256SUMS, which stands for all the rest, is its
# publisher's, and belongs beside it as SHA256SUMS.asc or SHA256SUMS.sig.
set -eu
cd "$(dirname "$0")/.."
out=${1:-bin/release}
arches=${ARCHES:-amd64 arm64}

if [ -n "$(git status --porcelain)" ]; then
	echo "scripts/release.sh: there are changes that no commit has" >&2
	echo "hint: git status" >&2
	exit 1
fi
commit=$(git rev-parse HEAD)
CARBOY_VERSION=$(scripts/version.sh)
SOURCE_DATE_EPOCH=$(scripts/epoch.sh)
CGO_ENABLED=0
GOFLAGS="-trimpath -buildvcs=false"
GOOS=linux
LC_ALL=C
TZ=UTC
export CARBOY_VERSION SOURCE_DATE_EPOCH CGO_ENABLED GOFLAGS LC_ALL TZ
umask 022
version=$(scripts/version.sh --package)

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

# In a tree of its own: what is embedded is built for each architecture, and must not
# stay in this one.
mkdir "$tmp/src"
git archive HEAD | tar -x -C "$tmp/src"
cd "$tmp/src"
tool() { go tool -modfile=packaging/tools/go.mod "$@"; }
go run ./cmd/carboy-manual "$CARBOY_VERSION" "$tmp/share"

archive() { # stage, name
	mv "$1/usr/local" "$1/$2"
	cp LICENSE README.md docs/install.md "$1/$2/share/doc/carboy/"
	tar --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$1" -cf - "$2" |
		gzip -9n >"$out/$2.tar.gz"
}

package() { # stage, architecture
	gzip -9n "$1"/usr/share/man/man1/*.1
	# Debian's own place for it, and what its policy asks for.
	mv "$1/usr/share/zsh/site-functions" "$1/usr/share/zsh/vendor-completions"
	cat LICENSE "$1/usr/share/doc/carboy/THIRD-PARTY-LICENSES" >"$1/usr/share/doc/carboy/copyright"
	rm "$1/usr/share/doc/carboy/LICENSE" "$1/usr/share/doc/carboy/THIRD-PARTY-LICENSES"
	sed "s|@ARCH@|$2|; s|@VERSION@|$version|; s|@STAGE@|$1|; s|@TIME@|$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)|" \
		packaging/nfpm.yaml >"$tmp/nfpm-$2.yaml"
	find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	tool nfpm package --config "$tmp/nfpm-$2.yaml" --packager deb --target "$out/carboy_${version}_$2.deb" >&2
	mv "$1/usr/share/zsh/vendor-completions" "$1/usr/share/zsh/site-functions"
	find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	machine=x86_64
	[ "$2" = amd64 ] || machine=aarch64
	tool nfpm package --config "$tmp/nfpm-$2.yaml" --packager rpm --target "$out/carboy-$version-1.$machine.rpm" >&2
}

for arch in $arches; do
	echo "scripts/release.sh: $arch" >&2
	built=$tmp/$arch
	GOOS=$GOOS GOARCH=$arch make -s build PACKING=-best BIN="$built"
	cp -r "$tmp/share" "$built/share"
	scripts/third-party.sh "$built/carboy" "$built"/programs/carboy-* internal/guest/*/bin/carboy-* >"$built/share/THIRD-PARTY-LICENSES"
	CARBOY_BUILT=$built DESTDIR=$tmp/archive-$arch PREFIX=/usr/local scripts/install.sh install
	archive "$tmp/archive-$arch" "carboy_${version}_linux_$arch"
	CARBOY_BUILT=$built DESTDIR=$tmp/package-$arch PREFIX=/usr scripts/install.sh install
	package "$tmp/package-$arch" "$arch"
	for p in "$built/carboy" "$built"/programs/carboy-*; do # it carries these
		tool cyclonedx-gomod bin -json -noserial -notimestamp -std -version "$CARBOY_VERSION" \
			-output "$out/${p##*/}_${version}_linux_$arch.cdx.json" "$p" >&2
	done
done

cd "$out"
(cd "$tmp/src" && go run ./cmd/carboy-provenance "$commit" "$CARBOY_VERSION" "CGO_ENABLED=0 GOFLAGS=$GOFLAGS -ldflags=-s -w" "$out"/carboy*) >"$tmp/provenance"
mv "$tmp/provenance" provenance.intoto.json
sha256sum carboy* provenance.intoto.json >SHA256SUMS
ls -l >&2
