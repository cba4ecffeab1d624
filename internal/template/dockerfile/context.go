package dockerfile

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Context is the directory whose files a build may copy.
type Context struct {
	root   *beneath.Dir
	ignore *patternmatcher.PatternMatcher
}

// OpenContext opens a directory, and reads its .dockerignore.
func OpenContext(dir string) (*Context, error) {
	at, err := beneath.OpenPath(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	root := beneath.In(at)
	c := &Context{root: root}
	var patterns []string
	f, err := root.OpenRegular(".dockerignore")
	if err == nil {
		patterns, err = ignorefile.ReadAll(io.LimitReader(f, maxText))
		f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		c.ignore, err = patternmatcher.New(patterns)
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("read .dockerignore: %w", err)
	}
	return c, nil
}

// Close closes the directory.
func (c *Context) Close() error { return c.root.Close() }

// Files lists what a source of a COPY names, below the context and sorted:
// with a pattern in its parts what matches, and of a directory all that is in
// it. Links are not followed.
func (c *Context) Files(src string) ([]string, error) {
	clean := path.Clean("/" + src)[1:]
	if clean == "" {
		clean = "."
	}
	for part := range strings.SplitSeq(filepath.ToSlash(src), "/") {
		if part == ".." {
			return nil, fmt.Errorf("%.200q leads out of the directory that is built from", src)
		}
	}
	tops, err := fs.Glob(c.root.FS(), clean)
	if err != nil {
		return nil, fmt.Errorf("%.200q is no pattern: %w", src, err)
	}
	var out []string
	for _, top := range tops {
		err := fs.WalkDir(c.root.FS(), top, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || name == "." {
				return err
			}
			skip, err := c.ignore.MatchesOrParentMatches(name)
			if err == nil && !skip {
				out = append(out, name)
			}
			return err // what is below may be let in by a later pattern
		})
		if err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%.200q: there are no such files", src)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Hash tells files apart from others: by names, modes and contents.
func (c *Context) Hash(st Step, names []string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "carboy-files-1 %q %q\n", st.Src, st.Dest)
	err := c.each(names, func(hd *tar.Header, body io.Reader) error {
		fmt.Fprintf(h, "%q %d %o %q %d\n", hd.Name, hd.Typeflag, hd.Mode, hd.Linkname, hd.Size)
		_, err := io.Copy(h, body)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// Write writes files as a compressed tar.
func (c *Context) Write(w io.Writer, names []string) error {
	z := gzip.NewWriter(w)
	tw := tar.NewWriter(z)
	err := c.each(names, func(hd *tar.Header, body io.Reader) error {
		if err := tw.WriteHeader(hd); err != nil {
			return err
		}
		_, err := io.Copy(tw, body)
		return err
	})
	return errors.Join(err, tw.Close(), z.Close())
}

// each calls f for each file, which must be a plain one, a directory or a link.
func (c *Context) each(names []string, f func(*tar.Header, io.Reader) error) error {
	for _, name := range names {
		if err := c.one(name, f); err != nil {
			return err
		}
	}
	return nil
}

func (c *Context) one(name string, f func(*tar.Header, io.Reader) error) error {
	info, err := c.root.Lstat(name)
	if err != nil {
		return err
	}
	target := ""
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		if target, err = c.root.Readlink(name); err != nil {
			return err
		}
	case !mode.IsRegular() && !mode.IsDir():
		return fmt.Errorf("%.200q: neither file, directory nor link", name)
	}
	hd, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	hd.Name, hd.Uid, hd.Gid, hd.Uname, hd.Gname = name, 0, 0, "", ""
	if hd.Typeflag != tar.TypeReg {
		return f(hd, strings.NewReader(""))
	}
	file, err := c.root.OpenRegular(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return f(hd, io.LimitReader(file, hd.Size))
}
