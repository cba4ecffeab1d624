package sandbox

import (
	"errors"
	"syscall"
)

// DiskError makes an error of a disk that is full, or that can't be written at
// all, one that a user may read, and which says which: what, such as "the disk of
// /var/lib/x". Any other error, and nil, it returns as it is.
func DiskError(err error, what string) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	switch {
	case IsDiskFull(err):
		return &Error{Kind: Exhausted, Msg: what + " is full", Hint: "free some space there, then try again", Err: err}
	case errors.Is(err, syscall.EROFS):
		return &Error{Kind: Unavailable, Msg: what + " is read-only", Hint: "the kernel's log may say why; mount it anew so that it can be written", Err: err}
	}
	return err
}

// IsDiskFull reports whether err is of a disk that is full.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
