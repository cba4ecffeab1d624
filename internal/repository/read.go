package repository

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of what is read.
const (
	maxText       = 1 << 20  // of a small file: HEAD, config, alternates
	maxPackedRefs = 64 << 20 // of packed-refs
	maxAlternates = 16
)

// read notes how the repository is.
func (r *Repository) read() error {
	head := firstLine(filepath.Join(r.GitDir, "HEAD"))
	ref, named := strings.CutPrefix(head, "ref:")
	ref = strings.TrimSpace(ref)
	switch {
	case head == "":
		return fmt.Errorf("%s is empty, or can't be read", filepath.Join(r.GitDir, "HEAD"))
	case !named:
		r.Commits = true
	case ref == "refs/heads/.invalid": // its refs are in tables, which are git's to read
		r.Commits = true
	default:
		r.Branch = strings.TrimPrefix(ref, "refs/heads/")
		r.Commits = r.hasRef(ref)
	}
	r.Files = indexed(filepath.Join(r.GitDir, "index"))
	packs, err := filepath.Glob(filepath.Join(escapeGlob(r.CommonDir), "objects/pack/*.promisor"))
	r.Partial = err == nil && len(packs) > 0 || promised(readText(filepath.Join(r.CommonDir, "config")))
	return r.borrowed()
}

// promised reports whether a configuration says that objects are fetched as they are needed.
func promised(text string) bool {
	return slices.ContainsFunc(parseConfig(text), func(s setting) bool {
		return s.section == "extensions" && s.name == "partialclone" ||
			s.section == "remote" && (s.name == "promisor" || s.name == "partialclonefilter")
	})
}

// hasRef reports whether a ref leads to something.
func (r *Repository) hasRef(ref string) bool {
	if fi, err := os.Lstat(filepath.Join(r.CommonDir, filepath.Clean("/"+ref))); err == nil && fi.Mode().IsRegular() {
		return true
	}
	f, err := open(filepath.Join(r.CommonDir, "packed-refs"))
	if err != nil {
		return false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPackedRefs))
	return err == nil && strings.Contains(string(text), " "+ref+"\n")
}

// indexed returns how many files an index of git has, 0 where there is none.
func indexed(file string) int {
	f, err := open(file)
	if err != nil {
		return 0
	}
	defer f.Close()
	var head [12]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:4]) != "DIRC" {
		return 0
	}
	return int(binary.BigEndian.Uint32(head[8:]))
}

// firstLine returns the first line of a small file, "" where there is none.
func firstLine(file string) string {
	line, _, _ := strings.Cut(readText(file), "\n")
	return strings.TrimSpace(line)
}

// readText returns a small file, "" where it can't be read.
func readText(file string) string {
	f, err := open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil || len(text) > maxText {
		return ""
	}
	return string(text)
}

// open opens a regular file. It waits for nobody, as the opening of a pipe would.
func open(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s is no regular file", file)
	}
	return f, nil
}

// escapeGlob makes a path stand for itself in a pattern.
func escapeGlob(p string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(p)
}
