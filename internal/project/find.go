package project

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Name is what the file is called.
const Name = ".carboy.toml"

const (
	// maxText bounds the file, in bytes.
	maxText = 64 << 10
	// maxAbove bounds how far above a workspace it is looked for.
	maxAbove = 64
)

// Text is a file that was read, once.
type Text struct {
	Path   string          // of the file
	Dir    sandbox.HostDir // that it lies in
	Bytes  []byte
	Digest string // SHA-256 of Bytes, in hexadecimal
}

// Find reads the file of the directory dir, or the nearest above it up to the root of
// the repository; nil where there is none. Above dir it goes only to directories that
// are the user's and nobody else's to write.
func Find(dir string) (*Text, error) {
	t, _, err := look(dir)
	return t, err
}

// Looked returns the directories that Find looks in, dir's own first: the last one is
// that of the file, where there is one, read or not. A directory that is gone is known
// by its path alone.
func Looked(dir string) []sandbox.HostDir {
	_, seen, _ := look(dir)
	if len(seen) > 0 {
		return seen
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}
	return []sandbox.HostDir{{Path: path}}
}

// look is Find, and says where it looked.
func look(dir string) (t *Text, seen []sandbox.HostDir, err error) {
	at, err := openDir(unix.AT_FDCWD, dir)
	if err != nil {
		return nil, nil, nil // what names the directory says what is wrong with it
	}
	defer func() { at.Close() }()
	for range maxAbove {
		d, err := describe(at)
		if err != nil {
			return nil, seen, nil // it was removed
		}
		seen = append(seen, d)
		t, err := readIn(at, d)
		if t != nil || err != nil || has(at, ".git") {
			return t, seen, err
		}
		up, err := openDir(int(at.Fd()), "..")
		if err != nil {
			return nil, seen, nil // nobody's business: it is not ours
		}
		if !inRepository(up) || !own(up) {
			up.Close()
			return nil, seen, nil
		}
		at.Close()
		at = up
	}
	return nil, seen, nil
}

// inRepository reports whether a directory or one above it is a repository's root.
func inRepository(at *os.File) bool {
	above := ""
	for range maxAbove {
		if has(at, above+".git") {
			return true
		}
		above += "../"
	}
	return false
}

func openDir(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func has(at *os.File, name string) bool {
	return unix.Faccessat(int(at.Fd()), name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// own reports whether a directory is the user's, and others can't write to it.
func own(at *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(at.Fd()), &st) == nil && int(st.Uid) == os.Geteuid() && !openToOthers(&st)
}

// openToOthers reports whether others may write. A group of its owner's number is
// the owner's alone.
func openToOthers(st *unix.Stat_t) bool {
	return st.Mode&0o002 != 0 || st.Mode&0o020 != 0 && st.Gid != st.Uid
}

// readIn reads the file in a directory; nil where there is none.
func readIn(at *os.File, dir sandbox.HostDir) (*Text, error) {
	path := filepath.Join(dir.Path, Name)
	fd, err := beneath.OpenNoLinks(int(at.Fd()), Name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case errors.Is(err, unix.ELOOP):
		return nil, refused(path, "a link, which is not followed")
	case err != nil:
		return nil, refused(path, usage.Pathless(err).Error())
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, refused(path, err.Error())
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, refused(path, "not a regular file")
	case int(st.Uid) != os.Geteuid():
		return nil, refused(path, "it belongs to another user, who may not ask for anything here")
	case openToOthers(&st):
		return nil, refused(path, "others may write to it").WithHint("chmod go-w %s, or leave it out: --no-project", shell.Word(path))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil {
		return nil, refused(path, usage.Pathless(err).Error())
	}
	if len(b) > maxText {
		return nil, refused(path, "larger than "+term.FormatSize(maxText))
	}
	return NewText(path, dir, b), nil
}

// NewText is a file with that text.
func NewText(path string, dir sandbox.HostDir, b []byte) *Text {
	sum := sha256.Sum256(b)
	return &Text{Path: path, Dir: dir, Bytes: b, Digest: hex.EncodeToString(sum[:])}
}

func refused(path, why string) *sandbox.Error {
	return sandbox.Errorf(sandbox.Denied, "%s: %s", shell.Word(path), why).WithHint("--no-project runs without it")
}

// describe says which directory at is.
func describe(at *os.File) (sandbox.HostDir, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &st); err != nil {
		return sandbox.HostDir{}, err
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", at.Fd()))
	if err != nil || !filepath.IsAbs(path) {
		return sandbox.HostDir{}, errors.Join(err, unix.ENOENT)
	}
	return sandbox.HostDir{Path: path, Dev: st.Dev, Ino: st.Ino, Born: beneath.Born(at), UID: st.Uid, GID: st.Gid}, nil
}
