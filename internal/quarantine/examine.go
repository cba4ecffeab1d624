package quarantine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	maxShown   = 100       // commits of a ref that are named
	maxLog     = 4 << 20   // bytes of their names
	maxPaths   = 128 << 20 // bytes of a list of files
	maxObjInfo = 32 << 20  // bytes of a list of objects
)

// kinds returns the types of those objects that there are.
func (f *fetch) kinds(ctx context.Context, ids []string) (map[string]string, error) {
	kinds := map[string]string{}
	if len(ids) == 0 {
		return kinds, nil
	}
	in := strings.NewReader(strings.Join(ids, "\n") + "\n")
	out, err := f.git.Output(ctx, in, maxObjInfo, "cat-file", "--batch-check=%(objectname) %(objecttype)")
	if err != nil {
		return nil, unread(err)
	}
	for line := range strings.Lines(string(out)) {
		if id, kind, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok && kind != "missing" {
			kinds[id] = kind
		}
	}
	return kinds, nil
}

// unread is the error of a git that could not read what is there.
func unread(err error) error {
	if g, ok := errors.AsType[*jail.Error](err); ok {
		return sandbox.Errorf(sandbox.Denied, "git can't read the commits: %s", clip(g.Says))
	}
	return err
}

// revisions is what git rev-list reads: commits, and what leads nowhere new.
func revisions(tips, not []string) *strings.Reader {
	var b strings.Builder
	for _, t := range tips {
		b.WriteString(t + "\n")
	}
	for _, n := range not {
		b.WriteString("^" + n + "\n")
	}
	return strings.NewReader(b.String())
}

// unled returns those of tips, all of them here, that none of the user's refs leads to.
func (f *fetch) unled(ctx context.Context, tips []string) (map[string]bool, error) {
	fresh := map[string]bool{}
	if len(tips) == 0 {
		return fresh, nil
	}
	out, err := f.git.Output(ctx, revisions(tips, f.theirs), maxAnswer, "rev-list", "--ignore-missing", "--stdin")
	if err != nil {
		return nil, unread(err)
	}
	for line := range strings.Lines(string(out)) {
		fresh[strings.TrimSpace(line)] = true
	}
	return fresh, nil
}

// examine looks whether what is to be taken is what it should be, and whole: from each
// ref on there is every object, down to those that the user's refs lead to.
func (f *fetch) examine(ctx context.Context) error {
	if len(f.take) == 0 {
		return nil
	}
	var ids, tips []string
	for _, t := range f.take {
		ids = append(ids, t.id, t.id+"^{commit}")
		tips = append(tips, t.id)
	}
	in := strings.NewReader(strings.Join(ids, "\n") + "\n")
	out, err := f.git.Output(ctx, in, maxObjInfo, "cat-file", "--batch-check=%(objecttype)")
	if err != nil {
		return unread(err)
	}
	lines := strings.Split(string(out), "\n")
	if len(lines) != len(ids)+1 {
		return sandbox.Errorf(sandbox.Denied, "git does not say what the commits are")
	}
	for i, t := range f.take {
		kind, commit := lines[2*i], lines[2*i+1]
		switch {
		case commit != "commit":
			return refused("%q, which leads to no commit that it sent", clip(t.short()))
		case kind != "commit" && !strings.HasPrefix(t.name, tagPrefix):
			return refused("a branch %q, which is a %s", clip(t.short()), kind)
		}
	}
	if weak.On(weak.ObjectsUnchecked) {
		return nil
	}
	_, err = f.git.Output(ctx, revisions(tips, f.theirs), maxAnswer, "rev-list", "--objects", "--quiet", "--ignore-missing", "--stdin")
	if g, ok := errors.AsType[*jail.Error](err); ok {
		return refused("commits that are not whole: %s", clip(g.Says)).
			WithHint("shallow or broken: git fsck, in the sandbox and here, may say more")
	}
	return err
}

// describe says of each ref what comes with it.
func (f *fetch) describe(ctx context.Context) error {
	for _, t := range f.take {
		c := Change{Ref: t.ref, Inside: t.name, State: New, Old: t.old, New: t.id, Commits: []Commit{}, Held: []Held{}, HeldKinds: []HeldKind{}}
		if t.old != "" {
			c.State = Forwarded
			lost, err := f.git.Output(ctx, revisions([]string{t.old}, []string{t.id}), maxAnswer, "rev-list", "--ignore-missing", "--max-count=1", "--stdin")
			if err != nil {
				return unread(err)
			}
			if len(lost) > 0 || strings.HasPrefix(t.name, tagPrefix) {
				c.State = Forced
			}
		}
		if err := f.log(ctx, t, &c); err != nil {
			return err
		}
		if err := f.held(ctx, t, &c); err != nil {
			return err
		}
		f.res.Refs = append(f.res.Refs, c)
	}
	for _, ref := range f.gone {
		c := Change{Ref: ref, State: Gone, Old: f.Refs[ref], Commits: []Commit{}, Held: []Held{}, HeldKinds: []HeldKind{}}
		if f.o.Prune {
			c.State = Pruned
		}
		f.res.Refs = append(f.res.Refs, c)
	}
	if f.pack != nil {
		f.res.Objects, f.res.Bytes = f.pack.Objects(), f.pack.Bytes
	}
	return nil
}

// log lists the commits that neither the user's refs nor those of earlier fetches led to.
func (f *fetch) log(ctx context.Context, t target, c *Change) error {
	not := slices.Concat(f.theirs, f.taken)
	out, err := f.git.Output(ctx, revisions([]string{t.id}, not), maxLog,
		"rev-list", "--ignore-missing", "--stdin", "--max-count=101", "--format=%H %<(400,trunc)%s")
	if err != nil {
		return unread(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, maxLog)
	for lines.Scan() {
		id, subject, ok := strings.Cut(lines.Text(), " ")
		switch {
		case !ok || !f.isID(id): // the line before a commit's
		case len(c.Commits) == maxShown:
			c.More = true
		default:
			c.Commits = append(c.Commits, Commit{id, strings.TrimSpace(subject)})
		}
	}
	return lines.Err()
}
