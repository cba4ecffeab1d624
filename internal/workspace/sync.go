package workspace

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// maxScanned bounds how many paths of a base a Scan finds.
const maxScanned = 1 << 20

// Scanned is what a base has, of what counts for a sync.
type Scanned struct {
	Files []Found  // regular files, links and empty directories, in order
	Dirs  []string // all directories, "." among them
}

// Found is a path of a base.
type Found struct {
	Mark
	Kind Kind
}

// Scan lists what is at and below paths (none: all), but for .git, special files, other mounts,
// what this process or the base's owner may not read, and what filter leaves out.
func (b *Base) Scan(ctx context.Context, filter sandbox.ChangesFilter, paths []string) (*Scanned, error) {
	sel, err := newSelection(paths)
	if err != nil {
		return nil, err
	}
	s := &scanner{ctx: ctx, base: b, sel: sel, filter: newFilter(filter, sel)}
	if err := s.dir(".", verdict{}); err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	return &s.found, nil
}

type scanner struct {
	ctx    context.Context
	base   *Base
	sel    selection
	filter *filter
	found  Scanned
}

func (s *scanner) dir(rel string, in verdict) error {
	d, err := openBeneath(s.base.dir, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil // it is gone, another mount, or may not be read
	}
	names, err := listDir(d)
	if err != nil {
		d.Close()
		return nil // as above
	}
	defer d.Close()
	s.found.Dirs = append(s.found.Dirs, rel)
	for _, name := range names {
		if err := s.entry(d, joinPath(rel, name), name, in); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) entry(d *os.File, rel, name string, in verdict) error {
	if err := context.Cause(s.ctx); err != nil {
		return err
	}
	if name == ".git" || hasTempName(rel) || checkPath(rel) != nil || !s.sel.has(rel) && !s.sel.leads(rel) {
		return nil
	}
	st, err := statAt(d, name)
	if err != nil {
		return nil // it is gone
	}
	kind, _ := kindOf(&st)
	v := s.filter.enter(rel, kind == Dir, in)
	out := v.out(kind == Dir, !s.filter.only.Empty())
	switch {
	case kind == Special, kind != Symlink && !s.base.readable(rel):
		return nil
	case kind == Dir:
		if out && !s.sel.leads(rel) && !s.filter.ignored.Leads(rel) {
			return nil
		}
		before := len(s.found.Files)
		if err := s.dir(rel, v); err != nil {
			return err
		}
		if len(s.found.Files) > before || out || !s.sel.has(rel) {
			return nil
		}
	case out || !s.sel.has(rel):
		return nil
	}
	if len(s.found.Files) == maxScanned {
		return sandbox.Errorf(sandbox.Exhausted, "the directory has more than %d files that count", maxScanned).
			WithHint("name the paths that are to be synced")
	}
	s.found.Files = append(s.found.Files, Found{newMark(rel, &st), kind})
	return nil
}

// SyncPlan is what a sync does to a workspace.
type SyncPlan struct {
	Bring  []Found  // in order
	Delete []string // the innermost first
	// Same is on both sides already.
	Same []Brought
	// Conflicts were changed on both sides, and are left as they are.
	Conflicts []SyncConflict
}

// SyncConflict is a path that a sync left alone.
type SyncConflict struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// PlanSync decides about found and gone, what the base has and no longer has, with the changes
// of the sandbox in set: what the sandbox changed, other than a sync before, is left. Of o, Brought and Applied count.
func PlanSync(ctx context.Context, base *Base, set *Set, o CompareOptions, found []Found, gone []string) (*SyncPlan, error) {
	p := &planner{
		ctx: ctx, base: base, set: set, gone: gone, brought: broughtByPath(o.Brought), dig: newDigester(), buf: make([]byte, 256<<10),
		added: newAdditions(base, set.header.Since, o), grow: map[string]bool{},
	}
	for _, rel := range gone {
		p.deleted(rel)
	}
	for _, f := range found {
		if err := p.found(f); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(p.plan.Delete, func(a, b string) int { return comparePaths(b, a) })
	return &p.plan, nil
}

type planner struct {
	ctx     context.Context
	base    *Base
	set     *Set
	gone    []string
	brought broughtSet
	added   *additions
	grow    map[string]bool // opaque directories that additions.takes was asked about
	dig     *digester
	buf     []byte
	plan    SyncPlan
}

// touched returns the sandbox's own change of a path, nil for none. above says that it is one of a directory
// on the way there.
func (p *planner) touched(rel string) (c *Change, above bool) {
	opaque := ""  // the outermost such directory around it
	missing := "" // the outermost path around it that that one has not
	for i := range len(rel) {
		if rel[i] != '/' {
			continue
		}
		e := p.set.find(rel[:i])
		if e == nil {
			if opaque != "" && missing == "" {
				missing = rel[:i]
			}
			continue
		}
		if e.Kind != Dir && !p.brought.has(&e.Change) {
			return &e.Change, true
		}
		if e.Opaque && opaque == "" {
			opaque = e.Path
		}
	}
	e := p.set.find(rel)
	switch {
	case e != nil:
		if p.brought.has(&e.Change) {
			return nil, false
		}
		return &e.Change, false
	case opaque != "" && !(p.grows(opaque) && p.added.is(cmp.Or(missing, rel))):
		return &Change{Path: rel, Kind: Deleted}, false
	}
	return nil, false
}

// grows reports whether what is new in an opaque directory was added by the host's user.
func (p *planner) grows(dir string) bool {
	takes, ok := p.grow[dir]
	if !ok {
		takes = p.added.takes(dir)
		p.grow[dir] = takes
	}
	return takes
}

func (p *planner) conflict(rel, reason string) {
	p.plan.Conflicts = append(p.plan.Conflicts, SyncConflict{rel, reason})
}

func (p *planner) deleted(rel string) {
	c, above := p.touched(rel)
	switch {
	case c == nil:
		p.plan.Delete = append(p.plan.Delete, rel)
	case above || c.Kind == Deleted:
		p.plan.Same = append(p.plan.Same, Brought{Mark: Mark{Path: rel}, Kind: Deleted})
	default:
		p.conflict(rel, "it was deleted here, and changed in the sandbox")
	}
}

func (p *planner) found(f Found) error {
	c, above := p.touched(f.Path)
	switch {
	case slices.ContainsFunc(p.gone, func(g string) bool { return g != f.Path && below(g, f.Path) }):
		if f.Kind == Dir { // it was there, and is empty now
			return nil
		}
		p.conflict(f.Path, "the sandbox has a directory there; remove that first")
		return nil
	case c == nil:
		p.plan.Bring = append(p.plan.Bring, f)
		return nil
	case above:
		p.conflict(f.Path, "the sandbox has no directory at "+term.Escape(c.Path)+" any more")
		return nil
	case f.Kind == Dir:
		if c.Kind != Dir {
			p.conflict(f.Path, "it is a directory here, and none in the sandbox")
		}
		return nil
	}
	b, err := p.now(f)
	if err != nil {
		return err
	}
	switch {
	case b.is(c):
		p.plan.Same = append(p.plan.Same, b)
	case c.Kind == Deleted:
		p.conflict(f.Path, "it was changed here, and deleted in the sandbox")
	default:
		p.conflict(f.Path, "it was changed here and in the sandbox")
	}
	return nil
}

// Now returns what WriteSync would bring of found, as it is now.
func (b *Base) Now(ctx context.Context, found []Found) ([]Brought, error) {
	p := &planner{ctx: ctx, base: b, dig: newDigester(), buf: make([]byte, 256<<10)}
	out := make([]Brought, 0, len(found))
	for _, f := range found {
		one, err := p.now(f)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// now is what the base has at f.
func (p *planner) now(f Found) (b Brought, err error) {
	b = Brought{Mark: f.Mark, Kind: f.Kind}
	st, err := p.base.stat(f.Path)
	if err != nil || st == nil {
		return b, err
	}
	b.Mode = st.Mode & 0o777
	switch f.Kind {
	case File:
		b.Digest, err = p.base.digest(p.ctx, f.Path, p.dig, p.buf)
	case Symlink:
		b.Target, err = p.base.readlink(f.Path)
	}
	if err != nil && context.Cause(p.ctx) == nil {
		return b, nil // it is no longer that: the next sync sees it
	}
	return b, err
}

// WriteSync writes found as a tar, and returns what that brings. What is no longer there, or is read while
// it changes, is left out of what it returns: the next sync finds it again.
func (b *Base) WriteSync(ctx context.Context, w io.Writer, found []Found) ([]Brought, error) {
	s := &syncWriter{ctx: ctx, base: b, tw: tar.NewWriter(w), dig: newDigester(), buf: make([]byte, 256<<10)}
	for _, f := range found {
		if err := s.write(f); err != nil {
			return nil, fmt.Errorf("%s: %w", term.Escape(f.Path), err)
		}
	}
	if err := s.tw.Close(); err != nil {
		return nil, err
	}
	return s.done, nil
}

type syncWriter struct {
	ctx  context.Context
	base *Base
	tw   *tar.Writer
	dig  *digester
	buf  []byte
	done []Brought
}

func (s *syncWriter) write(f Found) error {
	switch f.Kind {
	case File:
		return s.file(f)
	case Symlink:
		target, err := s.base.readlink(f.Path)
		if err != nil {
			return nil // it is gone, or something else by now
		}
		s.done = append(s.done, Brought{Mark: f.Mark, Kind: Symlink, Target: target})
		return s.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: f.Path, Linkname: target, ModTime: time.Now(), Format: tar.FormatPAX})
	}
	s.done = append(s.done, Brought{Mark: f.Mark, Kind: Dir})
	return s.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: f.Path + "/", Mode: 0o755, ModTime: time.Now(), Format: tar.FormatPAX})
}

func (s *syncWriter) file(f Found) error {
	in, st, err := s.base.open(f.Path)
	if err == nil && !s.base.ownerMay(&st, hasACL(in)) {
		in.Close()
		err = fs.ErrPermission // another by now
	}
	if err != nil {
		return nil // as above
	}
	defer in.Close()
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(st.Mode & 0o777), Size: st.Size, ModTime: statTime(st.Mtim), Format: tar.FormatPAX,
	}
	if err := s.tw.WriteHeader(h); err != nil {
		return err
	}
	s.dig.reset(st.Size)
	torn := false
	for off := int64(0); off < st.Size; {
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		p := s.buf[:min(int64(len(s.buf)), st.Size-off)]
		n, err := in.ReadAt(p, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n < len(p) { // it was cut: zeros stand in
			torn = true
			clear(p[n:])
		}
		s.dig.add(off, p)
		if _, err := s.tw.Write(p); err != nil {
			return err
		}
		off += int64(len(p))
	}
	b := Brought{Mark: newMark(f.Path, &st), Kind: File, Mode: st.Mode & 0o777, Digest: s.dig.sum()}
	if now, err := statFile(in); err != nil || torn || newMark(f.Path, &now) != b.Mark || now.Mtim != st.Mtim {
		b.Mark = Mark{Path: f.Path} // it is brought, but not as it is now
	}
	s.done = append(s.done, b)
	return nil
}

// ChangedSince returns those of found that are not as they were when seen was noted. Where
// nothing was, those that changed since then, by their change times.
func ChangedSince(found []Found, seen []Mark, since time.Time) []Found {
	byPath := make(map[string]Mark, len(seen))
	for _, m := range seen {
		byPath[m.Path] = m
	}
	limit := since.Add(-clockSlack).UnixNano()
	var out []Found
	for _, f := range found {
		was, known := byPath[f.Path]
		switch {
		case known && was == f.Mark, known && f.Kind == Dir:
		case known, len(seen) > 0, f.CTime >= limit:
			out = append(out, f)
		}
	}
	return out
}

// Gone returns those of paths at which the base has nothing, or a directory.
func (b *Base) Gone(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		st, err := b.stat(p)
		if err != nil {
			continue // another mount, or not to be read: not known
		}
		if st == nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			out = append(out, p)
		}
	}
	return out, nil
}
