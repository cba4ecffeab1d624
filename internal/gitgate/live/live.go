// Package live serves the git gates of sandboxes that run, by their egress gates: each sandbox
// with remotes has a gitgate.Gate of its own for as long as it runs, which is the service
// "git" inside. Its mirrors lie with the daemon until the sandbox is removed.
//
// It keeps no key: those are read with the rights of the sandbox's owner each time that they
// are needed. It refuses owners who are no users of this machine what lies there, and, unless
// that was allowed, addresses that are not public.
package live

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/approval/desk"
	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/gitgate"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Secrets has what remotes know the gate by. *secret.Store is one.
type Secrets interface {
	ForRemote(ctx context.Context, owner, sandboxID, name string) (secret.Minted, error)
	Known(ctx context.Context, owner, sandboxID string, names []string) (map[string]secret.Value, error)
}

// Options are what Gates work with. All but Roots, Log and Note are required.
type Options struct {
	Dir     string // mirrors lie in Dir/ID
	Secrets Secrets
	Desk    *desk.Desk                                // asks people
	Git     func(ctx context.Context) (string, error) // finds the machine's git
	// Note writes a line into a sandbox's log; nil: nobody does.
	Note      func(ctx context.Context, owner, sandboxID string, ev sandbox.Event)
	Resolvers []netip.AddrPort // of upstreams' names; none: the machine's
	Roots     *x509.CertPool   // of upstreams by HTTPS; nil: the machine's
	Log       *slog.Logger
}

// Gates is a sandbox.Gate whose sandboxes have git gates, too.
type Gates struct {
	sandbox.Gate
	o Options

	mu   sync.Mutex
	byID map[string]*served
}

// served is one git gate.
type served struct {
	gate    *gitgate.Gate
	asks    *asks
	own     *own
	end     context.CancelFunc // of what shows people its questions
	ended   sync.WaitGroup
	service *offer.Standing
}

// Over returns Gates over those of an egress gate.
func Over(g sandbox.Gate, o Options) *Gates {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Note == nil {
		o.Note = func(context.Context, string, string, sandbox.Event) {}
	}
	return &Gates{Gate: g, o: o, byID: map[string]*served{}}
}

// Check implements sandbox.Gate.
func (g *Gates) Check(ctx context.Context, spec sandbox.Spec) (sandbox.Enforcement, error) {
	if len(spec.Remotes) > 0 {
		if _, err := g.o.Git(ctx); err != nil {
			return sandbox.Enforcement{}, err
		}
		for _, r := range remotes(spec.Remotes) {
			if err := r.Check(); err != nil {
				return sandbox.Enforcement{}, err
			}
		}
	}
	return g.Gate.Check(ctx, spec)
}

// Open implements sandbox.Gate.
func (g *Gates) Open(ctx context.Context, sb *sandbox.Sandbox, takes sandbox.LinkForm, values sandbox.SecretValues) (*sandbox.Link, error) {
	if sb.Starts == 0 { // later a key may be away, and what needs it is told so
		k := keys{g, sb}
		for i := range sb.Spec.Remotes {
			if err := k.try(ctx, &sb.Spec.Remotes[i]); err != nil {
				return nil, err
			}
		}
	}
	link, err := g.Gate.Open(ctx, sb, takes, values)
	if err == nil {
		if err = g.begin(ctx, sb); err != nil {
			return nil, errors.Join(err, link.Close())
		}
	}
	return link, err
}

// Verify implements sandbox.Gate. The service stands when it returns.
func (g *Gates) Verify(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error)) ([]sandbox.Enforcement, error) {
	how, err := g.Gate.Verify(ctx, sb, dial)
	s := g.of(sb.ID)
	if err != nil || s == nil {
		return how, err
	}
	select {
	case <-s.service.Up():
		return how, nil
	case <-time.After(upTime):
		return nil, sandbox.Errorf(sandbox.Unavailable, "its git gate is not reached from inside").WithHint("%s", sandbox.LogHint)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

const upTime = time.Minute

// Adopt implements sandbox.Gate.
func (g *Gates) Adopt(ctx context.Context, sb *sandbox.Sandbox, end *os.File) error {
	if err := g.Gate.Adopt(ctx, sb, end); err != nil {
		return err
	}
	return g.begin(ctx, sb)
}

// Set implements sandbox.Gate.
func (g *Gates) Set(ctx context.Context, sb *sandbox.Sandbox) error {
	if s := g.of(sb.ID); s != nil {
		s.asks.use(sb)
		s.own.use(sb)
	}
	return g.Gate.Set(ctx, sb)
}

// Close implements sandbox.Gate.
func (g *Gates) Close(ctx context.Context, id string) error {
	g.mu.Lock()
	s := g.byID[id]
	delete(g.byID, id)
	g.mu.Unlock()
	var err error
	if s != nil {
		err = s.close()
	}
	return errors.Join(err, g.Gate.Close(ctx, id))
}

// Remove implements sandbox.Gate.
func (g *Gates) Remove(ctx context.Context, id string) error {
	dir, err := g.dir(id)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the mirrors of its remotes: %w", err)
	}
	return g.Gate.Remove(ctx, id)
}

// Gates implements sandbox.Gate.
func (g *Gates) Gates(ctx context.Context) ([]string, error) {
	ids, err := g.Gate.Gates(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(g.o.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, nil
}

// Held is how many bytes of disk the mirrors of a sandbox take.
func (g *Gates) Held(_ context.Context, id string) (int64, error) {
	dir, err := g.dir(id)
	if err != nil {
		return 0, err
	}
	return gitgate.Used(dir)
}

// Shut ends all git gates. Their mirrors stay, and the sandboxes.
func (g *Gates) Shut() (err error) {
	g.mu.Lock()
	all := g.byID
	g.byID = map[string]*served{}
	g.mu.Unlock()
	var mu sync.Mutex
	var ended sync.WaitGroup
	for _, s := range all {
		ended.Go(func() {
			e := s.close()
			mu.Lock()
			err = errors.Join(err, e)
			mu.Unlock()
		})
	}
	ended.Wait()
	return err
}

// dir is where the mirrors of a sandbox lie.
func (g *Gates) dir(id string) (string, error) {
	if id == "" || !filepath.IsLocal(id) || filepath.Base(id) != id {
		return "", fmt.Errorf("%.80q is no sandbox's id", id)
	}
	return filepath.Join(g.o.Dir, id), nil
}

func (g *Gates) of(id string) *served {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byID[id]
}

// begin serves the git gate of sb, if it is to have one and has none yet.
func (g *Gates) begin(ctx context.Context, sb *sandbox.Sandbox) error {
	if len(sb.Spec.Remotes) == 0 || g.of(sb.ID) != nil {
		return nil
	}
	sb = sb.Clone()
	dir, err := g.dir(sb.ID)
	if err != nil {
		return err
	}
	git, err := g.o.Git(ctx)
	if err != nil {
		return err
	}
	k := keys{g, sb}
	s := &served{asks: newAsks(sb, g.o.Desk), own: newOwn(k)}
	s.gate, err = gitgate.New(gitgate.Config{
		Dir: dir, Git: git, Remotes: remotes(sb.Spec.Remotes), Keys: k, Asker: s.asks, Known: s.own.known, Roots: g.o.Roots,
		Dial: g.dialer(sb), MaxDisk: sb.Spec.Limits.Disk, Observe: g.observer(sb),
	})
	if err != nil {
		return err
	}
	serving, end := context.WithCancel(context.Background())
	s.end = end
	s.ended.Go(func() { s.asks.attend(serving) })
	s.service = offer.Stand(offer.Options{
		Handler: s.gate,
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			return g.Gate.OfferService(ctx, sb.ID, sandbox.ServiceGit)
		},
		Told: func(err error) {
			if err != nil {
				g.o.Log.Debug("offer a git gate", "id", sb.ID, "error", err)
			}
		},
	})
	g.mu.Lock()
	g.byID[sb.ID] = s
	g.mu.Unlock()
	return nil
}

// close ends a git gate: what is asked of it first, and what it sends upstream in a while.
func (s *served) close() error {
	s.asks.end() // or git would not hear why
	s.end()
	s.service.End()
	s.ended.Wait()
	return s.gate.Close()
}

// remotes are those of a record as a git gate has them.
func remotes(all []sandbox.Remote) []gitgate.Remote {
	out := make([]gitgate.Remote, 0, len(all))
	for i := range all {
		r, p := &all[i], &all[i].Push
		out = append(out, gitgate.Remote{
			Name: r.Name, URL: r.URL, HostKeys: gitremote.Keys(r.KnownHostKey),
			Policy: gitgate.Policy{
				ReadOnly: p.ReadOnly, Protected: p.Protected,
				Deletions: gitgate.Action(p.Deletions), Forced: gitgate.Action(p.Forced), Secrets: gitgate.Action(p.Secrets),
				Held: gitgate.Action(p.Held), Binaries: gitgate.Action(p.Binaries), Unscannable: gitgate.Action(p.Unscannable),
				MaxBlob: p.MaxBlob, MaxPush: p.MaxPush, MaxCommits: p.MaxCommits, MaxRefs: p.MaxRefs,
			},
		})
	}
	return out
}

// dialer reaches upstreams from this machine. Who is no user of it, and was not allowed more,
// reaches public addresses alone, whatever names lead elsewhere.
func (g *Gates) dialer(sb *sandbox.Sandbox) gitgate.Dial {
	d := &net.Dialer{}
	if of := g.o.Resolvers; len(of) > 0 {
		var next atomic.Uint32
		d.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			at := of[int(next.Add(1)-1)%len(of)]
			return (&net.Dialer{}).DialContext(ctx, network, at.String())
		}}
	}
	if !sb.Spec.RemotesPrivate {
		d.ControlContext = public
	}
	return d.DialContext
}
