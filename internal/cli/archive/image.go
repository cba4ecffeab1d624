package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
)

// maxLeftOut is how many of the files that an image does not have are named.
const maxLeftOut = 20

// ImagePacker writes a directory as an archive to import: an OCI layout, or a
// root file system with owners, sticky bits and hard links. It does not leave
// the directory by a link, nor its file system.
type ImagePacker struct {
	root   *beneath.Dir
	dir    string
	Layout bool // an OCI layout

	dev   uint64
	uid   int              // the owner whose files become root's; -1: none
	links map[inode]string // where a file of several names was written first
	left  []string         // what is not in it, and why
	more  int              // how many more that are
}

// inode tells files apart that may have several names.
type inode struct{ dev, ino uint64 }

// NewImagePacker packs an open directory, which it takes over; Close must be
// called.
func NewImagePacker(dir *os.File) (*ImagePacker, error) {
	root := beneath.In(dir)
	p := &ImagePacker{root: root, dir: dir.Name(), uid: -1, links: map[inode]string{}}
	if euid := os.Geteuid(); euid != 0 {
		p.uid = euid
	}
	fi, err := root.Lstat(".")
	if err != nil {
		p.Close()
		return nil, err
	}
	p.dev = statOf(fi).Dev
	if fi, err := root.Lstat("oci-layout"); err == nil && fi.Mode().IsRegular() {
		p.Layout = true
	}
	return p, nil
}

// Close gives the directory back.
func (p *ImagePacker) Close() { _ = p.root.Close() } // it was only read

// statOf is what the kernel says of a file.
func statOf(fi fs.FileInfo) *syscall.Stat_t {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return &syscall.Stat_t{}
	}
	return st
}

// Pack writes the archive.
func (p *ImagePacker) Pack(ctx context.Context, out io.Writer) error {
	w := tar.NewWriter(out)
	tops := []string{"."}
	if p.Layout {
		tops = []string{"oci-layout", "index.json", "blobs"}
	}
	for _, top := range tops {
		if err := p.tree(ctx, w, top); err != nil {
			return err
		}
	}
	return w.Close()
}

func (p *ImagePacker) tree(ctx context.Context, w *tar.Writer, top string) error {
	return fs.WalkDir(p.root.FS(), top, func(rel string, _ fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			err = p.entry(w, rel)
		}
		if err == nil || err == fs.SkipDir { // as fs.WalkDirFunc has it
			return err
		}
		return fmt.Errorf("read %s: %w", filepath.Join(p.dir, rel), usage.Pathless(err))
	})
}

func (p *ImagePacker) entry(w *tar.Writer, rel string) error {
	fi, err := p.root.Lstat(rel)
	if err != nil {
		return err
	}
	st, mode := statOf(fi), fi.Mode()
	h := &tar.Header{
		Name: rel, Mode: int64(mode.Perm()), ModTime: fi.ModTime(), Format: tar.FormatPAX,
		Uid: int(st.Uid), Gid: int(st.Gid),
	}
	if p.uid >= 0 && h.Uid == p.uid {
		h.Uid, h.Gid = 0, 0
	}
	if mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 && !mode.IsDir() {
		p.leaveOut(rel, "its set-id bit, which has no effect in a sandbox")
	}
	switch {
	case mode.IsDir():
		return p.directory(w, h, fi)
	case mode.IsRegular():
		return p.file(w, h, rel, fi)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = p.root.Readlink(rel); err != nil {
			return err
		}
		return w.WriteHeader(h)
	case mode&fs.ModeNamedPipe != 0:
		h.Typeflag = tar.TypeFifo
		return w.WriteHeader(h)
	}
	p.leaveOut(rel, "it is a device or a socket")
	return nil
}

func (p *ImagePacker) directory(w *tar.Writer, h *tar.Header, fi fs.FileInfo) error {
	h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	if fi.Mode()&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if statOf(fi).Dev != p.dev {
		p.leaveOut(strings.TrimSuffix(h.Name, "/"), "what is in it, for another file system is mounted there")
		return fs.SkipDir
	}
	return nil
}

// file writes a regular file, or a link to where it was written before.
func (p *ImagePacker) file(w *tar.Writer, h *tar.Header, rel string, fi fs.FileInfo) error {
	st := statOf(fi)
	id := inode{st.Dev, st.Ino}
	if first, ok := p.links[id]; ok {
		h.Typeflag, h.Linkname = tar.TypeLink, first
		return w.WriteHeader(h)
	}
	f, err := p.root.Open(rel, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(fi, now) {
		return errors.New("it was replaced while it was read")
	}
	if st.Nlink > 1 {
		p.links[id] = rel
	}
	return writeFile(w, h, f)
}

// leaveOut notes what is not in the archive.
func (p *ImagePacker) leaveOut(name, why string) {
	if len(p.left) == maxLeftOut {
		p.more++
		return
	}
	p.left = append(p.left, name+": "+why)
}

// LeftOut returns what is not in the archive, a line for each.
func (p *ImagePacker) LeftOut() []string {
	if p.more > 0 {
		return append(p.left, fmt.Sprintf("%d more", p.more))
	}
	return p.left
}
