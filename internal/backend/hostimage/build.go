package hostimage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// writer fills a new directory. It belongs to nobody else yet, so plain
// paths do.
type writer struct {
	root  string
	owner bool // the caller may give files away
}

// fill makes the skeleton in root.
func (h *host) fill(ctx context.Context, root string, p *blueprint) error {
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	w := writer{root: root, owner: os.Geteuid() == 0}
	if err := w.chmod(".", 0o755); err != nil {
		return err
	}
	for _, d := range dirs {
		if err := w.mkdir(d.path, d.mode); err != nil {
			return err
		}
	}
	if w.owner {
		if err := os.Lchown(filepath.Join(root, UserHome), UserID, UserID); err != nil {
			return err
		}
		if err := os.Lchown(filepath.Join(root, "workspace"), UserID, UserID); err != nil {
			return err
		}
	}
	for _, part := range p.parts {
		// One inside another part has its mount point there.
		if err := w.mkdirAll(strings.TrimPrefix(part.Path, "/")); err != nil {
			return err
		}
	}
	if err := h.copy(ctx, w, h.takeLinks(p)); err != nil {
		return err
	}
	for _, name := range sortedKeys(p.files) {
		if err := w.file(name, []byte(p.files[name]), 0o644); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(p.links) {
		if err := w.link(name, p.links[name]); err != nil {
			return err
		}
	}
	return nil
}

// copy copies what the blueprint lists. A file that changed into something else
// since is left out.
func (h *host) copy(ctx context.Context, w writer, sources []source) error {
	for _, s := range sources {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := w.mkdirAll(filepath.Dir(s.path)); err != nil {
			return err
		}
		switch {
		case s.is(unix.S_IFDIR):
			if err := w.mkdirAll(s.path); err != nil {
				return err
			}
		case s.is(unix.S_IFLNK):
			if err := w.link(s.path, s.target); err != nil {
				return err
			}
		default:
			b, err := h.read(s.path)
			if err != nil {
				h.note(s.path, "left out: %v", err)
				continue
			}
			// Whatever the host grants, an instance's users only read; set-id bits
			// never come along.
			if err := w.file(s.path, b, 0o644|s.stat.Mode&0o111); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w writer) chmod(rel string, mode uint32) error {
	p := filepath.Join(w.root, rel)
	if err := unix.Chmod(p, mode); err != nil { // os.Chmod does not know the sticky bit by number
		return &fs.PathError{Op: "chmod", Path: p, Err: err}
	}
	return nil
}

func (w writer) mkdir(rel string, mode uint32) error {
	err := os.Mkdir(filepath.Join(w.root, rel), 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return w.chmod(rel, mode)
}

// mkdirAll makes a directory and those above it, as far as they are missing.
func (w writer) mkdirAll(rel string) error {
	if rel == "." || rel == "" {
		return nil
	}
	if fi, err := os.Lstat(filepath.Join(w.root, rel)); err == nil && fi.IsDir() {
		return nil
	}
	if err := w.mkdirAll(filepath.Dir(rel)); err != nil {
		return err
	}
	return w.mkdir(rel, 0o755)
}

func (w writer) file(rel string, b []byte, mode uint32) error {
	p := filepath.Join(w.root, rel)
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Chmod(os.FileMode(mode)), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", rel, err)
	}
	return nil
}

func (w writer) link(rel, target string) error {
	return os.Symlink(target, filepath.Join(w.root, rel))
}
