package action

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
)

// Bounds of what is said of files.
const (
	entryBytes = 100     // of one in a reply, besides its names
	maxPaths   = 6 << 20 // bytes of a listing's names in JSON
	maxFile    = 2 << 20 // bytes of a file
)

// maxListed is how many entries a listing has. Tests have fewer.
var maxListed = 50_000

// kindOf is the name of what a mode says; "" for a device, a fifo or a socket.
func kindOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symlink"
	}
	return ""
}

func isDir(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.IsDir()
}

// missing says that nothing is at a path, where that is the error.
func missing(p string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fail(kindNotFound, "the path does not exist: %s", p)
	}
	return err
}

// listFiles lists a directory, or what is no directory by itself. No link is followed.
func (c *call) listFiles(q *action.ListFilesRequest) (any, error) {
	a, p, err := c.place(q.Path)
	if err != nil {
		return nil, err
	}
	l := &lister{c: c, recursive: q.Recursive}
	if err := c.s.opts.Files.Act(c.ctx, a, func() error { return l.top(p) }); err != nil {
		return nil, err
	}
	if err := c.take(l.bytes + entryBytes*len(l.found)); err != nil {
		return nil, err
	}
	slices.SortFunc(l.found, func(x, y found) int { return strings.Compare(x.path, y.path) })
	reply := &action.ListFilesReply{Path: valid(p), Entries: make([]action.Entry, len(l.found))}
	for i, f := range l.found {
		f.Path = valid(f.path)
		reply.Entries[i] = f.Entry
	}
	return reply, nil
}

// valid is a name as JSON can hold it.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// found is an entry with the bytes of its path, by which entries are in order.
type found struct {
	path string
	action.Entry
}

// lister lists with the user's rights.
type lister struct {
	c         *call
	recursive bool
	found     []found
	bytes     int
}

func (l *lister) top(p string) error {
	st, err := os.Lstat(p)
	if err != nil {
		return missing(p, err)
	}
	if st.IsDir() {
		return l.dir(p, nil)
	}
	if kindOf(st.Mode()) == "" {
		return fmt.Errorf("the path is neither a file, a directory nor a link: %s", p)
	}
	return l.entry(p, st)
}

// dir lists what is in p. Unless known is nil, p must still be that.
func (l *lister) dir(p string, known fs.FileInfo) error {
	names, err := l.names(p, known)
	if err != nil {
		return err
	}
	for _, name := range names {
		q := path.Join(p, name)
		st, err := os.Lstat(q)
		if err != nil {
			continue // it went away meanwhile, or is deeper than a path can say
		}
		if err := l.entry(q, st); err != nil {
			return err
		}
	}
	return nil
}

// names returns what is in a directory, no more than there may be in a listing.
func (l *lister) names(p string, known fs.FileInfo) (names []string, err error) {
	d, err := os.OpenFile(p, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if st, err := d.Stat(); known != nil && (err != nil || !os.SameFile(st, known)) {
		return nil, unix.ENOTDIR // another took its place
	}
	for {
		more, err := d.Readdirnames(1024)
		if names = append(names, more...); len(l.found)+len(names) > maxListed {
			return nil, errListing()
		}
		if err == io.EOF {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func errListing() error {
	return fmt.Errorf("there are more than %d entries, or their names are longer than %d bytes: list a directory further down", maxListed, maxPaths)
}

// entry adds one, and what is in it where that is wanted.
func (l *lister) entry(p string, st fs.FileInfo) error {
	if err := l.c.ctx.Err(); err != nil {
		return err
	}
	e := action.Entry{ArtifactType: kindOf(st.Mode())}
	switch e.ArtifactType {
	case "":
		return nil
	case "symlink":
		target, err := os.Readlink(p)
		if err != nil {
			return nil // it went away meanwhile
		}
		e.SizeBytes = int64(len(target))
		target = valid(target)
		e.LinkTarget = &target
		l.bytes += size(target)
	case "file":
		e.SizeBytes = st.Size()
	}
	l.found = append(l.found, found{p, e})
	if l.bytes += size(p); len(l.found) > maxListed || l.bytes > maxPaths {
		return errListing()
	}
	if !l.recursive || e.ArtifactType != "directory" {
		return nil
	}
	if err := l.dir(p, st); err != nil && !passable(err) {
		return err
	}
	return nil
}

// passable reports whether a directory further down may fail with err: it is private,
// was replaced, or is deeper than a path can say.
func passable(err error) bool {
	return slices.ContainsFunc([]error{unix.EACCES, unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG}, func(e error) bool {
		return errors.Is(err, e)
	})
}

// size is how many bytes a name takes in a reply.
func size(name string) (n int) {
	for _, r := range name {
		n += cost(r)
	}
	return n
}

// readFile reads the beginning of a file.
func (c *call) readFile(q *action.ReadFileRequest) (any, error) {
	switch {
	case q.MaxBytes <= 0:
		return nil, errors.New("max_bytes must be positive")
	case q.MaxBytes > maxFile:
		return nil, fmt.Errorf("max_bytes is %d: a reply has room for %d; export the file", q.MaxBytes, maxFile)
	case q.Path == "":
		return nil, errors.New("the path is empty")
	}
	a, p, err := c.place(q.Path)
	if err != nil {
		return nil, err
	}
	if err := c.take(int(q.MaxBytes)); err != nil {
		return nil, err
	}
	reply := &action.ReadFileReply{Path: valid(p), MaxBytes: q.MaxBytes}
	var content []byte
	err = c.s.opts.Files.Act(c.ctx, a, func() (err error) {
		content, reply.SizeBytes, err = readBeginning(p, q.MaxBytes)
		return missing(p, err)
	})
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > q.MaxBytes {
		content, reply.Truncated = content[:q.MaxBytes], true
	}
	reply.SizeBytes = max(reply.SizeBytes, int64(len(content)))
	reply.Truncated = reply.Truncated || reply.SizeBytes > int64(len(content))
	if whole := wholeRunes(content, reply.Truncated); utf8.Valid(whole) {
		reply.Content = string(whole)
	} else {
		reply.Content, reply.Encoding = base64.StdEncoding.EncodeToString(content), "base64"
	}
	return reply, nil
}

// wholeRunes leaves out a character that a bound has cut.
func wholeRunes(content []byte, cut bool) []byte {
	if !cut {
		return content
	}
	for i := len(content) - 1; i >= 0 && i >= len(content)-utf8.UTFMax; i-- {
		if utf8.RuneStart(content[i]) {
			if !utf8.FullRune(content[i:]) {
				return content[:i]
			}
			break
		}
	}
	return content
}

// readBeginning reads one byte more than max, where there is one. It does not wait for
// another, as the opening of a fifo would.
func readBeginning(p string, most int64) (content []byte, size int64, err error) {
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !st.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("only regular files can be read: %s", p)
	}
	content, err = io.ReadAll(io.LimitReader(f, most+1))
	return content, st.Size(), err
}

// writeFile makes a file, or replaces what is in one.
func (c *call) writeFile(q *action.WriteFileRequest) (any, error) {
	if q.Path == "" {
		return nil, errors.New("the path is empty")
	}
	a, p, err := c.place(q.Path)
	if err != nil {
		return nil, err
	}
	if err := c.s.opts.Files.Put(c.ctx, a, p, strings.NewReader(q.Text)); err != nil {
		return nil, err
	}
	n := int64(len(q.Text))
	return &action.WriteFileReply{Path: valid(p), SizeBytes: n, BytesWritten: n}, nil
}
