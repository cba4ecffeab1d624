package dns

import (
	"container/list"
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/weak"
	wire "github.com/miekg/dns"
)

// maxCached is how many answers are kept.
const maxCached = 1024

// How long answers are kept and told to be good for, whatever upstream says.
const (
	minTTL      = 5 * time.Second
	maxTTL      = time.Hour
	maxNegative = 5 * time.Minute
	failureTTL  = time.Second
)

// kind is what an answer says.
type kind int

const (
	found  kind = iota
	noData      // the name is there, and has nothing of the type
	noName      // there is no such name
	failed      // nobody answered
)

// answer is what upstreams know of a question, as it came: which of its
// addresses are closed is looked up each time, for the policy may change.
// It is not changed once it was made.
type answer struct {
	kind  kind
	chain []string // what the name is another name of, one after the other
	addrs []netip.Addr
	rrs   []wire.RR // of other types
	ttl   time.Duration
	fail  failure
}

// failure says why nobody answered, as an extended error.
type failure struct {
	code   uint16
	reason string
}

// key is a question. The type is 0 for a name that does not exist.
type key struct {
	epoch uint64
	name  string
	qtype uint16
}

type entry struct {
	answer
	expires time.Time
}

// cache keeps answers, and the questions that are with upstreams now.
type cache struct {
	mu      sync.Mutex
	entries lru[key, entry]
	asking  map[key]*flight
	flushes int // answers to what was asked before the last are not kept
}

// flight is a question that is with an upstream. Its answer is there when
// done is closed.
type flight struct {
	done    chan struct{}
	answer  answer
	flushes int
}

func (c *cache) init() {
	c.entries = newLRU[key, entry](maxCached)
	c.asking = map[key]*flight{}
}

// get returns what is known, with the time that is left to it.
func (c *cache) get(k key, now time.Time) (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range [...]key{k, {k.epoch, k.name, 0}} {
		e, ok := c.entries.get(k)
		if !ok {
			continue
		}
		if left := e.expires.Sub(now); left > 0 {
			a := e.answer
			a.ttl = left
			return a, true
		}
		c.entries.remove(k)
	}
	return answer{}, false
}

// join returns the flight of k, and whether the caller is to begin it.
func (c *cache) join(k key) (f *flight, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.asking[k]; ok {
		return f, false
	}
	f = &flight{done: make(chan struct{}), flushes: c.flushes}
	c.asking[k] = f
	return f, true
}

// land ends the flight of k and keeps its answer.
func (c *cache) land(k key, f *flight, a answer, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.answer = a
	delete(c.asking, k)
	close(f.done)
	if f.flushes != c.flushes {
		return
	}
	if a.kind == noName {
		k.qtype = 0
	}
	c.entries.put(k, entry{a, now.Add(a.ttl)})
}

// abandon ends a flight that never began.
func (c *cache) abandon(k key, f *flight, v policy.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.answer = answer{kind: failed, fail: failure{wire.ExtendedErrorCodeProhibited, v.Reason}}
	delete(c.asking, k)
	close(f.done)
}

// lookup returns the answer to a question that the policy allows, under the
// rule that did: from the cache, or from upstreams, of which equal questions
// share one answer. The verdict is a refusal where a limit forbids to ask.
// charged says that the question was taken from the limit already.
func (s *Server) lookup(ctx context.Context, st *settings, v policy.Verdict, name string, qtype uint16, charged bool) (a answer, asked bool, refused policy.Verdict) {
	k := key{st.epoch, name, qtype}
	if a, ok := s.cache.get(k, s.opts.Now()); ok {
		return a, false, policy.Verdict{Mode: policy.ModeAllow}
	}
	f, first := s.cache.join(k)
	if first {
		if refused := s.begin(st, v, k, f, charged); !refused.Allowed() {
			s.cache.abandon(k, f, refused)
			return answer{}, false, refused
		}
	}
	select {
	case <-f.done:
		return f.answer, true, policy.Verdict{Mode: policy.ModeAllow}
	case <-ctx.Done():
		return answer{kind: failed, fail: failure{wire.ExtendedErrorCodeOther, "the question was given up"}}, true, policy.Verdict{Mode: policy.ModeAllow}
	}
}

// begin starts a flight, if the limits allow it.
func (s *Server) begin(st *settings, v policy.Verdict, k key, f *flight, charged bool) policy.Verdict {
	now := s.opts.Now()
	if !charged && !s.limits.question(now, st.perMinute) {
		return s.tooMany(st)
	}
	exists := func() {}
	if !st.exact[k.name] && !weak.On(weak.NetTunnelOpen) {
		var reason string
		if exists, reason = s.limits.spend(k.name, v.Rule, now); reason != "" {
			return refuse(CodeLimit, v.Rule, reason)
		}
	}
	fly := func() {
		ctx, cancel := context.WithTimeout(s.life, s.times.question)
		defer cancel()
		a := s.follow(ctx, st, k.name, k.qtype)
		if a.kind == found || a.kind == noData {
			exists()
		}
		s.cache.land(k, f, a, s.opts.Now())
	}
	s.flightMu.Lock()
	defer s.flightMu.Unlock()
	if s.life.Err() != nil {
		return refuse(CodeUpstream, "", "the resolver has ended")
	}
	s.flights.Go(fly)
	return policy.Verdict{Mode: policy.ModeAllow}
}

// lru is a map with a bound: what was used longest ago goes first. Whoever
// holds it locks it.
type lru[K comparable, V any] struct {
	bound int
	order list.List // of *pair[K, V], the last used in front
	items map[K]*list.Element
}

type pair[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](bound int) lru[K, V] {
	return lru[K, V]{bound: bound, items: map[K]*list.Element{}}
}

func (l *lru[K, V]) get(k K) (v V, ok bool) {
	e, ok := l.items[k]
	if !ok {
		return v, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*pair[K, V]).value, true
}

func (l *lru[K, V]) put(k K, v V) {
	if e, ok := l.items[k]; ok {
		e.Value.(*pair[K, V]).value = v
		l.order.MoveToFront(e)
		return
	}
	if len(l.items) >= l.bound {
		oldest := l.order.Back()
		delete(l.items, oldest.Value.(*pair[K, V]).key)
		l.order.Remove(oldest)
	}
	l.items[k] = l.order.PushFront(&pair[K, V]{k, v})
}

func (l *lru[K, V]) remove(k K) {
	if e, ok := l.items[k]; ok {
		delete(l.items, k)
		l.order.Remove(e)
	}
}
