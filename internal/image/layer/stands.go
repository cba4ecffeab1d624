package layer

import (
	"context"
	"fmt"
	"math"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Stands reports whether the trees of an image, the lowest first, each of which was unpacked
// without regard to those below it, are what Unpack makes with Options.Below. They are where no
// directory that a layer may have implied, 0755 and root's, is another or a link below it.
// A layer that lists such a directory is taken for one that implies it.
func Stands(ctx context.Context, trees []string, o Options) (bool, error) {
	for i := 1; i < len(trees); i++ {
		ok, err := stands(ctx, trees[i], trees[:i], o)
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func stands(ctx context.Context, tree string, under []string, o Options) (bool, error) {
	b, err := openBelow(under, o.opaque(), math.MaxInt) // what was unpacked is bounded itself
	if err != nil {
		return false, err
	}
	defer b.close()
	mine, err := openBelow([]string{tree}, o.opaque(), math.MaxInt)
	if err != nil {
		return false, err
	}
	defer mine.close()
	return b.agrees(ctx, mine.roots[0], ".", b.roots)
}

// agrees compares the directory rel of a tree, and those in it, with what trees show there.
func (b *below) agrees(ctx context.Context, tree int, rel string, trees []int) (bool, error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	st, opaque, err := b.stat(tree, rel)
	if err != nil || opaque {
		return err == nil, err
	}
	f, err := b.look(trees, rel)
	if err != nil {
		return false, err
	}
	plain := st.Uid == 0 && st.Gid == 0 && st.Mode&0o7777 == implied.mode
	switch {
	case f.is(unix.S_IFLNK):
		return !plain, nil
	case !f.is(unix.S_IFDIR):
		return true, nil
	case plain && (f.st.Uid != 0 || f.st.Gid != 0 || f.st.Mode&0o7777 != implied.mode):
		return false, nil
	}
	names, err := dirsIn(tree, rel)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if ok, err := b.agrees(ctx, tree, path.Join(rel, name), f.trees); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// dirsIn lists the directories in one.
func dirsIn(tree int, rel string) (names []string, err error) {
	fd, err := beneath.OpenHere(tree, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", quote(rel), err)
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", quote(rel), err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
