package disk

import (
	"errors"

	"golang.org/x/sys/unix"
)

// leastRoom is what is too little for a database's log, in bytes.
const leastRoom = 128 << 10

// Full reports whether the file system of a directory has next to no room, or
// can have no more files. Who has used up a quota of it is not seen.
func Full(dir string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false
	}
	noFiles := st.Files > 0 && st.Ffree == 0 // some have as many as there is room for
	// Not all that is free can be had: ext4 keeps some even from root.
	return noFiles || Room(dir) < leastRoom
}

// Room is how many bytes can be written to the file system of a directory; of
// one that can't be looked at, as many as there are.
func Room(dir string) uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 1 << 63
	}
	return st.Bavail * uint64(st.Bsize)
}

// ReadOnly reports whether nothing can be written to the file system of a
// directory. One that the kernel found damaged says so only to who tries.
func ReadOnly(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_RDONLY != 0 {
		return true
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_ = unix.Close(fd)
	}
	return errors.Is(err, unix.EROFS)
}
