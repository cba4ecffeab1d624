package workspace

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

type copySource struct {
	dir      *os.File
	manifest io.ReadSeeker
	began    time.Time
}

// Copy is a copy of the base that Populate made, with the manifest that it
// wrote. The caller keeps dir open. A file is taken as unchanged when its
// type, size, mode and change time are as they were: of these the agent can't
// set the last. A damaged manifest is an error, here or from WriteChanges.
// The Source is good for one call of WriteChanges.
func Copy(dir *os.File, manifest io.ReadSeeker) (Source, error) {
	s := &copySource{dir: dir, manifest: manifest}
	m, err := s.read()
	if err != nil {
		return nil, err
	}
	s.began = m.since
	return s, nil
}

// read begins to read the manifest.
func (s *copySource) read() (*manifestReader, error) {
	if _, err := s.manifest.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	m, err := newManifestReader(s.manifest)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return m, nil
}

func (s *copySource) since() time.Time { return s.began }

// copies are the files and links of a copy, by their inode numbers: what each is a copy of.
type copies map[uint64]copyOf

type copyOf struct {
	origin Origin
	born   int64 // when the copy was made
}

func (s *copySource) copies() (copies, error) {
	m, err := s.read()
	if err != nil {
		return nil, err
	}
	all := copies{}
	for m.next != nil {
		if e := m.next; !e.origin.IsZero() {
			all[e.ino] = copyOf{e.origin, e.born}
		}
		if err := m.advance(); err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
	}
	return all, nil
}

// of returns what an entry of a directory is a copy of, whatever it was called. Numbers of inodes are used again: another one was made later.
func (c copies) of(dir *os.File, name string, st *unix.Stat_t) Origin {
	one, ok := c[st.Ino]
	if !ok || one.born != 0 && one.born != beneath.BornAt(dir, name) {
		return Origin{}
	}
	return one.origin
}

func (s *copySource) write(p *producer) error {
	d, err := openDirAt(s.dir, ".")
	if err != nil {
		return fmt.Errorf("open copy: %w", err)
	}
	defer d.Close()
	if p.origins {
		if p.copies, err = s.copies(); err != nil {
			return err
		}
	}
	m, err := s.read()
	if err != nil {
		return err
	}
	w := &copyWalk{producer: p, m: m}
	if err := w.dir(d, ".", 0); err != nil {
		return err
	}
	return w.deletedBefore("", true)
}

// copyWalk walks a copy and its manifest side by side, both in order.
type copyWalk struct {
	*producer
	m *manifestReader
	// pending are the directories around the current path that were not
	// written: nothing in them has changed so far.
	pending []Change
}

func (w *copyWalk) dir(d *os.File, rel string, depth int) error {
	names, err := listDir(d)
	if err != nil {
		return fmt.Errorf("list %s: %w", term.Escape(rel), err)
	}
	for _, name := range names {
		if err := w.entry(d, name, joinPath(rel, name), depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *copyWalk) entry(dir *os.File, name, rel string, depth int) error {
	if err := w.deletedBefore(rel, false); err != nil {
		return err
	}
	st, err := statAt(dir, name)
	if err != nil {
		if gone(err) {
			return nil // the manifest's entry, if any, is written as deleted
		}
		return fmt.Errorf("stat %s: %w", term.Escape(rel), err)
	}
	was, err := w.take(rel)
	if err != nil {
		return err
	}
	defer w.enter(rel, st.Mode&unix.S_IFMT == unix.S_IFDIR)()
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return w.subdir(dir, name, rel, depth, &st, was)
	}
	if was != nil && was.kind == Dir {
		if err := w.skipBelow(rel); err != nil {
			return err
		}
	}
	wanted := w.wants(rel)
	if !wanted && !w.origins || was != nil && w.unchanged(dir, name, &st, was) {
		return nil
	}
	if !wanted {
		return w.outside(dir, name, rel, &st)
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.producer.entry(node{dir: dir, name: name}, rel, &st, was != nil); err != nil {
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	return nil
}

// outside tells what was changed and is not selected: it may be what is missed elsewhere.
func (w *copyWalk) outside(dir *os.File, name, rel string, st *unix.Stat_t) error {
	w.aside = true
	defer func() { w.aside = false }()
	if err := w.producer.entry(node{dir: dir, name: name}, rel, st, false); err != nil {
		return fmt.Errorf("%s: %w", term.Escape(rel), err)
	}
	return nil
}

func (w *copyWalk) subdir(dir *os.File, name, rel string, depth int, st *unix.Stat_t, was *manifestEntry) error {
	if !w.wants(rel) {
		if !w.origins || tooDeep(rel, depth) {
			return w.skipBelow(rel)
		}
		return w.below(dir, name, rel, depth)
	}
	if w.left != nil {
		return w.countDir(dir, name, rel, depth)
	}
	w.pending = append(w.pending, Change{
		Path: rel, Kind: Dir, Mode: st.Mode & 0o7777, ModTime: statTime(st.Mtim), Copied: was != nil,
	})
	deep := tooDeep(rel, depth)
	if deep {
		c := &w.pending[len(w.pending)-1]
		c.Kind, c.Detail, c.Mode = Special, "too deep", 0
	}
	if deep || was == nil || was.kind != Dir {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if deep {
		return w.skipBelow(rel)
	}
	err := w.below(dir, name, rel, depth)
	if n := len(w.pending); n > 0 && w.pending[n-1].Path == rel {
		w.pending = w.pending[:n-1]
	}
	return err
}

// countDir looks through a directory that is left out, for what was changed there.
func (w *copyWalk) countDir(dir *os.File, name, rel string, depth int) error {
	if tooDeep(rel, depth) {
		*w.left++
		return w.skipBelow(rel)
	}
	return w.below(dir, name, rel, depth)
}

// below looks through what a directory has, and had.
func (w *copyWalk) below(dir *os.File, name, rel string, depth int) error {
	d, err := openDirAt(dir, name)
	if err == nil {
		err = w.dir(d, rel, depth)
		d.Close()
	} else if gone(err) {
		err = nil
	}
	if err != nil {
		return err
	}
	return w.deletedBefore(rel, true)
}

// take returns the manifest's entry for rel and moves on, or returns nil.
func (w *copyWalk) take(rel string) (*manifestEntry, error) {
	if w.m.next == nil || w.m.next.path != rel {
		return nil, nil
	}
	e := *w.m.next
	return &e, w.m.advance()
}

func (w *copyWalk) skipBelow(rel string) error {
	for w.m.next != nil && below(w.m.next.path, rel) {
		if err := w.m.advance(); err != nil {
			return err
		}
	}
	return nil
}

// deletedBefore writes as deleted what the manifest has and the walk has
// passed: all that comes before rel or, with within, what is left below rel;
// rel "" and within means all that is left.
func (w *copyWalk) deletedBefore(rel string, within bool) error {
	for w.m.next != nil {
		p := w.m.next.path
		if within && rel != "" && !below(p, rel) || !within && comparePaths(p, rel) >= 0 {
			return nil
		}
		kind := w.m.next.kind
		if err := w.m.advance(); err != nil {
			return err
		}
		if kind == Dir {
			if err := w.skipBelow(p); err != nil {
				return err
			}
		}
		if !w.wants(p) {
			continue
		}
		if err := w.deleted(p, kind == Dir); err != nil {
			return err
		}
	}
	return nil
}

// deleted writes a path as deleted.
func (w *copyWalk) deleted(p string, dir bool) error {
	defer w.enter(p, dir)()
	if err := w.flush(); err != nil {
		return err
	}
	return w.write(&Change{Path: p, Kind: Deleted}, nil)
}

// flush writes the pending directories, which nothing leaves out: before what is written
// itself.
func (w *copyWalk) flush() error {
	if w.left != nil {
		return nil
	}
	for i := range w.pending {
		if err := w.out.write(w.ctx, &w.pending[i], nil); err != nil {
			return err
		}
	}
	w.pending = w.pending[:0]
	return nil
}

// unchanged reports whether the agent left a path as it was.
func (w *copyWalk) unchanged(dir *os.File, name string, st *unix.Stat_t, was *manifestEntry) bool {
	kind, _ := kindOf(st)
	if kind != was.kind || st.Mode&0o7777 != was.mode || st.Size != was.size {
		return false
	}
	if st.Ctim.Nano() == was.ctime {
		return true
	}
	if kind == Symlink {
		target, err := readlinkAt(dir, name)
		return err == nil && target == was.target
	}
	if was.digest.IsZero() {
		return false
	}
	f, now, err := openFileAt(dir, name)
	if err != nil {
		return false
	}
	defer f.Close()
	ext, err := fileExtents(f, now.Size, now.Blocks)
	if err != nil {
		return false
	}
	if ext == nil && now.Size > 0 {
		ext = []Extent{{0, now.Size}}
	}
	sum, err := w.dig.digestFile(w.ctx, f, now.Size, ext, w.out.buf)
	return err == nil && sum == was.digest
}
