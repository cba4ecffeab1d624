package tree

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxXattr is the kernel's own bound of a value, and of a list of names.
const maxXattr = 64 << 10

// object is a file by a path that leads through no link but the kernel's own
// to a descriptor.
type object interface {
	path() (path string, follow bool)
}

type openFile struct{ f *os.File }

func byFile(f *os.File) object { return openFile{f} }

func (o openFile) path() (string, bool) { return fmt.Sprintf("/proc/self/fd/%d", o.f.Fd()), true }

// named is what can't be opened.
type named struct {
	dir  *os.File
	name string
}

func (o named) path() (string, bool) {
	return fmt.Sprintf("/proc/self/fd/%d/%s", o.dir.Fd(), o.name), false
}

// attributes gives dst what src has, of which st was read before: a change of
// owner takes set-id bits and capabilities away, so that comes first.
func (c *copier) attributes(src, dst object, st *unix.Stat_t) error {
	path, follow := dst.path()
	flags := unix.AT_SYMLINK_NOFOLLOW
	if follow {
		flags = 0
	}
	if err := unix.Fchownat(unix.AT_FDCWD, path, int(st.Uid), int(st.Gid), flags); err != nil {
		return fmt.Errorf("give it its owner: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Fchmodat(unix.AT_FDCWD, path, st.Mode&0o7777, 0); err != nil {
			return fmt.Errorf("give it its mode: %w", err)
		}
	}
	if err := c.xattrs(src, dst); err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, times, flags); err != nil {
		return fmt.Errorf("give it its times: %w", err)
	}
	return nil
}

func (c *copier) xattrs(src, dst object) error {
	names, err := listXattrs(src)
	if errors.Is(err, unix.ENOENT) {
		return ErrChanged
	}
	if err != nil {
		return fmt.Errorf("read its attributes: %w", err)
	}
	to, follow := dst.path()
	for _, name := range names {
		as, err := c.options.rename(name)
		if err != nil {
			return err
		}
		if as == "" {
			continue
		}
		value, err := getXattr(src, name)
		if err != nil {
			return fmt.Errorf("read its attribute %q: %w", name, err)
		}
		set := unix.Lsetxattr
		if follow {
			set = unix.Setxattr
		}
		if err := set(to, as, value, 0); err != nil {
			return fmt.Errorf("give it its attribute %q: %w", as, err)
		}
	}
	return nil
}

// The marks of overlays, after "trusted.overlay." or "user.overlay.".
const (
	markEscaped = "overlay." // one that was set through an overlay, and is none to it
	markOpaque  = "opaque"
	markWhite   = "whiteout"
)

// local are marks that mean something only in the layer of one overlay: what a
// file was copied from, and how that is known again.
var local = map[string]bool{"origin": true, "impure": true, "nlink": true, "upper": true, "uuid": true, "protattr": true}

// rename returns what an attribute is called in a copy; "" for one that stays
// behind.
func (o Options) rename(name string) (string, error) {
	prefix := "trusted.overlay."
	if o.UserXattr {
		prefix = "user.overlay."
	}
	mark, ok := strings.CutPrefix(name, prefix)
	switch {
	case !ok && strings.HasPrefix(name, "security.") && name != "security.capability":
		return "", nil // the host's own labels
	case !ok:
		return name, nil
	case o.Plain:
		return prefix + markEscaped + mark, nil
	case mark == markOpaque, mark == markWhite, strings.HasPrefix(mark, markEscaped):
		return name, nil
	case local[mark]:
		return "", nil
	}
	return "", fmt.Errorf("an overlay's mark that is not known: %q", name)
}

func listXattrs(o object) ([]string, error) {
	path, follow := o.path()
	list := unix.Llistxattr
	if follow {
		list = unix.Listxattr
	}
	n, err := list(path, nil)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	buf := make([]byte, maxXattr)
	if n, err = list(path, buf); err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(buf[:n], []byte{0}) {
		if len(name) > 0 {
			names = append(names, string(name))
		}
	}
	return names, nil
}

func getXattr(o object, name string) ([]byte, error) {
	path, follow := o.path()
	get := unix.Lgetxattr
	if follow {
		get = unix.Getxattr
	}
	n, err := get(path, name, nil)
	if err != nil || n == 0 {
		return nil, err
	}
	value := make([]byte, n)
	if n, err = get(path, name, value); err != nil {
		return nil, err
	}
	return value[:n], nil
}
