package layer

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// below is what the layers below show together, as overlayfs would.
type below struct {
	roots []int  // of their trees, the topmost first, good for a path only
	mark  string // the attribute of an opaque directory
	steps int    // that were taken
	most  int    // that may be taken
}

// openBelow opens the trees of the layers below, which come the lowest first.
func openBelow(dirs []string, mark string, most int) (*below, error) {
	b := &below{mark: mark, most: most}
	for i := range dirs {
		dir := dirs[len(dirs)-1-i]
		fd, err := retry(func() (int, error) {
			return unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
		if err != nil {
			b.close()
			return nil, &os.PathError{Op: "open a layer below", Path: dir, Err: err}
		}
		b.roots = append(b.roots, fd)
	}
	return b, nil
}

func (b *below) close() {
	for _, fd := range b.roots {
		unix.Close(fd)
	}
}

// found is what the layers below have at a path.
type found struct {
	st   unix.Stat_t // Mode is 0 where there is nothing
	tree int         // the topmost one that has it
	// trees are those whose directories are merged into this one, the topmost first.
	trees []int
}

func (f *found) is(what uint32) bool { return kind(&f.st) == what }

// step counts one look at one name. Links can make one name of many.
func (b *below) step() error {
	if b.steps++; b.steps > b.most {
		return refuse("its names lead through links in more than %d steps", b.most)
	}
	return nil
}

// look returns what is at rel. trees are those that show the directory it is in.
func (b *below) look(trees []int, rel string) (f found, err error) {
	for _, t := range trees {
		if err := b.step(); err != nil {
			return found{}, err
		}
		st, opaque, err := b.stat(t, rel)
		switch {
		case is(err, unix.ENOENT):
			continue
		case err != nil:
			return found{}, fmt.Errorf("look at %s in a layer below: %w", quote(rel), err)
		case kind(&st) != unix.S_IFDIR:
			if f.trees == nil && !isWhiteout(&st) {
				f.st, f.tree = st, t
			}
			return f, nil
		}
		if f.trees == nil {
			f.st, f.tree = st, t
		}
		if f.trees = append(f.trees, t); opaque {
			break
		}
	}
	return f, nil
}

// stat looks at rel in one tree, in which a directory may hide those further below.
func (b *below) stat(tree int, rel string) (st unix.Stat_t, opaque bool, err error) {
	err = in(tree, rel, func(dir int, name string) error {
		if st, err = lstat(dir, name); err != nil || kind(&st) != unix.S_IFDIR {
			return err
		}
		opaque, err = isOpaque(dir, name, b.mark)
		return err
	})
	return st, opaque, err
}

// readlink returns the text of the link rel.
func (b *below) readlink(tree int, rel string) (text string, err error) {
	err = in(tree, rel, func(dir int, name string) error {
		text, err = readlink(dir, name)
		return err
	})
	return text, err
}

// in calls do with the directory of a tree that rel is in, open, and rel's name there.
func in(tree int, rel string, do func(dir int, name string) error) error {
	at, name := split(rel)
	if at == "." {
		return do(tree, name)
	}
	dir, err := beneath.OpenHere(tree, at, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return do(dir, name)
}

// isOpaque reports whether a directory has the mark of an opaque one.
func isOpaque(dir int, name, mark string) (bool, error) {
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	var b [2]byte
	n, err := unix.Fgetxattr(fd, mark, b[:])
	if is(err, unix.ENODATA, unix.ENOTSUP, unix.ERANGE, unix.EPERM) {
		return false, nil
	}
	return err == nil && string(b[:n]) == "y", err
}

func readlink(dir int, name string) (string, error) {
	b := make([]byte, maxTarget+1)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil {
		return "", fmt.Errorf("read a link: %w", err)
	}
	return string(b[:n]), nil
}

// copyXattrs gives to the attributes of from that a layer keeps.
func copyXattrs(from, to int) error {
	list := make([]byte, 64<<10) // the kernel's own bound
	n, err := unix.Flistxattr(from, list)
	if is(err, unix.ENOTSUP) || n == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list extended attributes: %w", err)
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") || strings.Contains(name+".", ".overlay.") {
			continue
		}
		size, err := unix.Fgetxattr(from, name, value)
		if err == nil {
			err = unix.Fsetxattr(to, name, value[:size], 0)
		}
		if err != nil {
			return fmt.Errorf("copy an extended attribute: %w", err)
		}
	}
	return nil
}
