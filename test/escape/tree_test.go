package escape

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// snapshot describes every file below dir, by relative name.
func snapshot(dir string) map[string]string {
	files := map[string]string{}
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, p)
		if err != nil {
			files[rel] = err.Error()
			return nil
		}
		files[rel] = describe(p, d)
		return nil
	})
	return files
}

func describe(p string, d fs.DirEntry) string {
	switch {
	case d.Type()&fs.ModeSymlink != 0:
		to, _ := os.Readlink(p)
		return "link to " + to
	case d.Type().IsRegular():
		b, err := os.ReadFile(p)
		fi, _ := d.Info()
		return fmt.Sprintf("%v %x %v", fi.Mode(), sha256.Sum256(b), err)
	}
	fi, err := d.Info()
	if err != nil {
		return err.Error()
	}
	return fi.Mode().String()
}

// changed lists what is not as it was, without the names in except.
func changed(before, after map[string]string, except ...string) (list []string) {
	for name, was := range before {
		if is, ok := after[name]; !ok {
			list = append(list, fmt.Sprintf("%q is gone", name))
		} else if is != was {
			list = append(list, fmt.Sprintf("%q was %s, and is %s", name, was, is))
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok && !slices.Contains(except, name) {
			list = append(list, fmt.Sprintf("%q is new", name))
		}
	}
	slices.Sort(list)
	return list
}

// dangerous lists what must never come to lie in a tree of the host's: files
// that run as their owner, devices, attributes that give rights.
func dangerous(dir string) (list []string) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel, _ := filepath.Rel(dir, p)
		fi, err := d.Info()
		if err != nil {
			return nil
		}
		if fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice) != 0 {
			list = append(list, fmt.Sprintf("%s has mode %v", rel, fi.Mode()))
		}
		names := make([]byte, 4096)
		n, _ := unix.Llistxattr(p, names)
		for _, attr := range strings.Split(string(names[:max(n, 0)]), "\x00") {
			if attr == "security.capability" || strings.HasPrefix(attr, "trusted.") {
				list = append(list, fmt.Sprintf("%s has %s", rel, attr))
			}
		}
		return nil
	})
	return list
}

// listen waits at sockets of the host's below the world's directory.
func (w *world) listen(names ...string) error {
	for _, n := range names {
		if err := os.MkdirAll(filepath.Dir(w.path(n)), 0o755); err != nil {
			return err
		}
		l, err := net.Listen("unix", w.path(n))
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		if err := os.Chmod(w.path(n), 0o777); err != nil {
			return err
		}
	}
	return nil
}
