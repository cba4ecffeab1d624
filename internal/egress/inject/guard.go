package inject

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Options are what a Guard begins with.
type Options struct {
	// Placeholders are the sandbox's own: secrets' names to placeholders.
	Placeholders map[string]string
	// Value returns the value of a secret, for one request. It is called for
	// each request that a secret goes into, by many goroutines.
	Value func(ctx context.Context, name string) (string, error)
}

// Guard knows one sandbox's placeholders, and gets values when a route needs
// them. It is safe for use by several goroutines.
type Guard struct {
	value func(context.Context, string) (string, error)
	state atomic.Pointer[state]

	mu     sync.Mutex
	recent map[string][]string // name to the values put in last, the newest first
	built  map[string]*matcher // by the values that they search for
}

// Bounds of what a guard remembers.
const (
	maxRecent = 4  // values of one secret
	maxBuilt  = 16 // matchers
)

// state is a set of placeholders, made ready.
type state struct {
	placeholders map[string]string
	search       *matcher // nil: there is none
}

// NewGuard returns a guard.
func NewGuard(o Options) *Guard {
	g := &Guard{value: o.Value, recent: map[string][]string{}, built: map[string]*matcher{}}
	g.Set(o.Placeholders)
	return g
}

// Set replaces the placeholders. Requests and streams under way keep those
// that they began with.
func (g *Guard) Set(placeholders map[string]string) {
	st := &state{placeholders: maps.Clone(placeholders)}
	if !weak.On(weak.NetPlaceholdersPass) {
		st.search = matcherOf(slices.Collect(maps.Values(placeholders)))
	}
	g.state.Store(st)
}

// Request checks an outgoing request and puts the secrets of its route in,
// which may be nil. It changes r's header, URL.RawQuery, Body and
// ContentLength, in place: r.Header must be r's own. r.Trailer must be the map
// that r.Body fills. Where it refuses, r must not be sent.
//
// Reading r.Body may fail with a *Refusal later; Exchange.Refusal has it then,
// whatever the transport made of the error.
func (g *Guard) Request(ctx context.Context, r *http.Request, route *policy.Route) (*Exchange, *Refusal) {
	x := &Exchange{guard: g, state: g.state.Load()}
	x.bodies = x.state.search
	p := &rewrite{ctx: ctx, x: x, r: r, header: map[string]string{}}
	if route != nil {
		if route.Placeholders == policy.PlaceholdersPass {
			x.bodies = nil
		}
		p.secrets, p.guest = route.Secrets, route.Auth == policy.AuthGuest || weak.On(weak.NetForeignPass)
	}
	if weak.On(weak.NetSecretsRoam) {
		p.secrets = everywhere(x.state.placeholders)
	}
	if len(p.secrets) == 0 && x.state.search == nil {
		return x, nil
	}
	if why := p.make(); why != nil {
		return x, x.refused(why)
	}
	p.apply()
	return x, nil
}

// everywhere has every secret go where credentials usually do.
func everywhere(placeholders map[string]string) (all []policy.Secret) {
	for name := range placeholders {
		all = append(all, policy.Secret{Name: name, Header: "Authorization"})
	}
	return all
}

// remember notes that value was put in, and returns those values of the
// secrets named that were put in of late.
func (g *Guard) remember(values map[string]string, named []policy.Secret) (known []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, v := range values {
		last := slices.DeleteFunc(g.recent[name], func(o string) bool { return o == v })
		g.recent[name] = slices.Insert(last, 0, v)[:min(len(last)+1, maxRecent)]
	}
	for _, s := range named {
		known = append(known, g.recent[s.Name]...)
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// searchFor returns a matcher for values.
func (g *Guard) searchFor(values []string) *matcher {
	if len(values) == 0 || weak.On(weak.NetEchoPass) {
		return nil
	}
	key := strings.Join(values, "\x00")
	g.mu.Lock()
	defer g.mu.Unlock()
	if m, ok := g.built[key]; ok {
		return m
	}
	if len(g.built) == maxBuilt {
		clear(g.built)
	}
	m := matcherOf(values)
	g.built[key] = m
	return m
}

// Exchange is one request and its answer, as far as secrets are concerned.
type Exchange struct {
	guard  *Guard
	state  *state
	bodies *matcher // searches what the guest sends beyond the head; nil: all of it may go
	used   []string
	known  []string // values that the answer is searched for
	values *matcher // searches it; nil: nothing to search for

	mu  sync.Mutex
	why *Refusal
}

// Used returns the names of the secrets that were put in, sorted.
func (x *Exchange) Used() []string {
	if x == nil {
		return nil
	}
	return x.used
}

// Refusal returns why the exchange was refused or cut, nil if it was not. It
// may change for as long as bodies are read.
func (x *Exchange) Refusal() *Refusal {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.why
}

// refused notes the first refusal.
func (x *Exchange) refused(why *Refusal) *Refusal {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.why == nil {
		x.why = why
	}
	return why
}
