#!/bin/sh
# Puts carboy where users find it, or takes it away again: scripts/install.sh
# install|uninstall. PREFIX is where (/usr/local), DESTDIR what is put before
# every path, ZSHDIR where below PREFIX zsh looks. CARBOY_BUILT has the binary, and
# share/ with what make share makes (bin).
#
# State is no part of it: carboy uninstall, before, removes a user's.
set -eu
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local}
built=${CARBOY_BUILT:-bin}
zsh=${ZSHDIR:-share/zsh/site-functions}
to=${DESTDIR:-}$prefix

put() { # mode, file, where below the prefix
	mkdir -p "$to/$(dirname "$3")"
	# By another name first: a binary that runs goes on as it is.
	install -m "$1" "$2" "$to/$3.new"
	mv -f "$to/$3.new" "$to/$3"
}

unit() { # file, where below the prefix
	mkdir -p "$to/$(dirname "$2")"
	sed "s|@BINDIR@|$prefix/bin|" "packaging/systemd/$1" >"$to/$2.new"
	chmod 644 "$to/$2.new"
	mv -f "$to/$2.new" "$to/$2"
}

put_all() {
	put 755 "$built/carboy" bin/carboy
	for page in "$built"/share/man/*.1; do
		put 644 "$page" "share/man/man1/${page##*/}"
	done
	put 644 "$built/share/completions/carboy" share/bash-completion/completions/carboy
	put 644 "$built/share/completions/_carboy" "$zsh/_carboy"
	put 644 "$built/share/completions/carboy.fish" share/fish/vendor_completions.d/carboy.fish
	unit carboy.service lib/systemd/system/carboy.service
	unit carboy-user.service lib/systemd/user/carboy.service
	put 644 LICENSE share/doc/carboy/LICENSE
	put 644 "$built/share/THIRD-PARTY-LICENSES" share/doc/carboy/THIRD-PARTY-LICENSES
}

take_all() {
	rm -f "$to/bin/carboy" "$to"/share/man/man1/carboy.1 "$to"/share/man/man1/carboy-*.1 \
		"$to/share/bash-completion/completions/carboy" "$to/$zsh/_carboy" "$to/share/fish/vendor_completions.d/carboy.fish" \
		"$to/lib/systemd/system/carboy.service" "$to/lib/systemd/user/carboy.service" \
		"$to/share/doc/carboy/LICENSE" "$to/share/doc/carboy/THIRD-PARTY-LICENSES"
	rmdir "$to/share/doc/carboy" 2>/dev/null || true
}

case ${1:-} in
install)
	for f in "$built/carboy" "$built/share/THIRD-PARTY-LICENSES"; do
		[ -e "$f" ] || {
			echo "scripts/install.sh: $f is not there" >&2
			echo "hint: make build share" >&2
			exit 1
		}
	done
	put_all
	;;
uninstall) take_all ;;
*)
	echo "usage: scripts/install.sh install|uninstall" >&2
	exit 2
	;;
esac
