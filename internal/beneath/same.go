package beneath

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrAnother is OpenSame's error where the directory is not there any more.
var ErrAnother = errors.New("another has its place, or none")

// OpenSame opens a directory by its path, whose last part is not followed, if it is the one with these numbers. It is open for
// its path alone.
func OpenSame(path string, dev, ino uint64) (*os.File, error) {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, &os.PathError{Op: "open", Path: path, Err: ErrAnother}
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil && (st.Dev != dev || st.Ino != ino) {
		err = ErrAnother
	}
	if err != nil {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return f, nil
}
