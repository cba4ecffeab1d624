package skill

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// OnStep has changes of packages call fn with each step, until the test ends.
func OnStep(t interface{ Cleanup(func()) }, fn func(string)) {
	was := step
	step = fn
	t.Cleanup(func() { step = was })
}

// SetZip changes the limits of archives, until the test ends.
func SetZip(t interface{ Cleanup(func()) }, fn func(packed, entry, total, ratio *int64, entries *int)) {
	was := zipLimits
	fn(&zipLimits.packed, &zipLimits.entry, &zipLimits.total, &zipLimits.ratio, &zipLimits.entries)
	t.Cleanup(func() { zipLimits = was })
}

// Stem is what a package is named after.
func Stem(filename string) string { return stem(filename) }

// FindAtMost looks for packages among so many entries.
func FindAtMost(dir *os.Root, entries int) error {
	_, err := find(dir, search{depth: listDepth, skills: maxSkills, entries: entries})
	return err
}

// UnzipInto reads and unpacks an archive.
func UnzipInto(ctx context.Context, data []byte, to *os.Root) error {
	items, err := readZip(data, zipLimits)
	if err != nil {
		return err
	}
	return unzip(ctx, items, to)
}

// UntarInto reads a guest's archive twice, as TakeBack does: its content
// and its files.
func UntarInto(ctx context.Context, open func() io.Reader, top string, to *os.Root) (string, error) {
	sum, err := sumTar(ctx, open(), top, zipLimits)
	if err != nil {
		return "", err
	}
	return sum, writeGuestTar(ctx, open(), top, zipLimits, to)
}

// Content is what a package's files come to.
func Content(ctx context.Context, pkg *os.Root) (string, error) {
	s := &Store{keep: &shared{}}
	c, _, _, err := s.content(ctx, pkg, "x")
	return c, err
}

// Below returns an Outside that allows what is below directories of the
// host, which are opened each time. Links are followed within one of them.
func Below(roots ...string) Outside {
	return func(path string) (*os.Root, error) {
		for _, root := range roots {
			rel, err := filepath.Rel(root, path)
			if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
				continue
			}
			base, err := os.OpenRoot(root)
			if err != nil {
				continue
			}
			defer base.Close()
			dir, err := base.OpenRoot(rel)
			if err != nil {
				return nil, noDirectory(path)
			}
			return dir, nil
		}
		return nil, sandbox.Errorf(sandbox.Denied, "host_path is outside allowed_mount_roots: %s", describe(path)).
			WithHint("add a directory above it to box.allowed_mount_roots")
	}
}
