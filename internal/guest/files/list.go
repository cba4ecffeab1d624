package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

// Limits of one listing: what the agent holds in memory for it.
const (
	maxListed      = 100_000
	maxListedBytes = 64 << 20
	entryOverhead  = 128 // bytes of an entry beyond its strings, about
)

// ListDir lists a directory, and those in it down to the given depth; 0 means
// 1, its own entries. Links below it are listed and not followed. A directory
// further down that the user may not read is listed without its entries.
func (s *Service) ListDir(ctx context.Context, req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	l := &lister{ctx: ctx}
	err := s.at(ctx, req.Header(), req.Msg.GetPath(), func(p string) error {
		l.names = s.names.load()
		return l.dir(p, max(1, req.Msg.GetDepth()), nil)
	})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.ListDirResponse{Entries: l.entries}), nil
}

type lister struct {
	ctx     context.Context // of the one call that this is for
	names   account.Names
	entries []*filesystem.EntryInfo
	bytes   int
}

// dir lists p, in the order of names, each directory before what is in it.
// Unless known is nil, p must still be that.
func (l *lister) dir(p string, depth uint32, known fs.FileInfo) error {
	names, err := l.readNames(p, known)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := l.ctx.Err(); err != nil {
			return context.Cause(l.ctx)
		}
		q := path.Join(p, name)
		st, err := os.Lstat(q)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went away meanwhile
		}
		if err != nil {
			return err
		}
		if err := l.add(describe(q, st, l.names)); err != nil {
			return err
		}
		if depth == 1 || !st.IsDir() {
			continue
		}
		if err := l.dir(q, depth-1, st); err != nil && !passable(err) {
			return err
		}
	}
	return nil
}

// passable reports whether a directory below the listed one may fail with
// err: it is private, was replaced, or is deeper than a path can say.
func passable(err error) bool {
	for _, e := range []error{
		syscall.EACCES, syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (l *lister) add(e *filesystem.EntryInfo) error {
	l.bytes += entryOverhead + len(e.GetName()) + len(e.GetPath()) + len(e.GetSymlinkTarget())
	for k, v := range e.GetMetadata() {
		l.bytes += len(k) + len(v)
	}
	if l.bytes > maxListedBytes {
		return tooMany("%d bytes", maxListedBytes)
	}
	l.entries = append(l.entries, e)
	return nil
}

func tooMany(format string, n int) error {
	return faultf(connect.CodeResourceExhausted,
		"the listing has more than "+format+"; list a smaller depth or a directory further down", n)
}

// readNames returns the sorted names in p, reading no more of them than a
// listing may have.
func (l *lister) readNames(p string, known fs.FileInfo) ([]string, error) {
	d, err := os.OpenFile(p, readDir, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if st, err := d.Stat(); err != nil || known != nil && !os.SameFile(st, known) {
		return nil, also(err, syscall.ENOTDIR) // a link took its place
	}
	var names []string
	for {
		more, err := d.Readdirnames(1024)
		names = append(names, more...)
		if len(l.entries)+len(names) > maxListed {
			return nil, tooMany("%d entries", maxListed)
		}
		if err == io.EOF {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
