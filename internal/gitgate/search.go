package gitgate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/gitgate/scan"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

const maxSuspects = 100_000

// first is where a file of that content first is.
type first struct {
	commit, path, blob, was string
	order                   int // among all changes, the oldest first
}

// suspect is a secret of a file, which may have been in it before.
type suspect struct {
	finding Finding
	secret  []byte
	first   first
	known   bool // upstream has it there
}

// learn adds the sandbox's own secrets to what is looked for.
func (p *push) learn(ctx context.Context) error {
	var own []scan.Known
	if p.gate.c.Known != nil {
		var err error
		if own, err = p.gate.c.Known(ctx); err != nil {
			return unseen(err, "one of the sandbox's own secrets can't be had, so that nobody can say whether it is in this push")
		}
	}
	for i := range own {
		f := inject.NewFinder(string(own[i].Value))
		own[i].Find = f.Find
		p.forget = append(p.forget, f.Forget)
	}
	p.rules = p.remote.rules.With(own)
	for i := range own {
		clear(own[i].Value)
	}
	p.shown = p.shownUpdates()
	return nil
}

// search has the rules look at each object that is new: files, commits and tags with their
// messages and names, and the names of files. Names of refs are looked at, too. What was
// looked at is packed as it is, to be sent.
func (p *push) search(ctx context.Context, changes []change) (err error) {
	if p.parcel, err = newParcel(p.path("forward.pack"), p.known.format, len(p.objects)); err != nil {
		return err
	}
	p.searcher = p.rules.Searcher(p.bytes)
	for _, u := range p.order.updates {
		if !weak.On(weak.GitUnscanned) {
			p.secrets(p.searcher.Search([]byte(u.Ref), ""), Finding{Why: "in the name of a ref"})
		}
	}
	firsts := map[string]first{}
	for i, c := range changes {
		if _, there := firsts[c.blob]; !there && c.mode != modeNone {
			firsts[c.blob] = first{c.commit, c.path, c.blob, c.was, i}
		}
	}
	var suspects []suspect
	n := 0
	err = p.each(ctx, p.git, p.ids(), func(o object, r io.Reader) error {
		if listed := p.objects[n]; o != listed { // whose size is within bounds
			return errors.New("git does not tell of objects as before")
		}
		n++
		text := make([]byte, o.size)
		if _, err := io.ReadFull(r, text); err != nil {
			return err
		}
		if !weak.On(weak.GitUnscanned) {
			suspects = append(suspects, p.look(o, text, firsts[o.id])...)
		}
		if len(suspects) > maxSuspects {
			return denied("more secrets than can be told apart")
		}
		return errors.Join(p.parcel.add(o.kind, text), ctx.Err())
	})
	if err != nil {
		return err
	}
	if err := p.parcel.end(); err != nil {
		return err
	}
	return p.settle(ctx, suspects)
}

// look searches an object.
func (p *push) look(o object, text []byte, f first) []suspect {
	switch o.kind {
	case "blob":
		return p.file(text, f)
	case "tree":
		p.secrets(p.searcher.Search(names(text, p.known.format.Size()), ""), Finding{Why: "in the name of a file"})
	default:
		p.secrets(p.searcher.Search(text, ""), Finding{Commit: o.id, Why: "in the " + o.kind + " itself"})
	}
	return nil
}

// ids are the objects that are new.
func (p *push) ids() []string {
	ids := make([]string, len(p.objects))
	for i, o := range p.objects {
		ids[i] = o.id
	}
	return ids
}

// names are those in a tree, as git writes one.
func names(tree []byte, idSize int) (text []byte) {
	for len(tree) > 0 {
		i := bytes.IndexByte(tree, 0)
		if i < 0 || i+1+idSize > len(tree) {
			return append(text, tree...) // git has looked at it; nothing is left out
		}
		_, name, _ := bytes.Cut(tree[:i], []byte(" "))
		text = append(append(text, name...), '\n')
		tree = tree[i+1+idSize:]
	}
	return text
}

// file looks at what a file says.
func (p *push) file(text []byte, f first) (suspects []suspect) {
	res := p.searcher.Search(text, f.path)
	at := Finding{Commit: f.commit, Path: f.path, Blob: f.blob}
	for _, h := range res.Hits {
		suspects = append(suspects, suspect{finding: p.secret(h, at), secret: h.Secret, first: f})
	}
	if res.More { // what was found may be excused, and what was not looked for is not
		suspects = append(suspects, suspect{first: f, finding: Finding{Kind: Secret, Why: "and more of them", Commit: f.commit, Path: f.path, Blob: f.blob, Action: p.remote.Policy.Secrets}})
	}
	if res.Opaque != "" {
		at.Kind, at.Why, at.Action = Unscannable, res.Opaque, p.remote.Policy.Unscannable
		p.find(at)
	}
	const sniffed = 8000 // bytes, as git does
	if bytes.IndexByte(text[:min(len(text), sniffed)], 0) >= 0 {
		at.Kind, at.Why, at.Action = Binary, "a binary", p.remote.Policy.Binaries
		p.find(at)
	}
	return suspects
}

// secret is the finding of a hit.
func (p *push) secret(h scan.Hit, at Finding) Finding {
	at.Kind, at.Rule, at.Action = Secret, h.Rule, p.remote.Policy.Secrets
	if at.Path != "" {
		at.Line = h.Line
	}
	if h.By != "" {
		at.Why = strings.TrimPrefix(at.Why+", in "+h.By, ", ")
	}
	return at
}

// secrets notes all that a search has found.
func (p *push) secrets(res scan.Result, at Finding) {
	for _, h := range res.Hits {
		p.find(p.secret(h, at))
	}
	if res.Opaque != "" {
		at.Kind, at.Why, at.Action = Unscannable, res.Opaque, p.remote.Policy.Unscannable
		p.find(at)
	}
}

// settle notes the secrets of files, where each first is in a file, but for those that upstream has already in the same
// file as it was: who changes another line of it gives nothing away.
func (p *push) settle(ctx context.Context, suspects []suspect) error {
	fresh := map[string]bool{}
	for _, o := range p.objects {
		fresh[o.id] = true
	}
	of := map[string][]int{} // suspects by the blob that may have them already
	for i, s := range suspects {
		if was := s.first.was; was != "" && !fresh[was] && len(s.secret) > 0 {
			of[was] = append(of[was], i)
		}
	}
	// The mirror's git sees nothing of what was pushed, and so takes none of it for upstream's.
	err := p.each(ctx, p.remote.git, slices.Sorted(maps.Keys(of)), func(o object, r io.Reader) error {
		if o.size > p.remote.Policy.MaxBlob {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		text, err := io.ReadAll(r)
		for _, i := range of[o.id] {
			suspects[i].known = bytes.Contains(text, suspects[i].secret)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(suspects, func(a, b suspect) int { return a.first.order - b.first.order })
	seen := map[string]bool{}
	for _, s := range suspects {
		key := s.finding.Rule + "\x00" + s.finding.Path + "\x00" + string(s.secret)
		if !seen[key] && !s.known {
			seen[key] = true
			p.find(s.finding)
		}
	}
	return nil
}

// kinds are those of what was found that are not let through, each once.
func (p *push) kinds() []string {
	all := map[string]bool{}
	for g := range p.found.n {
		all[string(g.kind)] = true
	}
	return slices.Sorted(maps.Keys(all))
}
