package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// What a sandbox of a template is where no step says otherwise.
const (
	defaultUser = "user"
	root        = "root"

	stepBase     = "base"
	stepFinalize = "finalize"

	removeTimeout = 2 * time.Minute
	sandboxSlack  = 10 * time.Minute // that a sandbox of a build may outlive it, at most
)

// point is how far a build has come.
type point struct {
	Image, Snapshot string
	Key             string // of the cache
	Context
}

// run is one build at work. Only its goroutine touches it.
type run struct {
	s        *Service
	j        *journal // nil: nothing is logged
	owner    string
	caller   sandbox.Caller // who owns its sandboxes
	rec      Record
	plan     Plan
	step     string
	at       point
	startup  *sandbox.Startup
	forced   bool
	unproved bool // the start command is not tried

	depth int  // of the snapshots below the point at
	past  int  // steps before this one are in the point at
	dirty bool // the sandbox has more than the point at: that is saved later

	sb    *sandbox.Sandbox // at the point at; nil: none is started
	guest Guest
}

func (s *Service) newRun(owner string, p Plan, j *journal, rec Record) *run {
	if rec.Network == "" {
		rec.Network, rec.Policy = s.o.Network, policy.Clone(s.o.Policy)
	}
	return &run{
		s: s, j: j, owner: owner, plan: p, rec: rec, forced: p.Force,
		// What others build on may be another owner's.
		caller: sandbox.Caller{Owner: sandboxOwner(owner), Admin: true},
	}
}

func (r *run) say(level Level, format string, args ...any) {
	if r.j != nil {
		r.j.say(level, fmt.Sprintf(format, args...))
	}
}

func (r *run) enter(step string) {
	r.step = step
	if r.j != nil {
		r.j.setStep(step)
	}
}

// fail is an error of the current step.
func (r *run) fail(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &buildError{step: r.step, msg: err.Error(), err: errors.Unwrap(err)}
}

// explain makes err one of the current step.
func (r *run) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*buildError](err); ok {
		return e
	}
	b := &buildError{step: r.step, msg: doing + ": it failed", hint: sandbox.LogHint, err: err}
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		b.msg, b.hint = doing+": "+e.Msg, e.Hint
	} else if e, ok := errors.AsType[*Refusal](err); ok {
		b.msg, b.hint = doing+": "+e.Text, ""
	}
	return b
}

// do carries the build from its base to its proof.
func (r *run) do(ctx context.Context) (err error) {
	defer func() {
		if derr := r.drop(ctx); err == nil {
			err = derr
		}
	}()
	r.enter(stepBase)
	if err := r.base(ctx); err != nil {
		return r.explain("start from its base", err)
	}
	r.sayNetwork()
	r.depth = r.s.m.SnapshotDepth(r.at.Snapshot)
	for i, st := range r.plan.Steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.enter(strconv.Itoa(i + 1))
		if err := r.take(ctx, i, st); err != nil {
			return r.explain(strings.ToUpper(st.Type), err)
		}
	}
	r.enter(stepFinalize)
	if r.unproved {
		return nil
	}
	return r.explain("start it", r.prove(ctx))
}

// result puts what the build came to into a record.
func (r *run) result(rec Record) Record {
	rec.Image, rec.Snapshot, rec.Context, rec.Startup = r.at.Image, r.at.Snapshot, r.at.Context.clone(), r.startup.Clone()
	return rec
}

// keyOf returns the key of what follows from prev by parts.
func keyOf(prev string, parts ...string) string {
	h := sha256.New()
	fmt.Fprintf(h, "carboy-template-1\n%q\n", prev)
	for _, p := range parts {
		fmt.Fprintf(h, "%q\n", p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// base finds what the build starts from.
func (r *run) base(ctx context.Context) error {
	p := r.plan
	r.at.Context = Context{User: defaultUser}.clone()
	if p.StartCmd != "" || p.ReadyCmd != "" {
		r.startup = &sandbox.Startup{Command: p.StartCmd, Ready: p.ReadyCmd}
	}
	switch {
	case p.FromTemplate != "" && !isBase(p.FromTemplate):
		return r.baseTemplate(ctx, p.FromTemplate)
	case p.FromImage != "" && !isBase(p.FromImage):
		return r.baseImage(ctx, p.FromImage)
	}
	if !p.HostImage {
		return sandbox.Errorf(sandbox.Denied, "%s: this key may not use the machine's own programs", Base).
			WithHint("start from an image; %s", sandbox.HostImageHint)
	}
	r.say(levelInfo, "FROM %s: this machine's own programs", Base)
	r.at.Image = sandbox.DefaultImage
	host, err := r.host(ctx)
	r.at.Key = keyOf("", r.owner, r.at.Image, host)
	return err
}

// host identifies the machine's own programs: what was done over others is not
// taken from the cache.
func (r *run) host(ctx context.Context) (string, error) {
	if r.s.o.Host == nil || r.at.Image != sandbox.DefaultImage {
		return "", nil
	}
	return r.s.o.Host(ctx)
}

func (r *run) baseTemplate(ctx context.Context, ref string) error {
	b, err := r.s.lookUp(sandbox.Caller{Owner: r.owner}, ref)
	if sandbox.KindOf(err) == sandbox.NotFound {
		if built, ok, berr := r.s.resolveBuiltin(ctx, ref); ok {
			b, err = built, berr
		}
	}
	if err != nil {
		return err
	}
	if b.Image == sandbox.DefaultImage && !r.plan.HostImage {
		return sandbox.Errorf(sandbox.Denied, "template %.80s: this key may not use the machine's own programs, which it is made of", ref).
			WithHint("%s", sandbox.HostImageHint)
	}
	r.say(levelInfo, "FROM template %s, build %s", ref, b.BuildID)
	r.at = point{Image: b.Image, Snapshot: b.Snapshot, Context: Context{Env: b.Env, User: b.User, Cwd: b.Cwd}.clone()}
	if r.at.User == "" {
		r.at.User = defaultUser
	}
	if r.startup == nil {
		r.startup = b.Startup.Clone()
	}
	host, err := r.host(ctx)
	r.at.Key = keyOf("", r.owner, "template", b.Image, host, b.Snapshot, fmt.Sprintf("%q %q %q", flat(b.Env), b.User, b.Cwd))
	return err
}

// flat is env as text, always in one order.
func flat(env map[string]string) (out []string) {
	for _, k := range sorted(env) {
		out = append(out, k+"="+env[k])
	}
	return out
}

func (r *run) baseImage(ctx context.Context, name string) error {
	if r.s.o.Images == nil {
		return sandbox.Errorf(sandbox.Unsupported, "image %.200s: this daemon keeps no images", name).WithHint("use %s", Base)
	}
	pinned, err := r.s.o.Images.Image(ctx, ImageQuery{
		Owner: r.owner, Name: name, Auth: r.plan.Auth, Outside: r.plan.Outside, Fresh: r.plan.Force,
	}, func(text string) { r.say(levelInfo, "%s", text) })
	if err != nil {
		return err
	}
	r.say(levelInfo, "FROM %s", pinned)
	r.at.Image = pinned
	r.at.Key = keyOf("", r.owner, pinned)
	return nil
}

// take takes one step, or what it led to before.
func (r *run) take(ctx context.Context, i int, st Step) error {
	title := fmt.Sprintf("[builder %d/%d] %s", i+1, len(r.plan.Steps), titleOf(st))
	r.forced = r.forced || st.Force
	key := keyOf(r.at.Key, st.parts()...)
	if i < r.past {
		r.say(levelInfo, "CACHED %s", title)
		return nil
	}
	c, ok := r.cached(ctx, key)
	if !ok {
		c, ok = r.cachedAfter(ctx, i, key)
	}
	if ok {
		r.say(levelInfo, "CACHED %s", title)
		moved := c.Snapshot != r.at.Snapshot || r.dirty
		r.at = point{Image: c.Image, Snapshot: c.Snapshot, Key: c.Key, Context: c.Context.clone()}
		if !moved {
			return nil
		}
		r.dirty, r.depth = false, r.s.m.SnapshotDepth(c.Snapshot)
		return r.drop(ctx)
	}
	r.say(levelInfo, "%s", title)
	wrote, err := r.apply(ctx, st)
	if r.j != nil {
		r.j.flush()
	}
	if err != nil {
		return err
	}
	r.at.Key = key
	r.dirty = r.dirty || wrote
	if r.dirty {
		if r.depth >= maxDepth && i < len(r.plan.Steps)-1 {
			return nil // nothing of it is kept for later builds
		}
		if err := r.save(ctx); err != nil {
			return err
		}
	}
	return r.s.remember(ctx, Cached{
		Key: key, Owner: r.owner, Image: r.at.Image, Snapshot: r.at.Snapshot, Context: r.at.Context.clone(), UsedAt: r.s.stamp(),
	})
}

// cachedAfter is what a later step led to before, where this one was not saved
// by itself. The steps up to that one are past then.
func (r *run) cachedAfter(ctx context.Context, i int, key string) (Cached, bool) {
	for j, st := range r.plan.Steps[i+1:] {
		if st.Force {
			break
		}
		key = keyOf(key, st.parts()...)
		if c, ok := r.cached(ctx, key); ok {
			r.past = i + 1 + j + 1
			return c, true
		}
	}
	return Cached{}, false
}

// parts are what a step's key is made of.
func (st Step) parts() []string {
	return append([]string{strings.ToUpper(st.Type), st.FilesHash}, st.Args...)
}

// cached is what a step led to before, unless it is to be done again.
func (r *run) cached(ctx context.Context, key string) (Cached, bool) {
	if r.forced {
		return Cached{}, false
	}
	return r.s.cached(ctx, key, r.caller)
}

// maxTitle bounds what of a step a log's line shows, in bytes.
const maxTitle = 500

func titleOf(st Step) string {
	text := strings.ToUpper(st.Type)
	switch text {
	case "ENV", "ARG":
		for i := 0; i+1 < len(st.Args); i += 2 { // values may be secrets
			text += " " + st.Args[i]
		}
	default:
		text += " " + strings.Join(st.Args, " ")
	}
	if len(text) > maxTitle {
		text = text[:maxTitle] + "…"
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// save keeps what the step wrote, and has the next one start from that.
func (r *run) save(ctx context.Context) error {
	snap, err := r.s.m.Snapshot(ctx, r.caller, r.sb.ID)
	if err != nil {
		return err
	}
	for _, n := range snap.Notes {
		r.say(levelWarn, "not kept: %s", n)
	}
	r.at.Snapshot, r.dirty = snap.ID, false
	r.depth++
	return r.drop(ctx)
}

// maxDepth is how many snapshots may lie over one another before the steps that
// follow are saved all at once: there must be room for those of templates and
// of sandboxes that start from this one.
const maxDepth = sandbox.MaxSnapshotChain / 2

// open starts a sandbox at the point where the build is.
func (r *run) open(ctx context.Context) error {
	if r.sb != nil {
		return nil
	}
	sb, err := r.s.m.Create(ctx, r.caller, r.spec(), nil)
	if err != nil {
		return err
	}
	r.sb = sb
	r.guest = r.s.o.Guest(func(ctx context.Context) (net.Conn, error) {
		return r.s.m.Dial(ctx, r.caller, sb.ID, sandbox.GuestPort)
	})
	return nil
}

func (r *run) spec() sandbox.Spec {
	return sandbox.Spec{
		Image: r.at.Image, Snapshot: r.at.Snapshot, Sudo: r.s.o.Sudo, Network: r.rec.Network, Policy: policy.Clone(r.rec.Policy),
		Limits:   sandbox.Limits{CPUs: r.rec.CPUs, Memory: r.rec.Memory, Disk: r.rec.Disk},
		TTL:      r.s.o.Time + sandboxSlack,
		OnExpiry: sandbox.OnExpiryRemove,
		Labels:   map[string]string{"carboy.build": r.rec.ID},
		Template: &sandbox.TemplateRef{ID: r.rec.Template, Build: r.rec.ID},
	}
}

// drop removes the sandbox of the build, if there is one.
func (r *run) drop(ctx context.Context) error {
	if r.sb == nil {
		return nil
	}
	sb := r.sb
	r.guest.Close()
	r.sb, r.guest = nil, nil
	return r.remove(ctx, sb.ID)
}

func (r *run) remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	err := r.s.m.Remove(ctx, r.caller, id, true)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// prove starts a sandbox of what was built, with its start and ready commands.
func (r *run) prove(ctx context.Context) error {
	if err := r.drop(ctx); err != nil {
		return err
	}
	spec := r.spec()
	spec.User, spec.Cwd, spec.Env, spec.Startup = r.at.User, r.at.Cwd, r.at.Env, r.startup.Clone()
	if r.startup != nil {
		r.say(levelInfo, "[finalize] Starting it, and waiting until it is ready")
	}
	sb, err := r.s.m.Create(ctx, r.caller, spec, nil)
	if err != nil {
		return err
	}
	return r.remove(ctx, sb.ID)
}
