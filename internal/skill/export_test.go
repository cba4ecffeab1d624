package skill

import (
	"context"
	"io"
	"os"
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
