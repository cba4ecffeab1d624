package gitgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/gitgate/scan"
	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/quarantine/pack"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	maxPushed     = 1_000_000 // objects
	maxPushedMeta = 16 << 20  // bytes of a commit, a tree or a tag
)

// push is one of an agent's, from its commands to its end.
type push struct {
	gate   *Gate
	remote *remote
	known  *advert // what upstream was when it began
	order  *order
	client *reporter
	leave  func() // gives its room back

	git     *jail.Git         // in the quarantine
	unpack  error             // why objects were not taken
	refused map[string]string // why, by ref
	shown   []Update          // those of the order, for its owner

	tips     []string // what refs are to lead to
	objects  []object // that upstream's refs do not lead to
	commits  int      // among them
	bytes    int64    // of all of them
	found    findings
	rules    *scan.Rules // the remote's, with the sandbox's own secrets
	forget   []func()    // what is known of those
	searcher *scan.Searcher
	worst    map[Action]bool
	parcel   *parcel // what goes upstream; nil: no objects do
}

// object is one that is new to upstream.
type object struct {
	id, kind string
	size     int64
}

// errRefused is of a push that is not sent on; what was wrong with each ref is told apart.
var errRefused = errors.New("nothing was pushed")

// run takes a push through to its end. After an error nothing of it is upstream, or the
// error says what is.
func (p *push) run(ctx context.Context, body io.Reader) (err error) {
	p.refused, p.worst = map[string]string{}, map[Action]bool{}
	defer func() { err = errors.Join(err, p.clean()) }()
	if err = p.learn(ctx); err == nil {
		err = p.permit()
	}
	if err == nil {
		err = p.bring(ctx, body)
	}
	if err != nil {
		_, _ = io.Copy(io.Discard, body) // or the client would not hear why
		return err
	}
	p.client.wait()
	if err := p.examine(ctx); err != nil {
		return err
	}
	if err := p.decide(ctx); err != nil {
		return err
	}
	return p.forward(ctx)
}

func (p *push) path(parts ...string) string {
	return filepath.Join(append([]string{p.remote.work("push")}, parts...)...)
}

// clean removes the quarantine, and forgets the sandbox's secrets.
func (p *push) clean() error {
	if p.rules != nil {
		p.rules.Forget()
	}
	for _, forget := range p.forget {
		forget()
	}
	if p.parcel != nil {
		p.parcel.close()
	}
	return os.RemoveAll(p.path())
}

// deny notes why a ref is not changed.
func (p *push) deny(ref, format string, args ...any) { p.refused[ref] = fmt.Sprintf(format, args...) }

// permit refuses what needs no look at objects.
func (p *push) permit() error {
	pol := p.remote.Policy
	if pol.ReadOnly {
		return sandbox.Errorf(sandbox.Denied, "nothing may be pushed to it: its owner made it read-only")
	}
	if n := len(p.order.updates); n > pol.MaxRefs {
		return sandbox.Errorf(sandbox.Denied, "%d refs at once, where %d may be (push.max_refs)", n, pol.MaxRefs)
	}
	for ref, why := range p.order.refused {
		p.deny(ref, "%s", why)
	}
	for _, u := range p.order.updates {
		now := p.known.refs[u.Ref]
		switch {
		case p.refused[u.Ref] != "":
		case pol.protects(u.Ref):
			p.deny(u.Ref, "protected: nothing may change it (push.protected)")
		case now == "" && strings.HasPrefix(short(u.Ref), "refs/"):
			p.deny(u.Ref, "its name could be taken for another ref's")
		case now != u.Old && u.Old == "":
			p.deny(u.Ref, "already there upstream: fetch first")
		case now != u.Old:
			p.deny(u.Ref, "stale info: it is another one upstream by now: fetch first")
		case u.New == "":
			p.find(Finding{Kind: DeletedRef, Why: "it would be removed", Ref: u.Ref, Action: pol.Deletions})
		}
	}
	if len(p.refused) > 0 {
		return errRefused
	}
	return nil
}

// bring has the objects in the quarantine: a pack whose frame was looked at, and an index
// that git made as it looked at each of them.
func (p *push) bring(ctx context.Context, body io.Reader) error {
	if err := p.furnish(); err != nil || !p.order.objects() {
		return err
	}
	scanned, err := p.keep(body)
	if err != nil {
		p.unpack = err
		return err
	}
	if scanned.Objects() == 0 {
		return os.Remove(p.path("in", "p.pack"))
	}
	var args []string
	if !weak.On(weak.ObjectsUnchecked) {
		args = append(args, jail.Strictly)
	}
	in, out := p.path("in", "p.pack"), p.path("out", "p.idx")
	err = p.git.Index(ctx, in, out, scanned.IndexBytes(), args...)
	if g, ok := errors.AsType[*jail.Error](err); ok {
		p.unpack = sandbox.Errorf(sandbox.Denied, "git refuses the objects: %s", clip(g.Says, 200))
		if g.Code < 0 {
			p.unpack = sandbox.Errorf(sandbox.Denied, "git was ended at the objects: they need more than they may")
		}
		return p.unpack
	}
	if err != nil {
		return err
	}
	if err := checkIndex(scanned, out); err != nil {
		return err
	}
	to := p.path("git", "objects/pack", (&received{scanned}).name())
	return errors.Join(os.Rename(in, to+".pack"), os.Rename(out, to+".idx"))
}

// furnish makes the quarantine: a repository that has nothing, and sees the mirror's objects.
func (p *push) furnish() error {
	m := p.remote.mirror
	objects := filepath.Join(m.dir, "objects")
	p.git = &jail.Git{Path: m.git.Path, Dir: p.path("git"), Read: []string{p.path("in"), objects}}
	if err := os.RemoveAll(p.path()); err != nil { // what a killed push left
		return err
	}
	for _, dir := range []string{p.path(), p.path("in"), p.path("out")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return furnish(p.path("git"), p.known.format, objects)
}

// keep writes the pack into the quarantine.
func (p *push) keep(body io.Reader) (scanned *pack.Pack, err error) {
	file, err := os.OpenFile(p.path("in", "p.pack"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	pol := p.remote.Policy
	room, err := p.gate.room()
	if err != nil {
		return nil, err
	}
	scanned, err = pack.Scan(body, file, p.known.format, pack.Limits{
		Bytes: min(room, pol.MaxPush), Objects: maxPushed, Object: pol.MaxBlob, Meta: maxPushedMeta, Unpacked: pol.MaxPush, Depth: maxDepth,
	})
	if e, ok := errors.AsType[*sandbox.Error](err); ok { // without a hint of another command's
		err = sandbox.Errorf(sandbox.Denied, "%s (push.max_blob and push.max_push of this remote say how much may be)", strings.Replace(e.Msg, "the sandbox's objects", "the objects", 1))
	}
	return scanned, err
}

// find notes something that the policy is about.
func (p *push) find(f Finding) {
	f.Ref = p.shownRef(f.Ref)
	p.worst[f.Action] = true
	if f.Action != Allow {
		p.found.add(f)
	}
}

// short is an error for the line of a ref that is not the one to blame.
func (p *push) short(err error) string {
	if len(p.refused) > 0 {
		return "another ref was refused, and all go or none"
	}
	if p.unpack != nil {
		return "unpacker error"
	}
	return p.remote.public(err)
}

// shownUpdates are those of a push as its owner may see them: a name that seems to have a secret is not shown.
func (p *push) shownUpdates() []Update {
	all := slices.Clone(p.order.updates)
	for i := range all {
		all[i].Ref = p.shownRef(all[i].Ref)
	}
	return all
}

func (p *push) shownRef(ref string) string {
	if !p.suspicious([]byte(ref)) {
		return ref
	}
	return hidden
}

// event is what became of the push.
func (p *push) event(began time.Time, err error) Event {
	e := event(p.remote, "push", began, err)
	e.Updates = p.shown // none where it ended before the sandbox's secrets were known
	e.Findings, e.Counts = p.found.named()
	if k := sandbox.KindOf(err); k == sandbox.Denied || errors.Is(err, errRefused) {
		e.Outcome = "refused"
	}
	return e
}
