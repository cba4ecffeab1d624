package content

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// Bounds of a listing.
const (
	maxDepth   = 10
	maxEntries = 100_000
)

// entry is what a client is told of a file.
type entry struct {
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	Path   string    `json:"path"`
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Atime  time.Time `json:"atime"`
	Mtime  time.Time `json:"mtime"`
	Ctime  time.Time `json:"ctime"`
	Target string    `json:"target,omitempty"`
}

var types = map[uint32]string{unix.S_IFREG: "file", unix.S_IFDIR: "directory", unix.S_IFLNK: "symlink"}

func entryOf(rel string, st *unix.Stat_t) entry {
	t, ok := types[st.Mode&unix.S_IFMT]
	if !ok {
		t = "unknown"
	}
	p := shown(rel)
	return entry{
		Name: path.Base(p), Type: t, Path: p, Size: st.Size, Mode: st.Mode & 0o777, UID: st.Uid, GID: st.Gid,
		Atime: timeOf(st.Atim), Mtime: timeOf(st.Mtim), Ctime: timeOf(st.Ctim),
	}
}

func timeOf(t unix.Timespec) time.Time { return time.Unix(t.Unix()).UTC() }

// look tells of what is at rel; a link is told of itself.
func (r root) look(rel string) (entry, error) {
	if rel == "." {
		var st unix.Stat_t
		if err := unix.Fstat(r.fd, &st); err != nil {
			return entry{}, err
		}
		return entryOf(rel, &st), nil
	}
	dir, name, err := r.parent(rel)
	if err != nil {
		return entry{}, err
	}
	defer unix.Close(dir)
	return lookAt(dir, name, rel)
}

func lookAt(dir int, name, rel string) (entry, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return entry{}, err
	}
	e := entryOf(rel, &st)
	if e.Type == "symlink" {
		var buf [4096]byte
		if n, err := unix.Readlinkat(dir, name, buf[:]); err == nil {
			e.Target = string(buf[:n])
		}
	}
	return e, nil
}

// list tells of what is in the directory rel and, to that depth, below it: each
// directory's entries in order, those of a directory after itself.
func (r root) list(ctx context.Context, rel string, depth int) ([]entry, error) {
	fd, err := r.open(rel, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	l := lister{ctx: ctx, entries: []entry{}}
	if err := l.list(fd, rel, depth); err != nil {
		return nil, err
	}
	return l.entries, nil
}

type lister struct {
	ctx     context.Context // of the one call that this is for
	entries []entry
}

// list takes dir over.
func (l *lister) list(dir int, rel string, depth int) error {
	f := os.NewFile(uintptr(dir), rel)
	defer f.Close()
	names, err := l.names(f)
	if err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(rel, name)
		e, err := lookAt(dir, name, p)
		if errors.Is(err, unix.ENOENT) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
		l.entries = append(l.entries, e)
		if e.Type != "directory" || depth == 1 {
			continue
		}
		sub, err := beneath.OpenNoLinks(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) { // replaced meanwhile
			continue
		}
		if err != nil {
			return err
		}
		if err := l.list(sub, p, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// names reads a directory's, as long as they and what was read before are not
// too many.
func (l *lister) names(f *os.File) ([]string, error) {
	var names []string
	for {
		if err := l.ctx.Err(); err != nil {
			return nil, err
		}
		more, err := f.Readdirnames(1024)
		names = append(names, more...)
		if len(l.entries)+len(names) > maxEntries {
			return nil, faultf(badRequest, "more than %d entries: list a directory below, or less deep", maxEntries)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
