package workspace

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// ApplyOptions tune Apply. The zero value applies everything that is neither
// held back nor in conflict, and nothing at all if there is a conflict.
type ApplyOptions struct {
	Paths []string // only these and what is below them; none means all
	// Filter is the one with which the stream was asked for.
	Filter sandbox.ChangesFilter
	// Brought is what syncs put into the workspace: that is no change of the sandbox's, and
	// what the base had then none of the host's.
	Brought []Brought
	// Allow names paths that are held back and wanted all the same. One that
	// a rule of HoldRules catches stands for all below it; any other for
	// itself alone. A set-id bit is applied only to a file named here.
	Allow []string
	// Check is called with all changes, before Confirm and before anything is
	// written; an error ends it with nothing changed. What the Diff shows is
	// what would be written: it was read, and the sandbox is not asked again.
	Check func(*Diff) error
	// Confirm is asked about each change that would be applied, before
	// anything is; an error ends it with nothing changed. New directories are
	// not asked about when something in them is. The Item's WritePatch shows
	// the very bytes that would be written.
	Confirm func(Item) (bool, error)
	// Since, if set, stands in for the stream's own time.
	Since time.Time
	// Force takes the workspace's side of conflicts with the host. It needs
	// Paths, so that it is never said of everything by accident; "." is all.
	Force bool
	// DryRun does everything but change the base. The stream needs no content.
	DryRun bool
	// Applied are the Marks of earlier results for the same workspace: what
	// Apply itself wrote is no change of the host's.
	Applied []Mark
	// Still, if set, reports whether the sandbox's commands are held still. Directories are renamed only while they are: a
	// sandbox that has moved on meanwhile would show them twice.
	Still func() bool
	// Note, if set, is called with marks of what is about to be left, several times. If this process is killed before there are
	// Marks, these and Applied, in the order that they came in, are for Base.Finish. An error ends it.
	Note func([]Mark) error
}

// Mark identifies what Apply left at a path.
type Mark struct {
	Path  string `json:"path"`
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	CTime int64  `json:"ctime"` // ns since 1970
	// Born is when what has the path was made, in ns since 1970, where the file system tells; 0: not known.
	Born int64 `json:"born,omitempty"`
	// Others says that the mark is for a file that had this path, and has other
	// names: wherever those are.
	Others bool `json:"others,omitempty"`
	// Self is that of the change which was applied there, where it is known and the path has a file or a link.
	Self Origin `json:"self,omitzero"`
	// Made says that Apply put what the path has where nothing was, or a directory where none was.
	Made bool `json:"made,omitempty"`
	// Begun is set of what an Apply was about to leave there. Only Base.Finish takes such a mark.
	Begun *Begun `json:"begun,omitempty"`
}

// Outcome is an item that was left alone.
type Outcome struct {
	Item   Item   `json:"item"`
	Reason string `json:"reason"`
	// Forceable says that Force would take the workspace's side.
	Forceable bool `json:"forceable,omitempty"`
}

// Result says what Apply did with each change, in the stream's order.
type Result struct {
	Applied   []Item    `json:"applied"`   // or would be, in a dry run
	Held      []Item    `json:"held"`      // left alone; Held says why
	Declined  []Item    `json:"declined"`  // left alone; Confirm said no
	Conflicts []Outcome `json:"conflicts"` // left alone; Reason says why
	Marks     []Mark    `json:"marks,omitempty"`
}

// Apply reads a stream to its end and then writes its changes to base, with
// the process's own rights.
//
// First it looks at everything: a change whose path was changed on the host
// since the workspace was made, by its change time, is a conflict unless both
// sides are the same now. Times come from a coarse clock, so that a change in
// the last moments before counts too. No copy of the earlier text is kept, so
// nothing is merged. If anything selected is in conflict, nothing is changed
// and the error is a Conflict; Result names all of it.
//
// Then it writes, in order. Directories that were renamed in the workspace, and are taken with all that is in
// them, are renamed first. A file is made whole under no name, or a temporary
// one beside its target, synced, and put in place in one step, so that at any
// moment the old or the new one is there. Between the last look at a target
// and that step lie microseconds in which a change on the host is lost. A file
// that is replaced keeps its permissions but for the executable bits, and its
// owner where the caller may set it; a new file gets the change's permissions
// less the umask, and the current time. A directory is removed entry by entry,
// and what changed in it since is left. An error in the middle leaves what was
// done: Result.Applied has it.
func Apply(ctx context.Context, base *Base, r io.Reader, opts ApplyOptions) (*Result, error) {
	a, err := newApplier(ctx, base, opts)
	if err != nil {
		return &Result{}, err
	}
	load := LoadOptions{
		SpoolDir: base.dir, SpoolHint: "to let yourself write there: chmod u+w " + shell.Word(base.name),
		Keep: func(c *Change) bool { return a.sel.has(c.Path) },
	}
	if opts.DryRun {
		load.SpoolDir = nil
	}
	set, err := Load(ctx, r, load)
	if err != nil {
		return &Result{}, err
	}
	defer set.Close()
	diff, err := Compare(ctx, base, set, opts.compare())
	if err != nil {
		return &Result{}, err
	}
	if opts.Check != nil {
		if err := opts.Check(diff); err != nil {
			return &a.result, err
		}
	}
	a.set, a.limit = set, diff.Since
	if !opts.Since.IsZero() {
		a.limit = opts.Since
	}
	a.limit = a.limit.Add(-clockSlack)
	if err := a.preflight(diff); err != nil {
		return &a.result, err
	}
	if opts.DryRun {
		for _, it := range a.plan {
			a.result.Applied = append(a.result.Applied, *it)
		}
		return &a.result, nil
	}
	return &a.result, a.carryOut()
}

// compare are the options by which what is to be applied is compared with the base.
func (o *ApplyOptions) compare() CompareOptions {
	return CompareOptions{Paths: o.Paths, Filter: o.Filter, Brought: o.Brought, Applied: o.Applied}
}

// clockSlack is by how much a change time may lie before the moment of the
// change: one tick of the kernel's slowest clock.
const clockSlack = 10 * time.Millisecond

// applier is one run of Apply.
type applier struct {
	ctx    context.Context
	base   *Base
	opts   ApplyOptions
	sel    selection
	allow  []string
	marks  map[string][]Mark
	others map[inode]int64 // change times of files that an earlier Apply took a name from
	set    *Set
	limit  time.Time
	plan   []*Item
	whole  []*Item // the plan before directories were renamed; nil: none was
	stage  stage
	result Result

	own     map[inode]ownTime
	moved   []move
	made    map[string]bool // directories for those that were renamed
	dirs    map[string]bool // of the base: whether they are others than the workspace's
	touched map[string]bool // directories that were written to
	modes   []dirMode       // of new directories, to set when they are full

	lostNames map[inode]lostName
}

func newApplier(ctx context.Context, base *Base, opts ApplyOptions) (*applier, error) {
	a := &applier{
		ctx: ctx, base: base, opts: opts, marks: map[string][]Mark{}, others: map[inode]int64{}, lostNames: map[inode]lostName{},
		touched: map[string]bool{}, dirs: map[string]bool{}, own: map[inode]ownTime{}, made: map[string]bool{},
	}
	a.result = Result{Applied: []Item{}, Held: []Item{}, Declined: []Item{}, Conflicts: []Outcome{}}
	if opts.Force && len(opts.Paths) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "apply: force needs the paths it is for").
			WithHint("name them, or . for all")
	}
	var err error
	if a.sel, err = newSelection(opts.Paths); err != nil {
		return nil, err
	}
	for _, p := range opts.Allow {
		one, err := newSelection([]string{p})
		if err != nil {
			return nil, err
		}
		a.allow = append(a.allow, one...) // "." allows nothing: it names nothing
	}
	for _, b := range opts.Brought {
		a.marks[b.Path] = append(a.marks[b.Path], b.Mark)
	}
	for _, m := range opts.Applied {
		if m.Others {
			a.others[inode{m.Dev, m.Ino}] = m.CTime
			continue
		}
		a.marks[m.Path] = append(a.marks[m.Path], m)
	}
	return a, nil
}

// preflight sorts the items into what is applied and what is not.
func (a *applier) preflight(diff *Diff) error {
	a.holdElsewhere(diff)
	asked := askedDirs(diff)
	out := map[string]string{} // paths that stay as they are on the host → how that came
	for i := range diff.Items {
		it := &diff.Items[i]
		if err := context.Cause(a.ctx); err != nil {
			return err
		}
		if it.heldElsewhere || it.Held != "" && !a.allowed(it) {
			a.result.Held = append(a.result.Held, *it)
			out[it.Path] = "held back"
			continue
		}
		no := Outcome{Item: *it, Reason: a.impossible(it)}
		var err error
		if no.Reason == "" {
			no.Reason, err = a.parentReason(it, out)
		}
		if no.Reason == "" && err == nil && !a.opts.Force {
			no.Reason, err = a.conflict(it)
			no.Forceable = true
		}
		if err != nil {
			return err
		}
		if no.Reason != "" {
			a.result.Conflicts = append(a.result.Conflicts, no)
			out[it.Path] = "in conflict"
			continue
		}
		if i := slices.Index(it.Notes, noteSetIDDropped); i >= 0 && a.setID(it) != 0 {
			it.Notes[i] = noteSetIDKept
		}
		a.plan = append(a.plan, it)
	}
	if len(a.result.Conflicts) > 0 {
		return conflictError(a.result.Conflicts)
	}
	if a.opts.Confirm == nil {
		return nil
	}
	return a.confirm(asked)
}

// confirm asks about what is planned, and takes out what is declined.
func (a *applier) confirm(asked map[string]bool) error {
	declined := "" // a path whose change to a directory was declined
	plan := a.plan[:0]
	for _, it := range a.plan {
		yes := it.Class == Added && it.Kind == Dir && asked[it.Path]
		switch {
		case declined != "" && below(it.Path, declined):
			yes = false
		case !yes:
			var err error
			if yes, err = a.opts.Confirm(*it); err != nil {
				return fmt.Errorf("apply: %w", err)
			}
			if !yes && it.Kind == Dir {
				declined = it.Path
			}
		}
		if yes {
			plan = append(plan, it)
		} else {
			a.result.Declined = append(a.result.Declined, *it)
		}
	}
	a.plan = plan
	a.keepDeclined()
	a.dropEmptyDirs(asked)
	return nil
}

// askedDirs returns the directories that something in the diff lies below.
func askedDirs(diff *Diff) map[string]bool {
	asked := map[string]bool{}
	for i := range diff.Items {
		for p, _ := splitPath(diff.Items[i].Path); p != "." && !asked[p]; p, _ = splitPath(p) {
			asked[p] = true
		}
	}
	return asked
}

// dropEmptyDirs takes out of the plan the new directories that were not asked
// about and of whose contents nothing was accepted.
func (a *applier) dropEmptyDirs(asked map[string]bool) {
	needed := map[string]bool{}
	for i := len(a.plan) - 1; i >= 0; i-- {
		it := a.plan[i]
		if it.Class == Added && it.Kind == Dir && asked[it.Path] && !needed[it.Path] {
			a.plan = slices.Delete(a.plan, i, i+1)
			continue
		}
		parent, _ := splitPath(it.Path)
		needed[parent] = true
	}
}

// allowed reports whether the user named a held item.
func (a *applier) allowed(it *Item) bool {
	if it.Kind == Special {
		return false
	}
	return slices.ContainsFunc(a.allow, func(p string) bool {
		return p == it.Path || below(it.Path, p) && HeldByName(p) != ""
	})
}

// parentReason returns why an item can't be applied because of the directory
// that it is to be in.
func (a *applier) parentReason(it *Item, out map[string]string) (string, error) {
	for p, _ := splitPath(it.Path); p != "."; p, _ = splitPath(p) {
		if out[p] == "" && a.sel.has(p) {
			continue
		}
		st, err := a.base.stat(p)
		if err != nil {
			return "", err
		}
		if st == nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if why := out[p]; why != "" {
			return fmt.Sprintf("%s is not a directory here, and its change is %s", term.Escape(p), why), nil
		}
		return fmt.Sprintf("%s is not a directory here; apply that too", term.Escape(p)), nil
	}
	return "", nil
}

// impossible returns why an item can't be applied even if the user asks for it, or
// "".
func (a *applier) impossible(it *Item) string {
	switch {
	case it.blocked != "":
		return it.blocked
	case it.entry.torn:
		return "it changed in the sandbox while it was read; try again"
	case it.Kind == File && it.Class != ModeChanged && !it.entry.stored && !a.opts.DryRun:
		return "the stream has no content"
	}
	return ""
}

// conflict returns what on the host an item would overwrite, or "".
func (a *applier) conflict(it *Item) (string, error) {
	switch {
	case it.Class == Added:
		if it.Copied && it.Kind == File && a.changedAround(it.Path) {
			return "it seems to have been deleted on the host since the workspace was made", nil
		}
		return "", nil
	case a.changed(it.Path, it.base):
		return a.changedReason(it), nil
	}
	if dir := a.replacedAround(it.Path); dir != "" {
		return term.Escape(dir) + " is not the directory that it was when the workspace was made", nil
	}
	if it.Was == Dir && it.Kind != Dir {
		return a.changedBelow(it.Path)
	}
	return "", nil
}

func (a *applier) changedReason(it *Item) string {
	if slices.ContainsFunc(a.opts.Applied, func(m Mark) bool { return m.Path == it.Path }) {
		return "it changed on the host since an earlier apply wrote it, by an edit or git checkout"
	}
	if it.Was == File && it.Kind == File {
		return "it changed on the host since the workspace was made, and no copy of the earlier text is kept to merge with"
	}
	return "it changed on the host since the workspace was made"
}

// changed reports whether something of the base is not as it was when the
// workspace was made, nor as an earlier Apply left it.
func (a *applier) changed(rel string, s stamp) bool {
	ctime := a.ctime(s)
	if ctime < a.limit.UnixNano() {
		return false
	}
	if left, ok := a.others[s.inode()]; ok && left == ctime {
		return false
	}
	now := Mark{Dev: s.dev, Ino: s.ino} // a birth would say no more: what was made since has a later change time
	return !slices.ContainsFunc(a.marks[a.wasAt(rel)], func(m Mark) bool {
		return m.same(now) && m.CTime == ctime
	})
}

// changedAround reports whether the directory that a path is in, or was in,
// has gained or lost entries since the workspace was made.
func (a *applier) changedAround(rel string) bool {
	for {
		rel, _ = splitPath(rel)
		if st, err := a.base.stat(rel); err == nil && st != nil {
			return a.changed(rel, newStamp(st))
		}
		if rel == "." {
			return true
		}
	}
}

// changedBelow returns a reason where anything below a directory changed.
func (a *applier) changedBelow(dir string) (string, error) {
	reason := ""
	err := a.base.walk(a.ctx, dir, func(rel string, st *unix.Stat_t) error {
		if reason == "" && a.changed(rel, newStamp(st)) {
			reason = term.Escape(rel) + ", which would be removed with it, changed on the host since the workspace was made"
		}
		return nil
	})
	if err != nil && context.Cause(a.ctx) == nil {
		return reasonFor(err), nil
	}
	return reason, err
}

// conflictError says what a user can do about conflicts.
func conflictError(conflicts []Outcome) error {
	var paths []string
	for _, c := range conflicts {
		if !c.Forceable {
			continue
		}
		if len(paths) == 3 {
			paths = append(paths, "…")
			break
		}
		paths = append(paths, term.Escape(c.Item.Path))
	}
	e := sandbox.Errorf(sandbox.Conflict, "apply: %d conflicts, nothing was changed", len(conflicts))
	if len(conflicts) == 1 {
		e = sandbox.Errorf(sandbox.Conflict, "apply: %s: %s; nothing was changed", term.Escape(conflicts[0].Item.Path), conflicts[0].Reason)
	}
	if len(paths) == 0 {
		return e.WithHint("apply other paths")
	}
	return e.WithHint("apply other paths, or take the workspace's side: --force %s", strings.Join(paths, " "))
}
