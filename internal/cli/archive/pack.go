// Package archive makes and unpacks the tar streams that go into sandboxes, come
// out of them, and become images.
//
// What comes out of a sandbox is hostile: nothing is made outside of the directory
// that it is unpacked in, and links that lead out, devices and set-id bits are
// refused. On this machine no link is followed on the way to what is packed.
package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// packer writes a local file or directory as a tar stream. It tells no owners
// and no set-id bits: inside, what it makes belongs to the sandbox's user.
type packer struct {
	w       *tar.Writer
	skipped func(name, why string)
}

// pack writes what is at l under the name of name, "." for a directory's contents
// alone, and ends the archive. It follows no link. skipped is told what is left
// out, and why.
func pack(ctx context.Context, w io.Writer, l *local, name string, skipped func(name, why string)) error {
	p := &packer{w: tar.NewWriter(w), skipped: skipped}
	fi, err := l.dir.Lstat(l.name)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		err = p.tree(ctx, l.dir, l.name, name)
	} else {
		err = p.entry(ctx, l.dir, l.name, name)
	}
	if err != nil {
		return err
	}
	return p.w.Close()
}

// tree packs a directory, from an open handle of it.
func (p *packer) tree(ctx context.Context, d *beneath.Dir, rel, name string) error {
	top, err := d.OpenDir(rel)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }() // it was only read
	return fs.WalkDir(top.FS(), ".", func(rel string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err // it names what could not be read
		}
		return p.entry(ctx, top, rel, path.Join(name, rel))
	})
}

func (p *packer) entry(ctx context.Context, d *beneath.Dir, rel, name string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	fi, err := d.Lstat(rel)
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
		return p.file(d, rel, h)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = d.Readlink(rel); err != nil {
			return err
		}
		return p.w.WriteHeader(h)
	}
	p.skipped(name, "it is neither a file, a directory nor a link")
	return nil
}

// file writes a regular file.
func (p *packer) file(d *beneath.Dir, rel string, h *tar.Header) error {
	f, err := d.OpenRegular(rel)
	if errors.Is(err, beneath.ErrNotRegular) {
		p.skipped(h.Name, "it was replaced while it was read")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	if err := writeFile(p.w, h, f); err != nil {
		return fmt.Errorf("read %s: %w", rel, err)
	}
	return nil
}

// writeFile writes a regular file. One that shrinks meanwhile is an error, for the
// archive has its size already; what it grows by is left out.
func writeFile(w *tar.Writer, h *tar.Header, f *os.File) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, fi.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(w, f, h.Size)
	if err == io.EOF {
		return fmt.Errorf("it became shorter, at byte %d of %d", n, h.Size)
	}
	return err
}

var errStopped = errors.New("the reader has stopped")

// Send hands what pack writes to to. Where packing fails, that is why to did, and
// is the error.
func Send(pack func(io.Writer) error, to func(io.Reader) error) error {
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(w)
		w.CloseWithError(err)
		packed <- err
	}()
	err := to(r)
	r.CloseWithError(errStopped)
	if perr := <-packed; perr != nil && !errors.Is(perr, errStopped) {
		return perr
	}
	return err
}
