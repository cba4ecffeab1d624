package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Replace makes the entries of the tar in r in a new directory, which then
// takes the place of the directory p, in one step where the file system can.
// The old one gets the name keep beside it, where that is not empty, instead
// of what had that name; else it is removed. Where p is not there it is made,
// but not what is above it. Until it succeeds, p stays as it was.
func Replace(ctx context.Context, r io.Reader, p, keep string, o ExtractOptions) (Result, error) {
	base := path.Base(p)
	if base == "/" || base == "." {
		return Result{}, fmt.Errorf("replace %.256q: %w", p, ErrUnsafe)
	}
	above, err := openDestination(path.Dir(p))
	if err != nil {
		return Result{}, err
	}
	defer above.close()
	return ReplaceIn(ctx, r, above.root, base, keep, o)
}

// ReplaceIn is Replace of a name in an open directory.
func ReplaceIn(ctx context.Context, r io.Reader, dir int, base, keep string, o ExtractOptions) (Result, error) {
	if o.MaxEntries <= 0 {
		o.MaxEntries = MaxEntries
	}
	if o.As != "" || !single(base) || keep != "" && !single(keep) || keep == base {
		return Result{}, fmt.Errorf("replace %.256q, and keep the old one as %.256q: %w", base, keep, ErrUnsafe)
	}
	above := &destination{root: dir, dir: -1, own: o.Own}
	name := temporary()
	if err := unix.Mkdirat(above.root, name, newDir); err != nil {
		return Result{}, &os.PathError{Op: "make directory", Path: base, Err: err}
	}
	// It is ours alone until it is whole; then it goes, or what it replaced.
	clean := context.WithoutCancel(ctx)
	res, err := above.fill(ctx, r, name, o)
	if err == nil {
		name, err = above.exchange(name, base)
	}
	if err == nil && keep != "" && name != "" {
		if err = beneath.Remove(clean, above.root, keep); err == nil {
			err = unix.Renameat(above.root, name, above.root, keep)
		}
	}
	if name != "" {
		if rerr := beneath.Remove(clean, above.root, name); err == nil {
			err = rerr
		}
	}
	if err != nil {
		return Result{}, err
	}
	return res, nil
}

// single reports whether a name is one of a directory's own entries.
func single(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// fill extracts into the new directory name, and gives it its owner and mode.
func (t *destination) fill(ctx context.Context, r io.Reader, name string, o ExtractOptions) (Result, error) {
	root, err := beneath.OpenNoLinks(t.root, name, openDir)
	if err != nil {
		return Result{}, &os.PathError{Op: "open", Path: name, Err: err}
	}
	in := &destination{root: root, dir: -1, own: o.Own}
	defer in.close()
	res, err := extract(ctx, r, in, o)
	if err == nil {
		err = t.give(t.root, name)
	}
	if err == nil {
		err = unix.Fchmod(root, impliedDir)
	}
	return res, err
}

// exchange gives the directory from the name to, and returns the name that
// the directory of that name has got; "" where there was none.
func (t *destination) exchange(from, to string) (string, error) {
	var st unix.Stat_t
	err := unix.Fstatat(t.root, to, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		if err := unix.Renameat(t.root, from, t.root, to); err != nil {
			return from, &os.PathError{Op: "rename", Path: to, Err: err}
		}
		return "", nil
	case err != nil:
		return from, &os.PathError{Op: "stat", Path: to, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return from, &os.PathError{Op: "replace", Path: to, Err: unix.ENOTDIR}
	}
	if unix.Renameat2(t.root, from, t.root, to, unix.RENAME_EXCHANGE) == nil {
		return from, nil
	}
	// Some file systems, gVisor's too, exchange nothing.
	old := temporary()
	if err := unix.Renameat(t.root, to, t.root, old); err != nil {
		return from, &os.PathError{Op: "rename", Path: to, Err: err}
	}
	if err := unix.Renameat(t.root, from, t.root, to); err != nil {
		_ = unix.Renameat(t.root, old, t.root, to) // the first error counts
		return from, &os.PathError{Op: "rename", Path: to, Err: err}
	}
	return old, nil
}
