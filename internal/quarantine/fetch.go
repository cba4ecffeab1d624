package quarantine

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// Source is the repository of a sandbox. All that it writes is hostile.
type Source interface {
	// Refs lists branches, tags and HEAD, as git show-ref does.
	Refs(ctx context.Context, out io.Writer) error
	// Commits lists the newest commits that lead to tips, each with its parents after it,
	// as git rev-list --parents does.
	Commits(ctx context.Context, tips []string, most int, out io.Writer) error
	// Pack packs what leads to want and not to have, into a pack that is whole by itself.
	Pack(ctx context.Context, want, have []string, out io.Writer) error
}

// Options say what is taken, and how much may come.
type Options struct {
	State string   // the caller's own directory of state, where the quarantine is
	ID    string   // the sandbox's
	Name  string   // the sandbox's, which its refs are below
	Named []string // branches and tags; none: all with work of their own
	Prune bool     // remove refs of the sandbox's that it has no more

	MaxBytes  int64 // of a pack; 0: DefaultBytes
	MaxObject int64 // bytes of a file; 0: DefaultObject
}

// What may come where nothing is said.
const (
	DefaultBytes  = 1 << 30
	DefaultObject = 100 << 20

	maxObjects  = 4_000_000
	maxMeta     = 32 << 20
	maxDepth    = 4096
	unpackTimes = 16 // as much as the pack may have, unpacked
)

// limits are what a pack may have.
func (o *Options) limits() pack.Limits {
	l := pack.Limits{Bytes: o.MaxBytes, Objects: maxObjects, Object: o.MaxObject, Meta: maxMeta, Depth: maxDepth}
	if l.Bytes == 0 {
		l.Bytes = DefaultBytes
	}
	if l.Object == 0 {
		l.Object = DefaultObject
	}
	l.Unpacked = max(l.Bytes*unpackTimes, l.Object)
	return l
}

// State says what became of a ref.
type State string

// What becomes of refs.
const (
	New       State = "new"
	Forwarded State = "updated"
	Forced    State = "forced" // what it was before is no part of what it is
	Same      State = "same"
	Gone      State = "gone"   // inside; it is kept here
	Pruned    State = "pruned" // gone inside, and removed here
)

// Change is a ref of the sandbox's, here.
type Change struct {
	Ref     string   `json:"ref"`    // here
	Inside  string   `json:"inside"` // what it is called there; "" where it is gone
	State   State    `json:"state"`
	Old     string   `json:"old,omitempty"`
	New     string   `json:"new,omitempty"`
	Commits []Commit `json:"commits"` // those that neither you nor an earlier fetch had, newest first
	More    bool     `json:"more"`    // there are more
	Held    []Held   `json:"held"`    // what a merge would change, and your machine run or obey: the first of each kind

	HeldKinds []HeldKind `json:"held_kinds"` // how many there are of each kind, the worst first
}

// HeldKind counts what is held for one reason.
type HeldKind struct {
	Why   string `json:"why"`
	Count int    `json:"count"`
}

// Held is what an apply would hold back. Its name is hostile text.
type Held struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Commit is one of a sandbox's. The subject is hostile text.
type Commit struct {
	ID      string `json:"id"`
	Subject string `json:"subject"`
}

// Result is what a fetch did.
type Result struct {
	Refs    []Change `json:"refs"`
	Objects int      `json:"objects"` // how many came
	Bytes   int64    `json:"bytes"`
}

// Prefix is below which refs of a sandbox stand.
func Prefix(name string) string { return "refs/carboy/" + name + "/" }

// Fetch takes commits from src into r. After an error nothing of r is changed, or, where
// the error is of the last step, nothing but that it has objects that no ref leads to. If
// refs that were pruned are gone although it failed, the error names them.
func (r *Repository) Fetch(ctx context.Context, src Source, o Options) (_ *Result, err error) {
	w, err := openWard(o.State, o.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.furnish(r); err != nil {
		return nil, err
	}
	f := &fetch{Repository: r, o: o, src: src, ward: w, git: w.reader(r), prefix: Prefix(o.Name), res: &Result{Refs: []Change{}}}
	if err := f.run(ctx); err != nil {
		return nil, err
	}
	return f.res, nil
}

// fetch is one Fetch.
type fetch struct {
	*Repository
	o      Options
	src    Source
	ward   *ward
	git    *jail.Git
	prefix string
	pack   *pack.Pack // nil: none came
	res    *Result

	theirs []string // objects of the user's refs: all but the sandbox's
	taken  []string // objects of the sandbox's refs, of earlier fetches
	take   []target // what is to be taken
	gone   []string // refs here that are gone inside

	trees  *workspace.HoldTree // what all branches have together
	bases  string              // commits, of which listed are
	listed []*listing          // of the last branch's, as the next one's are mostly the same
}

// target is a ref that is to be taken.
type target struct {
	inside
	ref string // here
	old string // what it is here; "" for none
}

func (f *fetch) run(ctx context.Context) error {
	if err := f.plan(ctx); err != nil {
		return err
	}
	if err := f.bring(ctx); err != nil {
		return err
	}
	if err := f.examine(ctx); err != nil {
		return err
	}
	if err := f.describe(ctx); err != nil {
		return err
	}
	return f.keep(ctx)
}

// plan asks for the sandbox's refs, and finds those that are to be taken.
func (f *fetch) plan(ctx context.Context) error {
	out := &jail.Bounded{Limit: maxListed}
	if err := f.src.Refs(ctx, out); err != nil {
		return orOver(out, err, "a list of branches that is longer than can be")
	}
	all, err := parseRefs(out.Bytes(), f.isID)
	if err != nil {
		return err
	}
	all = detached(all)
	chosen, err := choose(all, f.o.Named)
	if err != nil {
		return err
	}
	own := map[string]string{}
	known := map[string]bool{}
	for name, id := range f.Refs {
		if strings.HasPrefix(name, f.prefix) {
			own[name] = id
			f.taken = append(f.taken, id)
		} else if !known[id] {
			known[id] = true
			f.theirs = append(f.theirs, id)
		}
	}
	slices.Sort(f.theirs)
	if err := f.target(ctx, chosen, own, known); err != nil {
		return err
	}
	f.findGone(all, own)
	return f.checkPaths()
}

// detached leaves HEAD out where a branch has its commit.
func detached(all []inside) []inside {
	i := slices.IndexFunc(all, func(r inside) bool { return r.name == headRef })
	if i < 0 || !slices.ContainsFunc(all, func(r inside) bool { return strings.HasPrefix(r.name, branchPrefix) && r.id == all[i].id }) {
		return all
	}
	return slices.Delete(all, i, i+1)
}

// orOver is err, or that a list was too long.
func orOver(b *jail.Bounded, err error, what string) error {
	if b.Over() {
		return refused("%s", what)
	}
	return err
}

// target finds which of the refs that were chosen have something to take.
func (f *fetch) target(ctx context.Context, chosen []inside, own map[string]string, known map[string]bool) error {
	var unsure []target
	for _, i := range chosen {
		ref, err := i.here(f.prefix)
		old := own[ref]
		named := len(f.o.Named) > 0
		switch {
		case err == nil && old == i.id:
			f.res.Refs = append(f.res.Refs, Change{Ref: ref, Inside: i.name, State: Same, Old: old, New: i.id, Commits: []Commit{}, Held: []Held{}, HeldKinds: []HeldKind{}})
			continue
		case old == "" && !named && known[i.id]:
			continue
		case err != nil:
			return err
		}
		t := target{i, ref, old}
		if old != "" || named {
			f.take = append(f.take, t)
		} else {
			unsure = append(unsure, t)
		}
	}
	return f.settle(ctx, unsure)
}

// settle takes of the refs that are new those with commits that the user's do not lead to.
func (f *fetch) settle(ctx context.Context, unsure []target) error {
	var ids []string
	for _, t := range unsure {
		ids = append(ids, t.id)
	}
	kinds, err := f.kinds(ctx, ids)
	if err != nil {
		return err
	}
	var present []string
	for id, kind := range kinds {
		if kind == "commit" {
			present = append(present, id)
		}
	}
	fresh, err := f.unled(ctx, present)
	if err != nil {
		return err
	}
	for _, t := range unsure {
		if kinds[t.id] != "commit" || fresh[t.id] {
			f.take = append(f.take, t)
		}
	}
	if len(f.take) > maxTaken {
		return refused("%d branches and tags with work of their own, where %d can be taken at once", len(f.take), maxTaken).
			WithHint("name those that you want: carboy fetch %s BRANCH", f.o.Name)
	}
	return nil
}

// findGone notes the refs here that the sandbox has no more.
func (f *fetch) findGone(all []inside, own map[string]string) {
	if len(f.o.Named) > 0 {
		return
	}
	for _, i := range all {
		if ref, err := i.here(f.prefix); err == nil {
			delete(own, ref)
		}
	}
	f.gone = slices.Sorted(maps.Keys(own))
}

// checkPaths refuses refs that would have to be a file and a directory at once.
func (f *fetch) checkPaths() error {
	var refs []string
	for ref := range f.Refs {
		if strings.HasPrefix(ref, f.prefix) && (!f.o.Prune || !slices.Contains(f.gone, ref)) {
			refs = append(refs, ref)
		}
	}
	for _, t := range f.take {
		refs = append(refs, t.ref)
	}
	slices.Sort(refs)
	refs = slices.Compact(refs)
	for _, ref := range refs {
		for at := len(f.prefix); ; {
			i := strings.IndexByte(ref[at:], '/')
			if i < 0 {
				break
			}
			if at += i; slices.Contains(refs, ref[:at]) {
				return sandbox.Errorf(sandbox.Conflict, "%s and %s can't both be: git keeps one in a file, where the other needs a directory", ref[:at], ref).
					WithHint("carboy fetch --prune %s removes what is gone inside", f.o.Name)
			}
			at++
		}
	}
	return nil
}
