package bench

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// rootfs is a root file system for others' sandboxes that shows the same
// programs as ours: the machine's own, read-only, over an almost empty tree.
type rootfs struct {
	dir   string
	binds []string // directories of the machine that belong into it
}

// rootDirs are made in every root, as places to mount onto.
var rootDirs = []string{"dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "workspace"}

// root returns the run's rootfs.
func (w *world) root() (*rootfs, error) {
	return once(w, "rootfs", func() (*rootfs, error) { return makeRoot(filepath.Join(w.dir, "rootfs"), "/") })
}

// makeRoot makes a rootfs in dir after the machine whose own root is host.
func makeRoot(dir, host string) (*rootfs, error) {
	r := &rootfs{dir: dir, binds: []string{"/usr"}}
	for _, name := range rootDirs {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		at := filepath.Join(host, name)
		fi, err := os.Lstat(at)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case fi.IsDir():
			r.binds = append(r.binds, "/"+name)
			err = os.Mkdir(filepath.Join(dir, name), 0o755)
		case fi.Mode()&os.ModeSymlink != 0:
			var to string
			if to, err = os.Readlink(at); err == nil {
				err = os.Symlink(to, filepath.Join(dir, name))
			}
		}
		if err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
		"etc/group":  "root:x:0:\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// archive is the rootfs as a tar archive, without what is bound into it.
func (r *rootfs) archive() (io.Reader, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	if err := tw.AddFS(os.DirFS(r.dir)); err != nil {
		return nil, fmt.Errorf("pack a root file system: %w", err)
	}
	return &b, tw.Close()
}
