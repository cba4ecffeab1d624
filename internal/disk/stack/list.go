package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Bounds of a view.
const (
	maxChildren = 4 << 20   // names of one directory
	maxListed   = 512 << 20 // bytes of a listing
	entryBytes  = 96        // about what an entry takes besides its text
	maxPath     = 64 << 10  // bytes of an entry's path: a directory may lie in itself
	maxLinks    = 40        // on the way to a path
)

var errTooMany = errors.New("a directory has too many names")

// List lists what a path names, as a sandbox saw it: a directory's entries, and recursively all
// below it, or the one thing that it is, ordered by whole paths. Links are followed on the way to the
// path, and nowhere else. Errors begin as those of package disk do.
func (v *View) List(ctx context.Context, p string, recursive bool) ([]action.Entry, error) {
	p, f, err := v.find(p)
	if err != nil {
		return nil, err
	}
	all := []action.Entry{}
	if !f.isDir() {
		e, ok, err := describe(f)
		if err == nil && !ok {
			err = sandbox.Errorf(sandbox.Invalid, "unsupported workspace disk path type: %s is a device, a pipe or a socket", p)
		}
		if err != nil {
			return nil, err
		}
		e.Path = p
		return append(all, e), nil
	}
	real, held := f.path, 0 // where links led
	for todo := []file{f}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		list, err := v.children(ctx, dir)
		if err != nil {
			return nil, inspectError(dir.path, err)
		}
		for _, c := range list {
			e, ok, err := describe(c)
			if err != nil && !v.pass(err) {
				return nil, err
			}
			if !ok || err != nil {
				continue
			}
			if len(e.Path) > maxPath {
				return nil, sandbox.Errorf(sandbox.Invalid, "failed to inspect workspace disk path: %.200s…: paths of more than %d bytes", e.Path, maxPath)
			}
			if held += entryBytes + len(e.Path); held > maxListed {
				return nil, sandbox.Errorf(sandbox.Exhausted, "%s has too many entries to list: over %d", p, len(all)).WithHint("list a directory below it")
			}
			if real != p {
				e.Path = p + strings.TrimPrefix(e.Path, real)
			}
			all = append(all, e)
			if c.isDir() && recursive {
				todo = append(todo, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b action.Entry) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// describe makes the entry of a file; false where it is none of the three types.
func describe(f file) (action.Entry, bool, error) {
	e := action.Entry{Path: f.path}
	switch f.kind() {
	case Directory:
		e.ArtifactType = "directory"
	case File:
		e.ArtifactType, e.SizeBytes = "file", f.node.Size()
	case Link:
		target, err := f.node.Readlink()
		if err != nil {
			return e, false, inspectError(f.path, err)
		}
		e.ArtifactType, e.SizeBytes, e.LinkTarget = "symlink", int64(len(target)), &target
	default:
		return e, false, nil
	}
	return e, true, nil
}

// Read reads the beginning of a file, as disk.Read does that of an image's.
func (v *View) Read(p string, maxBytes int64) (*action.ReadFileReply, error) {
	if maxBytes <= 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "max_bytes must be positive, not %d", maxBytes)
	}
	if maxBytes > disk.MaxRead {
		return nil, sandbox.Errorf(sandbox.Invalid, "max_bytes must be at most %d, not %d", int64(disk.MaxRead), maxBytes).WithHint("start the sandbox, and copy the file: carboy cp")
	}
	p, f, err := v.find(p)
	if err != nil {
		return nil, err
	}
	if f.kind() != File {
		return nil, sandbox.Errorf(sandbox.Invalid, "workspace disk read only supports regular files: %s is none", p)
	}
	r, err := f.node.Open()
	if err != nil {
		return nil, fault("failed to dump workspace disk file", p, err)
	}
	defer r.Close()
	size := f.node.Size()
	data := make([]byte, min(maxBytes+utf8.UTFMax-1, size))
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fault("failed to dump workspace disk file", p, err)
	}
	out := &action.ReadFileReply{Path: p, SizeBytes: size, MaxBytes: maxBytes, Truncated: size > maxBytes}
	out.Content, out.Encoding = disk.Content(data, int(min(maxBytes, int64(len(data)))))
	return out, nil
}

// find returns what a path names, and the path without what means nothing. Links on the way
// are followed, within the view.
func (v *View) find(p string) (string, file, error) {
	if !strings.HasPrefix(p, "/") || slices.Contains(strings.Split(p, "/"), "..") {
		return "", file{}, sandbox.Errorf(sandbox.Invalid, "path %q: it must begin with a slash and have no part ..", p)
	}
	p = path.Clean(p)
	f, err := v.walk(p)
	if err != nil {
		return "", file{}, v.missing(p, inspectError(p, err))
	}
	return p, f, nil
}

// missing says of a path that is not there whether it lies where nothing is at hand.
func (v *View) missing(p string, err error) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind != sandbox.NotFound {
		return err
	}
	for at := p; at != "/"; at = path.Dir(at) {
		if m := v.mounts[at]; m.Note != "" {
			return e.WithHint("%s: %s", m.Path, m.Note)
		}
	}
	return err
}

func (v *View) walk(p string) (file, error) {
	dirs := []file{v.root()}
	todo := strings.Split(p, "/")
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		here := dirs[len(dirs)-1]
		switch name {
		case "", ".":
			continue
		case "..":
			dirs = dirs[:max(len(dirs)-1, 1)]
			continue
		}
		f, err := v.child(here, name)
		if err != nil {
			return file{}, err
		}
		last := !slices.ContainsFunc(todo, func(s string) bool { return s != "" && s != "." })
		switch {
		case f.isDir():
			dirs = append(dirs, f)
		case last:
			return f, nil
		case f.kind() == Link:
			if links++; links > maxLinks {
				return file{}, fmt.Errorf("%w: too many symbolic links", fs.ErrInvalid)
			}
			target, err := f.node.Readlink()
			if err != nil {
				return file{}, err
			}
			if strings.HasPrefix(target, "/") {
				dirs = dirs[:1]
			}
			todo = append(strings.Split(target, "/"), todo...)
		default:
			return file{}, fs.ErrNotExist
		}
	}
	return dirs[len(dirs)-1], nil
}

func inspectError(p string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &sandbox.Error{Kind: sandbox.NotFound, Msg: "workspace disk path does not exist: " + p, Err: err}
	}
	return fault("failed to inspect workspace disk path", p, err)
}

// fault begins with words that callers know, then has the path and the cause.
func fault(words, p string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	kind := sandbox.Invalid
	switch {
	case errors.Is(err, fs.ErrPermission):
		kind = sandbox.Denied
	case errors.Is(err, errTooMany):
		kind = sandbox.Exhausted
	}
	return sandbox.Errorf(kind, "%s: %s: %w", words, p, err)
}
