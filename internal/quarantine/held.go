package quarantine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

const (
	maxHeld  = 20       // files of a kind that are named
	maxBases = 8        // commits that a merge may start from
	maxLink  = 4 << 10  // bytes of a link's target, as of a path
	maxAttr  = 1 << 20  // bytes of a .gitattributes that is read
	maxTexts = 32 << 20 // bytes of all that is read for one branch
	maxAsked = 100_000  // objects that are asked for
)

// What git calls what a tree has.
const (
	modeLink      = "120000 "
	modeSubmodule = "160000 "
	modeTree      = "040000 "
)

// listing is what of a commit's files may be held back, and what each is: mode, type and id.
type listing struct {
	what map[string]string
	tree *workspace.HoldTree
}

// held lists what an apply would hold back, where it is not as in a commit that the branch has
// in common with what is checked out. It goes by files alone, and not by which commits are
// new: those may have come by another branch.
func (f *fetch) held(ctx context.Context, t target, c *Change) error {
	if err := f.listBases(ctx, t); err != nil {
		return err
	}
	after, err := f.list(ctx, t.id)
	if errors.Is(err, jail.ErrOver) {
		return refused("a branch %q with more files than can be looked at: what of them your machine would run or obey could not be said", clip(t.short()))
	}
	if err != nil {
		return err
	}
	var changed []string
	for name, what := range after.what {
		if len(f.listed) == 0 || slices.ContainsFunc(f.listed, func(l *listing) bool { return l.what[name] != what }) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	all, err := f.reasons(ctx, after, changed)
	if err != nil {
		return err
	}
	c.Held, c.HeldKinds = byKind(all)
	return nil
}

// byKind counts what is held of each kind, and keeps the first ones: many of one kind hide
// none of another.
func byKind(all []Held) ([]Held, []HeldKind) {
	counts := map[string]int{}
	held, kinds := []Held{}, []HeldKind{}
	for _, h := range all {
		if counts[h.Why]++; counts[h.Why] <= maxHeld {
			held = append(held, h)
		}
	}
	order := func(a, b string) int {
		return cmp.Or(cmp.Compare(workspace.HoldRank(a), workspace.HoldRank(b)), cmp.Compare(a, b))
	}
	slices.SortStableFunc(held, func(a, b Held) int { return order(a.Why, b.Why) })
	for _, why := range slices.SortedFunc(maps.Keys(counts), order) {
		kinds = append(kinds, HeldKind{why, counts[why]})
	}
	return held, kinds
}

// listBases lists the commits that a merge of t would start from. Where there are more than
// are looked at, it is as if there were none.
func (f *fetch) listBases(ctx context.Context, t target) error {
	if f.trees == nil {
		f.trees = workspace.NewHoldTree()
		if f.Head == "" {
			return nil
		}
		if _, err := f.list(ctx, f.Head); err != nil { // what is merged comes to it
			return err
		}
	}
	if f.Head == "" {
		return nil
	}
	out, err := f.git.Output(ctx, nil, maxLog, "merge-base", "--all", f.Head, t.id)
	if g, ok := errors.AsType[*jail.Error](err); err != nil && (!ok || !g.Silent) {
		return unread(err)
	}
	if string(out) == f.bases {
		return nil
	}
	f.bases, f.listed = string(out), nil
	ids := strings.Fields(f.bases)
	if len(ids) > maxBases {
		return nil
	}
	for _, id := range ids {
		l, err := f.list(ctx, id)
		if err != nil {
			return err
		}
		f.listed = append(f.listed, l)
	}
	return nil
}

// list reads the names of all files of a commit. Git lists them one by one: a difference of
// many it would have in memory.
func (f *fetch) list(ctx context.Context, commit string) (*listing, error) {
	out, err := f.git.Output(ctx, nil, maxPaths, "ls-tree", "-r", "-t", "-z", "--full-tree", commit+"^{tree}")
	if err != nil {
		return nil, unread(err)
	}
	l := &listing{map[string]string{}, f.trees.Beside()}
	text := string(out)
	for line := range strings.SplitSeq(text, "\x00") {
		if _, name, ok := strings.Cut(line, "\t"); ok {
			l.tree.Add(name)
		}
	}
	for line := range strings.SplitSeq(text, "\x00") {
		if what, name, ok := strings.Cut(line, "\t"); ok && l.concerns(what, name) {
			l.what[strings.Clone(name)] = strings.Clone(what)
		}
	}
	if l.tree.HeldDir(".") != "" {
		l.what["."] = modeTree + commit
	}
	return l, nil
}

// concerns reports whether a file may be one that is held back, by what is known without
// its text.
func (l *listing) concerns(what, name string) bool {
	if strings.HasPrefix(what, modeTree) {
		return l.tree.HeldDir(name) != ""
	}
	return strings.HasPrefix(what, modeLink) || strings.HasPrefix(what, modeSubmodule) ||
		workspace.IsAttributes(name) || workspace.HeldByName(name) != ""
}

// reasons returns those of the names that are held back, and why.
func (f *fetch) reasons(ctx context.Context, l *listing, names []string) ([]Held, error) {
	texts, err := f.texts(ctx, l, names)
	if err != nil {
		return nil, err
	}
	for name, what := range l.what {
		if strings.HasPrefix(what, modeLink) {
			target, ok := texts[object(what)]
			if !ok {
				target = []byte("/") // wherever it leads
			}
			l.tree.AddLink(name, string(target))
		}
	}
	var all []Held
	for _, name := range names {
		what := l.what[name]
		why := ""
		switch {
		case strings.HasPrefix(what, modeTree):
			why = l.tree.HeldDir(name)
		case workspace.HeldByName(name) != "":
			why = workspace.HeldByName(name)
		case strings.HasPrefix(what, modeSubmodule):
			why = workspace.HeldSubmodule()
		case strings.HasPrefix(what, modeLink):
			why = l.tree.HeldLink(name)
		default:
			text, ok := texts[object(what)]
			why = workspace.HeldAttributes(text, ok)
		}
		if why != "" {
			all = append(all, Held{name, why})
		}
	}
	return all, nil
}

// object is the id of what a tree has.
func object(what string) string { return what[strings.LastIndexByte(what, ' ')+1:] }

// texts reads what has to be read of names, and all links if any of them is one. What is too
// long, or too much, is left out.
func (f *fetch) texts(ctx context.Context, l *listing, names []string) (map[string][]byte, error) {
	most := map[string]int{} // bytes by id
	links := false
	for _, name := range names {
		what := l.what[name]
		links = links || strings.HasPrefix(what, modeLink)
		if strings.HasPrefix(what, "100") && workspace.IsAttributes(name) && workspace.HeldByName(name) == "" {
			most[object(what)] = maxAttr
		}
	}
	if links {
		for _, what := range l.what {
			if id := object(what); strings.HasPrefix(what, modeLink) && most[id] == 0 {
				most[id] = maxLink
			}
		}
	}
	if len(most) == 0 {
		return nil, nil
	}
	ids := slices.Sorted(maps.Keys(most))
	return f.blobs(ctx, ids[:min(len(ids), maxAsked)], most)
}

// blobs reads blobs that have at most as many bytes each.
func (f *fetch) blobs(ctx context.Context, ids []string, most map[string]int) (map[string][]byte, error) {
	out, err := f.git.Output(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), maxObjInfo, "cat-file", "--batch-check=%(objectname) %(objectsize)")
	if err != nil {
		return nil, unread(err)
	}
	var read strings.Builder
	left := maxTexts
	for line := range strings.Lines(string(out)) {
		id, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if size, err := strconv.Atoi(text); err == nil && size <= most[id] && size <= left {
			left -= size
			read.WriteString(id + "\n")
		}
	}
	out, err = f.git.Output(ctx, strings.NewReader(read.String()), maxTexts+maxAsked*200, "cat-file", "--batch=%(objectname) %(objectsize)")
	if err != nil {
		return nil, unread(err)
	}
	blobs := map[string][]byte{}
	for len(out) > 0 {
		head, rest, _ := strings.Cut(string(out[:min(len(out), 200)]), "\n")
		id, text, _ := strings.Cut(head, " ")
		size, err := strconv.Atoi(text)
		at := len(head) + 1
		if err != nil || rest == "" || size < 0 || at+size+1 > len(out) {
			return nil, refused("files that git does not read as it says")
		}
		blobs[id], out = out[at:at+size], out[at+size+1:]
	}
	return blobs, nil
}
