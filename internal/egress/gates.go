package egress

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/durable"
	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/egress/tlswire"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Options place Gates.
type Options struct {
	State   string  // gates live in State/gates
	Secrets Secrets // required
	// Resolvers are asked for names; default: those of this machine, as they
	// are when a gate starts.
	Resolvers []netip.AddrPort
	// Attend has what a sandbox's gate asks people looked after; nil: nobody does, and
	// what is asked waits in vain. Session is of this daemon: another one's is another.
	Attend  func(sb *sandbox.Sandbox) Line
	Session string
	Log     *slog.Logger // default: discard
}

// Gates implements sandbox.Gate. Open makes one.
type Gates struct {
	opts    Options
	closing context.Context // ends the watchers; gates go on
	stop    context.CancelFunc
	tasks   sync.WaitGroup

	mu    sync.Mutex
	gates map[string]*gate
}

var _ sandbox.Gate = (*Gates)(nil)

// gate is one that this daemon knows. Only operations on its sandbox, of which
// there is one at a time, and its watcher touch it, under its own lock.
type gate struct {
	id  string
	dir string

	life    sync.Mutex // held while its process is started or ended
	telling sync.Mutex // held while it is told its configuration: none comes after a newer one

	mu     sync.Mutex
	sb     *sandbox.Sandbox // its policy and the names of its secrets
	state  state
	netns  *os.File      // to attach to the link again
	held   *heldTAP      // instead of that, without root
	unlink func()        // ends the watcher
	born   *birth        // of the process that there is
	deaths int           // how often in a row it ended young
	asking chan struct{} // has one when the policy has changed
	probed bool          // nothing is recorded yet: Verify is not done
	joined chan error    // has one once the gate counts as the instance's
}

// New returns Gates. It touches nothing.
func New(opts Options) (*Gates, error) {
	if opts.Secrets == nil || opts.State == "" {
		return nil, errors.New("new gates: a state directory and secrets are required")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gates{opts: opts, gates: make(map[string]*gate)}
	g.closing, g.stop = context.WithCancel(context.Background())
	return g, nil
}

// Shut forgets the gates, which go on.
func (g *Gates) Shut() error {
	g.stop()
	g.tasks.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.gates {
		one.release()
	}
	clear(g.gates)
	return nil
}

// Check implements sandbox.Gate.
func (g *Gates) Check(_ context.Context, spec sandbox.Spec) (sandbox.Enforcement, error) {
	if err := checkTUN(spec.Network); err != nil {
		return sandbox.Enforcement{}, err
	}
	return sandbox.Enforcement{Promise: "network", Enforced: true, Mechanism: mechanism(spec)}, nil
}

func mechanism(spec sandbox.Spec) string {
	what := "a policy, everything else is refused"
	if spec.Network == sandbox.NetworkOn {
		what = "the public internet and a policy"
	}
	text := spec.Network + ": one link, to a gate process of its own that lets through " + what
	if rootless() {
		text += weaker
	}
	return text
}

// Entitled implements sandbox.Gate.
func (g *Gates) Entitled(ctx context.Context, owner string, names []string) error {
	if len(names) == 0 {
		return nil // an owner that has no secrets at all, as of builds, wants none
	}
	return g.opts.Secrets.Check(ctx, owner, names)
}

// Open implements sandbox.Gate.
func (g *Gates) Open(ctx context.Context, sb *sandbox.Sandbox, takes sandbox.LinkForm, values sandbox.SecretValues) (_ *sandbox.Link, err error) {
	if takes != sandbox.LinkNetNS {
		return nil, sandbox.Errorf(sandbox.Unsupported, "network %s: there is no gate to a link of the form %q", sb.Spec.Network, takes)
	}
	one, err := g.prepare(ctx, sb, values)
	if err != nil {
		return nil, err
	}
	l := &sandbox.Link{
		Trust: one.state.Cert, Hostname: link.Hostname, Env: map[string]string{},
		Nameservers: []string{link.Gate4.String()}, // musl asks all that there are at once
		Join:        func(procs []string) error { return g.join(one, procs) },
	}
	for name, placeholder := range one.state.Placeholders {
		l.Env[name] = placeholder
	}
	if rootless() {
		g.add(one)
		l.Attach = g.startWith(ctx, one)
		return l, nil
	}
	dev, err := link.Create(ctx)
	if err != nil {
		return nil, fmt.Errorf("make a link: %w", err)
	}
	defer dev.TAP.Close()
	if one.netns, err = dup(dev.NetNS); err != nil {
		return nil, errors.Join(err, dev.NetNS.Close())
	}
	g.add(one)
	if err := g.start(ctx, one, dev.TAP); err != nil {
		return nil, errors.Join(err, dev.NetNS.Close())
	}
	l.NetNS = dev.NetNS
	return l, nil
}

func (g *Gates) add(one *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gates[one.id] = one
}

// prepare makes the directory of sb's gate, its CA and its placeholders, or
// finds those that it had.
func (g *Gates) prepare(ctx context.Context, sb *sandbox.Sandbox, values sandbox.SecretValues) (*gate, error) {
	dir, err := g.dir(sb.ID)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, dirRoot), 0o700); err != nil {
		return nil, fmt.Errorf("make the gate's directory: %w", err)
	}
	if err := durable.Sweep(dir); err != nil {
		return nil, fmt.Errorf("tidy the gate's directory: %w", err)
	}
	if err := g.keepValues(ctx, sb, values); err != nil {
		return nil, err
	}
	st, err := load(dir)
	if err != nil {
		return nil, err
	}
	if st.Cert == "" {
		if st.Cert, st.Key, err = newCA(sb.Spec.Name); err != nil {
			return nil, err
		}
	}
	if err := st.placeholders(sb.Spec.Secrets); err != nil {
		return nil, err
	}
	st.Process, st.Groups = procid.ID{}, nil
	return &gate{id: sb.ID, dir: dir, sb: sb.Clone(), state: st, born: newBirth(), probed: true, joined: make(chan error, 1)}, st.save(dir)
}

func (g *Gates) keepValues(ctx context.Context, sb *sandbox.Sandbox, values sandbox.SecretValues) error {
	for name, text := range values {
		src := secret.Source{Value: secret.NewValue([]byte(text))}
		if _, err := g.opts.Secrets.PutFor(ctx, sb.Owner, sb.ID, name, src); err != nil {
			return err
		}
	}
	return nil
}

// Keep implements sandbox.Gate. What is inside has no use for the placeholder
// of a secret that it was not started with, but the gate knows a secret by it.
func (g *Gates) Keep(ctx context.Context, sb *sandbox.Sandbox, values sandbox.SecretValues) error {
	dir, err := g.dir(sb.ID)
	if err != nil {
		return err
	}
	if err := g.keepValues(ctx, sb, values); err != nil {
		return err
	}
	one, err := g.known(sb.ID)
	if err != nil { // it does not run
		one = &gate{id: sb.ID, dir: dir}
		if one.state, err = load(dir); err != nil {
			return err
		}
	}
	one.mu.Lock()
	st := one.state
	one.mu.Unlock()
	st.Placeholders = maps.Clone(st.Placeholders) // which others read without the lock
	if err := st.placeholders(sb.Spec.Secrets); err != nil {
		return err
	}
	_, err = one.update(func(s *state) { s.Placeholders = st.Placeholders })
	return err
}

// Values implements sandbox.Gate. A secret that the owner does not have is the
// sandbox's own.
func (g *Gates) Values(ctx context.Context, sb *sandbox.Sandbox) (sandbox.SecretValues, error) {
	values := sandbox.SecretValues{}
	for _, name := range sb.Spec.Secrets {
		err := g.opts.Secrets.Check(ctx, sb.Owner, []string{name})
		if err == nil {
			continue
		}
		if sandbox.KindOf(err) != sandbox.NotFound {
			return nil, err
		}
		v, err := g.opts.Secrets.Value(ctx, sb.Owner, sb.ID, name)
		if err != nil {
			return nil, err
		}
		values[name] = v.Value.Reveal()
	}
	return values, nil
}

// newCA makes the authority of one sandbox.
func newCA(name string) (cert, key string, err error) {
	a, err := tlswire.NewAuthority("Carboy sandbox "+name, time.Now)
	if err != nil {
		return "", "", fmt.Errorf("make the sandbox's CA: %w", err)
	}
	raw, err := a.KeyPEM()
	return string(a.CertificatePEM()), string(raw), err
}

// placeholders sees to it that each secret has one.
func (s *state) placeholders(names []string) error {
	if s.Placeholders == nil {
		s.Placeholders = make(map[string]string)
	}
	for _, name := range names {
		if s.Placeholders[name] != "" {
			continue
		}
		p, err := inject.NewPlaceholder(name, rand.Reader)
		if err != nil {
			return err
		}
		s.Placeholders[name] = p
	}
	return nil
}

// Set implements sandbox.Gate.
func (g *Gates) Set(ctx context.Context, sb *sandbox.Sandbox) error {
	one, err := g.known(sb.ID)
	if err != nil {
		return err
	}
	one.mu.Lock()
	one.sb = sb.Clone()
	one.policyChanged()
	one.mu.Unlock()
	return g.tell(ctx, one)
}

// tell has a gate take over the policy and the secrets that it is to have.
func (g *Gates) tell(ctx context.Context, one *gate) error {
	// First, for its starter needs the lock.
	if err := one.await(ctx); err != nil {
		return err
	}
	one.telling.Lock()
	defer one.telling.Unlock()
	cfg, err := g.config(ctx, one)
	if err != nil {
		return err
	}
	return one.put(ctx, pathConfig, cfg)
}

// config is what a gate is to be told. A secret that can't be had now, or that
// a command makes, is left out: the gate asks when it needs one.
func (g *Gates) config(ctx context.Context, one *gate) (config, error) {
	one.mu.Lock()
	sb, placeholders := one.sb, one.state.Placeholders
	one.mu.Unlock()
	cfg := config{Placeholders: map[string]string{}, Secrets: map[string]value{}}
	if sb.Spec.Policy != nil {
		cfg.Policy = *sb.Spec.Policy
	} else {
		cfg.Policy = policy.Policy{}
	}
	if len(sb.Spec.Secrets) == 0 {
		return cfg, nil
	}
	kept, err := g.opts.Secrets.List(ctx, sb.Owner)
	if err != nil {
		return config{}, err
	}
	for _, name := range sb.Spec.Secrets {
		cfg.Placeholders[name] = placeholders[name]
		if slices.ContainsFunc(kept, func(i secret.Info) bool { return i.Name == name && i.Kind == secret.KindCommand }) {
			continue
		}
		v, err := g.opts.Secrets.Value(ctx, sb.Owner, sb.ID, name)
		if err != nil {
			g.opts.Log.Warn("a secret can't be had", "id", sb.ID, "secret", name, "err", err)
			continue
		}
		cfg.Secrets[name] = value{Text: v.Value.Reveal(), Expires: v.Expires}
	}
	return cfg, nil
}

// Changed has every gate that uses a secret take its new value.
func (g *Gates) Changed(ctx context.Context, c secret.Change) {
	g.mu.Lock()
	var users []*gate
	for _, one := range g.gates {
		if one.uses(c) {
			users = append(users, one)
		}
	}
	g.mu.Unlock()
	var told sync.WaitGroup // side by side: one that its sandbox starves keeps no other waiting
	for _, one := range users {
		told.Go(func() {
			if err := g.tell(ctx, one); err != nil {
				g.opts.Log.Warn("tell a gate of a new secret", "id", one.id, "err", err)
				g.tasks.Go(func() { g.tellAgain(one) })
			}
		})
	}
	told.Wait()
}

// tellAgain tells a gate what it could not be told, until it was: a value that
// was taken back must not be in use for as long as a gate lives.
func (g *Gates) tellAgain(one *gate) {
	for delay := restartDelay; ; delay = min(2*delay, longestDelay) {
		select {
		case <-g.closing.Done():
			return
		case <-time.After(delay):
		}
		if now, err := g.known(one.id); err != nil || now != one {
			return // it was closed, or adopted anew and told
		}
		if g.tell(g.closing, one) == nil {
			return
		}
	}
}

// Users returns the names of the sandboxes whose gates may put a secret of
// owner's into requests.
func (g *Gates) Users(owner, name string) (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.gates {
		if one.uses(secret.Change{Owner: owner, Name: name}) || one.proves(owner, name) {
			names = append(names, one.name())
		}
	}
	return names
}

func (g *Gates) known(id string) (*gate, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one := g.gates[id]; one != nil {
		return one, nil
	}
	return nil, sandbox.Errorf(sandbox.Unavailable, "the sandbox's gate was not found").WithHint("try again, or start the sandbox anew")
}

// dup is f under a number of its own.
func dup(f *os.File) (*os.File, error) {
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// Secrets has the values of secrets. *secret.Store is one.
type Secrets interface {
	Check(ctx context.Context, owner string, names []string) error
	PutFor(ctx context.Context, owner, sandboxID, name string, src secret.Source) (secret.Info, error)
	RemoveFor(ctx context.Context, sandboxID string) error
	Sandboxes() (ids []string, err error)
	List(ctx context.Context, owner string) ([]secret.Info, error)
	Value(ctx context.Context, owner, sandboxID, name string) (secret.Minted, error)
}
