package ext4

import (
	"errors"
	"fmt"
)

// What an Error is about, for errors.Is. A name that is missing is fs.ErrNotExist.
var (
	// ErrDamaged is of an image that contradicts itself or the format.
	ErrDamaged = errors.New("damaged")
	// ErrUnsupported is of what the format has and this package does not read.
	ErrUnsupported = errors.New("not supported")
	// ErrNotDirectory is of a path that goes on after something else.
	ErrNotDirectory = errors.New("not a directory")
	// ErrLinks is of a path with too many symbolic links.
	ErrLinks = errors.New("too many symbolic links")
)

// Error says what is wrong with an image, and where.
type Error struct {
	Inode  uint32 // 0 where it is about the file system as a whole
	Kind   error  // one of those above, or an error of reading
	Detail string
}

// Error is the inode, the kind and the detail.
func (e *Error) Error() string {
	where := "file system"
	if e.Inode != 0 {
		where = fmt.Sprintf("inode %d", e.Inode)
	}
	if e.Detail == "" {
		return fmt.Sprintf("%s: %v", where, e.Kind)
	}
	return fmt.Sprintf("%s: %v: %s", where, e.Kind, e.Detail)
}

// Unwrap is the kind.
func (e *Error) Unwrap() error { return e.Kind }

func damaged(ino uint32, format string, args ...any) error {
	return &Error{ino, ErrDamaged, fmt.Sprintf(format, args...)}
}

func unsupported(ino uint32, format string, args ...any) error {
	return &Error{ino, ErrUnsupported, fmt.Sprintf(format, args...)}
}

// within names the inode of an error of reading; one that is an Error of its own keeps its place
// unless that is the file system as a whole.
func within(ino uint32, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Inode != 0 {
			return err
		}
		return &Error{ino, e.Kind, e.Detail}
	}
	return &Error{Inode: ino, Kind: err}
}
