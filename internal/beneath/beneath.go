// Package beneath is how names are used in a directory that a guest can
// change, in the guest and on the host: from an open directory, with the
// kernel's own guard against leaving it (openat2). It refuses to do without:
// where the kernel has no openat2, every call fails.
//
// What a user names starts at Parent, for no name of it is an open directory yet.
//
// Package os has Root for this. It takes one name at a time and relies on
// O_NOFOLLOW with O_DIRECTORY, by which gVisor follows a link all the same,
// so that inside that wall a link leads out of a Root. And it follows links
// that stay inside, which a guest that made them may have lead anywhere there.
package beneath

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// retries bounds the attempts at a path that others keep renaming.
const retries = 64

// Open opens rel, which may lead through links as long as each stays below
// dir; one that does not is EXDEV. The descriptor is closed on exec.
func Open(dir int, rel string, flags int) (int, error) {
	return open(dir, rel, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
}

// OpenNoLinks opens rel, in which no part may be a link: one is ELOOP. With
// O_PATH and O_NOFOLLOW the last part may be one, and is what is opened.
func OpenNoLinks(dir int, rel string, flags int) (int, error) {
	if weak.On(weak.LinksFollowed) {
		return unix.Openat(dir, rel, flags|unix.O_CLOEXEC, 0)
	}
	if weak.On(weak.NamesFollowed) {
		return unix.Openat(dir, rel, flags&^unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	return open(dir, rel, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
}

// OpenHere is OpenNoLinks for what is on dir's own mount: anything else is
// EXDEV.
func OpenHere(dir int, rel string, flags int) (int, error) {
	return open(dir, rel, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
}

// OpenInRoot opens p as if dir were the root directory: "/" and ".." in p and
// in links stop there.
func OpenInRoot(dir int, p string, flags int) (int, error) {
	return open(dir, p, flags, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

func open(dir int, p string, flags int, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve}
	for n := 0; ; n++ {
		fd, err := unix.Openat2(dir, p, &how)
		if n < retries && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)) {
			continue
		}
		return fd, err
	}
}
