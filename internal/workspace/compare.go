package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Class says what a change does to the base.
type Class string

// The classes. The JSON of a diff carries their text.
const (
	Added       Class = "added"
	Modified    Class = "modified" // content, or a link's target
	Removed     Class = "deleted"
	ModeChanged Class = "mode" // executable or not; the content is the same
	TypeChanged Class = "type"
)

// Letter returns the class as one letter, like git's: A, M, D, X or T.
func (c Class) Letter() string {
	switch c {
	case Added:
		return "A"
	case Modified:
		return "M"
	case Removed:
		return "D"
	case ModeChanged:
		return "X"
	case TypeChanged:
		return "T"
	}
	return "?"
}

// Item is a change that makes a difference to the base.
type Item struct {
	Change
	Class   Class    `json:"class"`
	Was     Kind     `json:"was,omitempty"`      // what the base has at the path
	WasMode uint32   `json:"was_mode,omitempty"` // its permission bits
	Removes int      `json:"removes,omitempty"`  // how many entries in a directory of the base go with it
	Held    string   `json:"held,omitempty"`     // why Apply leaves it alone until it is named
	Notes   []string `json:"notes,omitempty"`    // what a user should see before applying it

	// From is the file of the base that this one is, renamed, and Similarity how much of it is
	// still the same, in percent. To is where what is deleted is now. FindRenames sets them.
	From       string `json:"from,omitempty"`
	Similarity int    `json:"similarity,omitempty"`
	To         string `json:"to,omitempty"`

	base    stamp  // what was there when it was compared
	tree    Digest // and, where that is a directory that goes, what was in it
	entry   *entry
	diff    *Diff
	blocked string // why it can't be applied, even if the user asks for it

	heldForText  bool // Held is for what its content says
	unchangeable bool // blocked is for what this process may not do

	// With is what has to be named beside it, where it is held back for what is not taken there.
	With string `json:"-"`

	elsewhere     []elsewhere // where in the workspace is what the base loses by it
	heldElsewhere bool        // Held is for that
	heldBefore    string      // and what it was else
	moves         []move      // of directories of the base in it, to where they are in the workspace
	shown         []string    // directories of the base in it that the running sandbox has open
	shownAs       string      // one of them, in the sandbox
	onlyShown     bool        // nothing can be done while the sandbox runs
	stuck         bool        // With can't be taken either
}

// Diff is what a set of changes would do to a base.
type Diff struct {
	Since time.Time `json:"since"`
	Items []Item    `json:"changes"` // in the stream's order

	// Left counts what is no item because the filter leaves it out.
	Left Left `json:"left"`

	set    *Set
	base   *Base
	sel    selection
	filter sandbox.ChangesFilter
	moved  map[string]bool // files of the base that FindRenames found elsewhere
}

// CompareOptions say what of a set counts. The zero value is everything.
type CompareOptions struct {
	Paths []string // only these and what is below them; none means all
	// Filter is the one with which the stream was asked for.
	Filter sandbox.ChangesFilter
	// Brought is what syncs put into the workspace: where that is still as it was
	// brought, it is no change.
	Brought []Brought
	// Applied are the Marks of earlier applies: what they wrote is known by them, by whatever path it goes since.
	Applied []Mark
}

// Summary counts a diff's items.
type Summary struct {
	Added       int `json:"added"`
	Modified    int `json:"modified"`
	Deleted     int `json:"deleted"`
	ModeChanged int `json:"mode"`
	TypeChanged int `json:"type"`
	Renamed     int `json:"renamed,omitempty"` // found by FindRenames, and neither added nor deleted
	Held        int `json:"held"`              // of those above
}

// Summary counts d's items.
func (d *Diff) Summary() Summary {
	var s Summary
	for i := range d.Items {
		switch it := &d.Items[i]; it.Class {
		case Added:
			if it.From != "" {
				s.Renamed++
				break
			}
			s.Added++
		case Modified:
			s.Modified++
		case Removed:
			if it.To == "" {
				s.Deleted++
			}
		case ModeChanged:
			s.ModeChanged++
		case TypeChanged:
			s.TypeChanged++
		}
		if d.Items[i].Held != "" {
			s.Held++
		}
	}
	return s
}

// executable is the one bit of a mode that counts, as for git.
func executable(mode uint32) bool { return mode&0o100 != 0 }

// Compare returns the changes in set that make a difference to base. Gone are files that were copied up and not changed:
// those of the same content and the same executable bit. Directories that the
// base has keep their modes. Deletions that an opaque directory implies are
// spelled out. Nothing is written.
//
// A path at which nothing is on either side is an error. The Diff uses base and
// set; keep both open.
func Compare(ctx context.Context, base *Base, set *Set, o CompareOptions) (*Diff, error) {
	sel, err := newSelection(o.Paths)
	if err == nil {
		err = CheckFilter(o.Filter)
	}
	if err != nil {
		return nil, err
	}
	c := &comparer{
		ctx: ctx, base: base, set: set, sel: sel, bare: newBareFinder(base, set),
		dig: newDigester(), buf: make([]byte, 256<<10), items: []Item{},
		filter: newFilter(o.Filter, sel), brought: broughtByPath(o.Brought), left: set.left,
		find: newFinder(set, o.Applied), added: newAdditions(base, set.header.Since, o),
	}
	err = c.run()
	if err == nil && set.header.Apart {
		err = c.unmade(o.Applied)
	}
	if err == nil {
		err = c.findElsewhere()
	}
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	if err := c.checkFound(o.Paths); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.items, func(a, b Item) int { return comparePaths(a.Path, b.Path) })
	if !c.filter.only.Empty() {
		c.dropEmptyDirs()
	}
	d := &Diff{Since: set.header.Since, Items: c.items, Left: c.left, set: set, base: base, sel: sel, filter: o.Filter}
	for i := range d.Items {
		d.Items[i].diff = d
	}
	return d, nil
}

type comparer struct {
	ctx   context.Context
	base  *Base
	set   *Set
	sel   selection
	bare  *bareFinder
	dig   *digester
	buf   []byte
	items []Item

	filter  *filter
	brought broughtSet
	left    Left
	find    *finder
	added   *additions
	unread  *bool // set names something that its directory's owner may not read; nil: nobody looked
}

// dropEmptyDirs takes out new directories in which nothing is an item: those that only
// led to what is left out.
func (c *comparer) dropEmptyDirs() {
	kept, last := len(c.items), ""
	for i := len(c.items) - 1; i >= 0; i-- {
		it := &c.items[i]
		if it.Class == Added && it.Kind == Dir && (last == "" || !below(last, it.Path)) && !c.filter.only.Has(it.Path, true) {
			continue
		}
		last = it.Path
		kept--
		c.items[kept] = *it
	}
	c.items = c.items[kept:]
}

func (c *comparer) run() error {
	opaque := "" // the outermost opaque directory around the current path
	grows := false
	for i := range c.set.entries {
		e := &c.set.entries[i]
		if opaque != "" && !below(e.Path, opaque) {
			opaque = ""
		}
		if e.Kind == Dir && e.Opaque && opaque == "" {
			opaque, grows = e.Path, c.added.takes(e.Path)
		}
		var err error
		switch {
		case c.sel.has(e.Path):
			if err = c.entry(e); err == nil && e.Kind == Dir && opaque != "" {
				err = c.hidden(e.Path, grows)
			}
		case e.Kind != Dir:
			err = c.implied(c.sel.under(e.Path))
		case opaque != "":
			err = c.implied(slices.DeleteFunc(c.sel.under(e.Path), func(p string) bool {
				child := childOf(e.Path, p)
				return c.set.find(child) != nil || grows && c.added.is(child)
			}))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkFound refuses paths at and below which nothing is, nor was changed.
func (c *comparer) checkFound(paths []string) error {
	for _, p := range paths {
		clean := path.Clean(p)
		if i := c.set.search(clean); clean == "." || i < len(c.set.entries) && below(c.set.entries[i].Path, clean) {
			continue
		}
		if st, err := c.base.stat(clean); st == nil && err == nil {
			return sandbox.Errorf(sandbox.Invalid, "path %q: nothing is there, neither here nor in the sandbox", term.Escape(p)).
				WithHint("paths are relative to the workspace: src/main.go")
		}
	}
	return nil
}

// childOf returns the path of dir's entry on the way to p, which is below dir.
func childOf(dir, p string) string {
	for i := len(dir) + 1; i < len(p); i++ {
		if p[i] == '/' {
			return p[:i]
		}
	}
	return p
}

// implied adds deletions that the stream does not name.
func (c *comparer) implied(paths []string) error {
	for _, p := range paths {
		if err := c.entry(&entry{Change: Change{Path: p, Kind: Deleted}}); err != nil {
			return err
		}
	}
	return nil
}

// hidden adds a deletion for everything that the base has in an opaque directory
// and the stream does not. grows says that what the host's user added to it is none.
func (c *comparer) hidden(dir string, grows bool) error {
	st, err := c.base.stat(dir)
	if err != nil || st == nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil // what is wrong there was said at its own entry
	}
	d, err := c.base.openDir(dir)
	if errors.Is(err, os.ErrPermission) { // what is deleted can't be known, nor done
		gone := Change{Path: dir, Kind: Deleted}
		c.items = append(c.items, Item{
			Change: gone, Class: Removed, Was: Dir, WasMode: st.Mode & 0o7777, base: newStamp(st),
			entry: &entry{Change: gone}, Held: reasonUnreadable, blocked: reasonUnreadable, unchangeable: true,
		})
		return nil
	}
	if err != nil {
		return err // not to know what is deleted is no answer
	}
	names, err := listDir(d)
	d.Close()
	if err != nil {
		return err
	}
	var gone []string
	for _, name := range names {
		if p := joinPath(dir, name); c.set.find(p) == nil && !(grows && c.added.is(p)) {
			gone = append(gone, p)
		}
	}
	return c.implied(gone)
}

// entry classifies one change and keeps it if it makes a difference.
func (c *comparer) entry(e *entry) error {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	it := Item{Change: e.Change, entry: e}
	st, err := c.base.stat(e.Path)
	if err != nil {
		if errors.Is(err, unix.EIO) {
			return err
		}
		if it.blocked = reasonFor(err); it.blocked == reasonUnreadable {
			dir, _ := splitPath(e.Path)
			it.blocked, it.unchangeable = "you may not read "+term.Escape(dir), true
		}
	}
	it.base = newStamp(st)
	if st != nil {
		it.Was, _ = kindOf(st)
		it.WasMode = st.Mode & 0o7777
	}
	if c.brought.has(&e.Change) {
		return nil
	}
	out, ignored := c.filter.leaves(e.Path, it.Kind == Dir || it.Was == Dir)
	if out && it.Kind == Dir && it.Was == Dir { // it only leads somewhere
		return nil
	}
	if err := c.classify(&it, st); err != nil || it.Class == "" {
		return err
	}
	switch {
	case out && ignored && (it.Kind != Dir || !c.filter.ignored.Leads(e.Path)):
		c.left.Ignored++
		return nil
	case out && !ignored:
		c.left.Excluded++
		return nil
	}
	if err := c.hold(&it); err != nil {
		return err
	}
	c.annotate(&it)
	c.items = append(c.items, it)
	return nil
}

const reasonUnreadable = "you may not read it"

// reasonFor is a short reason of an error of the base.
func reasonFor(err error) string {
	switch {
	case errors.Is(err, errMount):
		return errMount.Error()
	case errors.Is(err, os.ErrPermission):
		return reasonUnreadable
	}
	return term.Escape(err.Error())
}

// classify sets it.Class, and leaves it empty where nothing differs.
func (c *comparer) classify(it *Item, st *unix.Stat_t) error {
	switch {
	case it.Kind == Deleted:
		if st != nil || it.blocked != "" {
			it.Class = Removed
		}
	case st == nil:
		it.Class = Added
	case it.Kind == Special && it.Was == Special:
		// Nothing tells whether it is the same, and nothing would be done.
	case it.Was != it.Kind:
		it.Class = TypeChanged
	case it.Kind == File:
		return c.file(it, st)
	case it.Kind == Symlink:
		target, err := c.base.readlink(it.Path)
		if err != nil || target != it.Target {
			it.Class = Modified
		}
	}
	return nil
}

func (c *comparer) file(it *Item, st *unix.Stat_t) error {
	same := st.Size == it.Size
	if same {
		sum, err := c.base.digest(c.ctx, it.Path, c.dig, c.buf)
		if cause := context.Cause(c.ctx); cause != nil {
			return cause
		}
		if err != nil {
			it.blocked = reasonFor(err)
		}
		same = err == nil && sum == it.Digest
	}
	switch {
	case !same:
		it.Class = Modified
	case executable(st.Mode) != executable(it.Mode):
		it.Class = ModeChanged
	}
	return nil
}

// The notes about set-id bits: they are for a file that the user named.
const (
	noteSetIDDropped = "set-id bits are dropped"
	noteSetIDKept    = "gets set-id bits, as you named it"
)

// annotate adds the notes.
func (c *comparer) annotate(it *Item) {
	if it.Kind == File && it.Was == File && executable(it.Mode) && !executable(it.WasMode) {
		it.Notes = append(it.Notes, "becomes executable")
	}
	if it.Kind == File && it.Mode&0o6000 != 0 {
		it.Notes = append(it.Notes, noteSetIDDropped)
	}
	if it.Removes > 0 {
		it.Notes = append(it.Notes, "removes "+entriesText(it.Removes))
	}
}

// Differs reports whether Compare would find a change in the stream r that counts; a nil
// function: each does. It reads no further than to the first.
func Differs(ctx context.Context, base *Base, r io.Reader, o CompareOptions, counts func(path string) bool) (bool, error) {
	found := func(items []Item) bool {
		return slices.ContainsFunc(items, func(it Item) bool { return counts == nil || counts(it.Path) })
	}
	in, err := NewReader(r)
	if err != nil {
		return false, err
	}
	set := &Set{header: in.Header()}
	c := &comparer{
		ctx: ctx, base: base, set: set, bare: newBareFinder(base, set), dig: newDigester(), buf: make([]byte, 256<<10),
		filter: newFilter(o.Filter, nil), brought: broughtByPath(o.Brought),
	}
	for {
		change, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
		e := entry{Change: change}
		e.Body = nil
		set.entries = append(set.entries, e)
		if e.Kind == Dir { // it may hide much, or lead to nothing: that shows at the end
			continue
		}
		if err := c.entry(&set.entries[len(set.entries)-1]); err != nil || found(c.items) {
			return err == nil, err
		}
		c.items = c.items[:0]
	}
	d, err := Compare(ctx, base, set, o)
	return err == nil && found(d.Items), err
}
