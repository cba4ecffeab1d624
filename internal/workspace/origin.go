package workspace

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Origin identifies what of a base something in its view began as, whatever both are called by now: a
// digest of the file handle, which a file system never gives to another. The zero Origin is unknown: the file
// system gives no handles, or it was a file of several names, of which the kernel keeps none.
type Origin [12]byte

// IsZero reports whether o is unknown.
func (o Origin) IsZero() bool { return o == Origin{} }

// String returns o as the stream has it.
func (o Origin) String() string { return base64.RawStdEncoding.EncodeToString(o[:]) }

// MarshalText writes o as String does.
func (o Origin) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText is the opposite.
func (o *Origin) UnmarshalText(b []byte) (err error) {
	*o, err = parseOrigin(string(b))
	return err
}

// parseOrigin is the opposite of String.
func parseOrigin(s string) (o Origin, err error) {
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil || len(b) != len(o) {
		return Origin{}, fmt.Errorf("%d bytes are no origin", len(b))
	}
	copy(o[:], b)
	return o, nil
}

func newOrigin(typ byte, id []byte) (o Origin) {
	sum := sha256.Sum256(append([]byte{typ}, id...))
	copy(o[:], sum[:])
	return o
}

// The header of the handle that overlayfs keeps: version, a magic byte, the length of all, flags, the
// handle's type, and the file system's UUID.
const (
	handleHeader = 21
	handleMagic  = 0xfb
)

// originNames are the attributes that hold a handle of what something was copied up from: a directory has the first, what is
// none either of them.
var originNames = [...]string{xattrOrigin, xattrCopyOf}

// originOf returns what an open directory of an upper layer was copied up from.
func originOf(d *os.File) Origin {
	var b [256]byte
	n, err := unix.Fgetxattr(int(d.Fd()), xattrOrigin, b[:])
	if err != nil {
		return Origin{}
	}
	return readOrigin(b[:n])
}

// originAt is originOf for what is no directory and is not opened.
func originAt(dir *os.File, name string) Origin {
	var b [256]byte
	for _, attr := range originNames {
		if n, err := unix.Lgetxattr(fdPath(dir)+"/"+name, attr, b[:]); err == nil {
			return readOrigin(b[:n])
		}
	}
	return Origin{}
}

func readOrigin(b []byte) Origin {
	if len(b) <= handleHeader || b[0] != 0 || b[1] != handleMagic || int(b[2]) != len(b) {
		return Origin{}
	}
	return newOrigin(b[4], b[handleHeader:])
}

// identify returns the Origin that a copy of name in dir has; "" is dir itself.
func identify(dir *os.File, name string) Origin {
	flags := 0
	if name == "" {
		flags = unix.AT_EMPTY_PATH
	}
	h, _, err := unix.NameToHandleAt(int(dir.Fd()), name, flags)
	if err != nil || h.Size() == 0 {
		return Origin{}
	}
	return newOrigin(byte(h.Type()), h.Bytes())
}

// hasMark reports whether a directory of an upper layer was made whole by the one that mark names.
func hasMark(d *os.File, mark string) bool {
	if mark == "" {
		return false
	}
	b := make([]byte, maxMark)
	n, err := unix.Fgetxattr(int(d.Fd()), xattrWhole, b)
	return err == nil && string(b[:n]) == mark
}

// maxMark bounds a mark's bytes.
const maxMark = 128

// removeAttribute removes an attribute that may not be there.
func removeAttribute(f *os.File, name string) error {
	if err := unix.Fremovexattr(int(f.Fd()), name); err != nil && !errors.Is(err, unix.ENODATA) {
		return err
	}
	return nil
}
