package beneath

import (
	"os"

	"golang.org/x/sys/unix"
)

// Born returns when what f is was made, in nanoseconds since 1970, or 0 where the
// file system does not tell. No call of a user's sets it.
func Born(f *os.File) int64 { return born(f, "", unix.AT_EMPTY_PATH) }

// BornAt is Born of what has a name in dir: of a link, itself.
func BornAt(dir *os.File, name string) int64 { return born(dir, name, unix.AT_SYMLINK_NOFOLLOW) }

func born(at *os.File, name string, flags int) int64 {
	var st unix.Statx_t
	err := unix.Statx(int(at.Fd()), name, flags, unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}
