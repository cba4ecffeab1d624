package archive

import (
	"context"
	"io"
	"os"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// UnpackIn unpacks an archive as copying out of a sandbox does, and returns what
// was left out.
func UnpackIn(ctx context.Context, r io.Reader, dir, name string) (skipped []string, err error) {
	u, err := newUnpacker(r, func(name, _ string) { skipped = append(skipped, name) })
	if err != nil {
		return nil, err
	}
	to, err := beneath.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer to.Close()
	err = u.unpack(ctx, &local{dir: to}, "", name)
	return skipped, err
}

// PackPath packs a file or directory as copying into a sandbox does.
func PackPath(ctx context.Context, w io.Writer, local, name string) error {
	l, err := openLocal(local)
	if err != nil {
		return err
	}
	defer l.close()
	return pack(ctx, w, l, name, func(string, string) {})
}

// UnpackTo unpacks an archive at a path, as copying to it does.
func UnpackTo(ctx context.Context, r io.Reader, path string) error {
	u, err := newUnpacker(r, func(string, string) {})
	if err != nil {
		return err
	}
	to, err := openTarget(path)
	if err != nil {
		return err
	}
	defer to.close()
	return u.unpack(ctx, to, "", to.name)
}

// PackImage packs a directory as importing an image does. uid is whose files
// become root's. It returns what was left out.
func PackImage(ctx context.Context, w io.Writer, dir string, uid int) (left []string, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	p, err := NewImagePacker(f)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	p.uid = uid
	err = p.Pack(ctx, w)
	return p.LeftOut(), err
}

// Place is what parsePlace makes of an argument.
func Place(s string) (name, path string, tree, dir bool) {
	p := parsePlace(s)
	return p.name, p.path, p.tree, p.dir
}
