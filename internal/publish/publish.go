// Package publish keeps ports of sandboxes open on this machine's loopback, for
// as long as the sandboxes run: what carboy run -p and carboy create -p ask for.
//
// A port belongs to the user whose sandbox it leads to, whoever runs the daemon.
// It refuses owners that are no user of this machine, and ports that the owner
// could not have opened. What was taken by another program while the sandbox, or
// the daemon, did not run is told, and tried again until it is free.
package publish

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/loopback"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// MaxConns is how many connections through the ports of one sandbox there may
	// be at once. One that is more is reset.
	MaxConns = 1024
	// retryDelay is how long a port that could not be opened is left alone.
	retryDelay = 5 * time.Second
)

// Options are what Ports work with. Dial is required.
type Options struct {
	// Dial reaches a port of a sandbox.
	Dial func(ctx context.Context, id string, port int) (net.Conn, error)
	// Opened is told of a port that could not be opened before; nil: nobody is.
	Opened func(id, text string)
	// MaxConns is how many connections there may be through all ports at once;
	// default: MaxConns.
	MaxConns int
	Retry    time.Duration // default: 5 seconds
	Log      *slog.Logger  // default: none
}

// Ports are the ports of all sandboxes of one daemon. It is a sandbox.Ports.
type Ports struct {
	o   Options
	all loopback.Slots

	mu sync.Mutex // guards of, and what is marked so
	of map[string]*sandboxPorts
}

var _ sandbox.Ports = (*Ports)(nil)

// sandboxPorts are those of one sandbox.
type sandboxPorts struct {
	id     string
	owner  uint32
	slots  loopback.Slots
	ctx    context.Context
	cancel context.CancelFunc
	each   []*port
}

type port struct {
	sandbox.Publish
	listener *loopback.Listener // nil: it is not open; guarded by Ports.mu
	err      error              // why; guarded by Ports.mu
}

// New returns Ports, none of which is open.
func New(o Options) *Ports {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Retry = cmp.Or(o.Retry, retryDelay)
	return &Ports{o: o, all: loopback.NewSlots(cmp.Or(o.MaxConns, MaxConns)), of: make(map[string]*sandboxPorts)}
}

// userOf returns the user that an owner of sandboxes is.
func userOf(owner string) (uint32, error) {
	id, ok := strings.CutPrefix(owner, "uid:")
	n, err := strconv.ParseUint(id, 10, 32)
	if !ok || err != nil {
		return 0, sandbox.Errorf(sandbox.Denied, "publish: the ports of this machine are for its own users").
			WithHint("leave publish out: carboy forward opens a port where you are")
	}
	return uint32(n), nil
}

// claim has ports that are open, and that nobody serves yet.
type claim struct {
	p      *Ports
	owner  uint32
	each   []*port
	served bool
}

// Claim implements sandbox.Ports.
func (p *Ports) Claim(ctx context.Context, owner string, want []sandbox.Publish) (sandbox.PortClaim, error) {
	c := &claim{p: p}
	if len(want) == 0 {
		return c, nil
	}
	var err error
	if c.owner, err = userOf(owner); err != nil {
		return nil, err
	}
	// Those that were named come first: none that is merely free may take one.
	c.each = make([]*port, len(want))
	for _, named := range []bool{true, false} {
		for i, w := range want {
			if (w.HostPort != 0) != named {
				continue
			}
			l, err := listen(ctx, c.owner, w)
			if err != nil {
				c.Release()
				return nil, err
			}
			c.each[i] = &port{Publish: sandbox.Publish{Port: w.Port, HostPort: l.Port()}, listener: l}
		}
	}
	return c, nil
}

// listen opens one port for a user, with that user's rights.
func listen(ctx context.Context, owner uint32, w sandbox.Publish) (*loopback.Listener, error) {
	low := owner != 0 && cmp.Or(w.HostPort, w.Port) < loopback.FirstPort()
	switch {
	case low && w.HostPort != 0:
		return nil, loopback.LowPort(w.HostPort)
	case low:
		return loopback.Listen(ctx, 0)
	case w.HostPort != 0:
		return loopback.Listen(ctx, w.HostPort)
	}
	return loopback.ListenNear(ctx, w.Port)
}

// Ports implements sandbox.PortClaim.
func (c *claim) Ports() []sandbox.Publish {
	var out []sandbox.Publish
	for _, one := range c.each {
		out = append(out, one.Publish)
	}
	return out
}

// Serve implements sandbox.PortClaim.
func (c *claim) Serve(id string) {
	c.served = true
	if len(c.each) > 0 {
		c.p.begin(id, c.owner, c.each)
	}
}

// Release implements sandbox.PortClaim.
func (c *claim) Release() {
	if c.served {
		return
	}
	for _, one := range c.each {
		if one != nil {
			_ = one.listener.Close()
		}
	}
}

// Open implements sandbox.Ports.
func (p *Ports) Open(ctx context.Context, sb *sandbox.Sandbox) error {
	if len(sb.Spec.Publish) == 0 {
		return nil
	}
	owner, err := userOf(sb.Owner)
	if err != nil {
		return err
	}
	var each []*port
	var shut []string
	for _, w := range sb.Spec.Publish {
		one := &port{Publish: w}
		if one.listener, one.err = listen(ctx, owner, w); one.err != nil {
			shut = append(shut, reason(one.err))
		}
		each = append(each, one)
	}
	p.begin(sb.ID, owner, each)
	if len(shut) == 0 {
		return nil
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s: not published until it is free", strings.Join(shut, "; "))
}

// reason is an error of a port as its owner reads it.
func reason(err error) string {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return e.Msg
	}
	return "it can't be listened on"
}

// begin serves the ports of one sandbox that are open, and tries the others again.
func (p *Ports) begin(id string, owner uint32, each []*port) {
	p.Close(id)
	s := &sandboxPorts{id: id, owner: owner, slots: loopback.NewSlots(MaxConns), each: each}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[id] = s
	missing := false
	for _, one := range each {
		if one.listener == nil {
			missing = true
			continue
		}
		p.serve(s, one, one.listener)
	}
	if missing {
		go p.retry(s)
	}
}

func (p *Ports) serve(s *sandboxPorts, one *port, l *loopback.Listener) {
	r := &loopback.Relay{
		Owner: s.owner, Slots: []loopback.Slots{s.slots, p.all}, Log: p.o.Log.With("sandbox", s.id, "port", one.Port),
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) { return p.o.Dial(ctx, s.id, one.Port) },
	}
	go r.Serve(s.ctx, l)
}

// retry opens what could not be, until all of it is.
func (p *Ports) retry(s *sandboxPorts) {
	again := time.NewTicker(p.o.Retry)
	defer again.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-again.C:
		}
		if p.retryOnce(s) {
			return
		}
	}
}

// retryOnce tries each port that is not open, and reports whether all are.
func (p *Ports) retryOnce(s *sandboxPorts) (all bool) {
	all = true
	for _, one := range s.each {
		p.mu.Lock()
		isOpen := one.listener != nil
		p.mu.Unlock()
		if isOpen {
			continue
		}
		l, err := listen(s.ctx, s.owner, one.Publish)
		if err != nil {
			all = false
			continue
		}
		if !p.reopened(s, one, l) {
			_ = l.Close()
			return true
		}
		if p.o.Opened != nil {
			p.o.Opened(s.id, "port "+strconv.Itoa(one.Port)+" is open again at 127.0.0.1:"+strconv.Itoa(one.HostPort))
		}
	}
	return all
}

// reopened makes l the port's, unless the sandbox's were closed meanwhile.
func (p *Ports) reopened(s *sandboxPorts, one *port, l *loopback.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	one.listener, one.err = l, nil
	p.serve(s, one, l)
	return true
}

// Close implements sandbox.Ports. It does not wait for connections: one of them
// may be what found the sandbox ended, and has it closed.
func (p *Ports) Close(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[id]
	if s == nil {
		return
	}
	delete(p.of, id)
	s.cancel()
	for _, one := range s.each {
		if one.listener != nil {
			_ = one.listener.Close()
		}
	}
}

// CloseAll closes the ports of every sandbox: they go on without, until they are
// opened by another daemon.
func (p *Ports) CloseAll() {
	p.mu.Lock()
	var ids []string
	for id := range p.of {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.Close(id)
	}
}

// State implements sandbox.Ports.
func (p *Ports) State(id string) []sandbox.PortState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[id]
	if s == nil {
		return nil
	}
	var out []sandbox.PortState
	for _, one := range s.each {
		st := sandbox.PortState{Publish: one.Publish, Open: one.listener != nil}
		if one.err != nil {
			st.Reason = reason(one.err)
		}
		out = append(out, st)
	}

	return out
}
