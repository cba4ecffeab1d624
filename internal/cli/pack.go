package cli

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"unicode/utf8"
)

// packer writes a local file or directory as a tar stream. It tells no owners
// and no set-id bits: inside, what it makes belongs to the sandbox's user.
type packer struct {
	w       *tar.Writer
	skipped func(name, why string)
}

// pack writes what is at local under the name of name, "." for a directory's
// contents alone, and ends the archive.
func (p *packer) pack(ctx context.Context, local, name string) error {
	fi, err := os.Lstat(local)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		err = p.tree(ctx, local, name)
	} else {
		err = p.single(ctx, local, name)
	}
	if err != nil {
		return err
	}
	return p.w.Close()
}

func (p *packer) single(ctx context.Context, local, name string) error {
	root, err := os.OpenRoot(filepath.Dir(local))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	return p.entry(ctx, root, filepath.Base(local), name)
}

// tree packs a directory, without leaving it by a link that is put in the way.
func (p *packer) tree(ctx context.Context, local, name string) error {
	root, err := os.OpenRoot(local)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it was only read
	return fs.WalkDir(root.FS(), ".", func(rel string, _ fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read %s: %w", filepath.Join(local, rel), pathless(err))
		}
		return p.entry(ctx, root, rel, path.Join(name, rel))
	})
}

func (p *packer) entry(ctx context.Context, root *os.Root, rel, name string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	fi, err := root.Lstat(rel)
	if err != nil {
		return err
	}
	if !utf8.ValidString(name) {
		p.skipped(name, "its name is not valid UTF-8")
		return nil
	}
	h := &tar.Header{Name: name, Mode: int64(fi.Mode().Perm()), ModTime: fi.ModTime(), Format: tar.FormatPAX}
	switch mode := fi.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return p.w.WriteHeader(h)
	case mode.IsRegular():
		return p.file(root, rel, h)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(rel); err != nil {
			return err
		}
		return p.w.WriteHeader(h)
	}
	p.skipped(name, "it is neither a file, a directory nor a link")
	return nil
}

// file writes a regular file. One that shrinks meanwhile is an error, for the
// archive has its size already; what it grows by is left out.
func (p *packer) file(root *os.Root, rel string, h *tar.Header) error {
	f, err := root.Open(rel)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		p.skipped(h.Name, "it was replaced while it was read")
		return nil
	}
	h.Typeflag, h.Size = tar.TypeReg, fi.Size()
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(p.w, f, h.Size)
	if err == io.EOF {
		return fmt.Errorf("read %s: it became shorter, at byte %d of %d", rel, n, h.Size)
	}
	return err
}
