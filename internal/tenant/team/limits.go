package team

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// maxBuckets is how many counts of requests are kept at most: of so many keys
// as there can be in use at once.
const maxBuckets = 100_000

// Limits bound what one team may have and do. What is zero is not bounded.
type Limits struct {
	sandbox.Quota            // but for its Floor, which Book.Floor makes
	Isolation        string  // the weakest wall of a sandbox; "": see NewBook
	CreatesPerMinute float64 // sandboxes; a minute's worth may come at once
	// RequestsPerSecond bounds the requests of each key, those that read and those
	// that change something each for themselves; Burst may come at once.
	RequestsPerSecond float64
	Burst             int // 0: two seconds' worth
	Builds            int // of templates, at the same time
	Templates         int
	Volumes           int
	Secrets           int
}

// Book holds everyone's limits, and counts. It is a sandbox.Quotas, and safe
// for use by several goroutines.
type Book struct {
	rest    Limits
	named   map[string]Limits
	weakest string

	mu       sync.Mutex
	creates  map[string]*rate.Limiter // by owner
	requests map[string]*rate.Limiter // by key and class
	series   map[string]*series       // by owner
}

var _ sandbox.Quotas = (*Book)(nil)

// NewBook returns the limits of the owners in named, and those of all other
// teams. The weakest wall of keys is gVisor where neither they nor these say
// otherwise.
func NewBook(rest Limits, named map[string]Limits) *Book {
	return NewBookOver("", rest, named)
}

// NewBookOver is NewBook with another weakest wall of keys.
func NewBookOver(weakest string, rest Limits, named map[string]Limits) *Book {
	return &Book{
		rest: rest, named: named, weakest: weakest,
		creates: map[string]*rate.Limiter{}, requests: map[string]*rate.Limiter{}, series: map[string]*series{},
	}
}

// Limits returns those of an owner. A user of the machine has none that are not
// its own: they are for those who come from elsewhere.
func (b *Book) Limits(owner string) Limits {
	if l, ok := b.named[owner]; ok {
		return l
	}
	if !strings.HasPrefix(owner, "key:") {
		return Limits{}
	}
	return b.rest
}

// Owners returns those that have limits of their own.
func (b *Book) Owners() []string {
	out := make([]string, 0, len(b.named))
	for o := range b.named {
		out = append(out, o)
	}
	return out
}

// Quota implements sandbox.Quotas.
func (b *Book) Quota(owner string) sandbox.Quota {
	q := b.Limits(owner).Quota
	q.Floor = b.Floor(owner, "")
	return q
}

// Floor is the weakest wall of an owner's sandboxes, or of those of one of its keys,
// which says own or nothing. A key may have a weaker one than keys have here, but none
// that is weaker than its team's. Who comes over the unix socket has none. A
// nil Book is one without limits.
func (b *Book) Floor(owner, own string) sandbox.Floor {
	var l Limits
	weakest := sandbox.WallGVisor
	if b != nil {
		l, weakest = b.Limits(owner), cmp.Or(b.weakest, weakest)
	}
	switch {
	case own != "" && !sandbox.WeakerWall(own, l.Isolation):
		return sandbox.Floor{Wall: own, Setting: "the key's isolation"}
	case l.Isolation != "":
		name := owner
		if _, named := b.named[owner]; !named {
			name = "default"
		}
		return sandbox.Floor{Wall: l.Isolation, Setting: "limits." + name + ".isolation"}
	case !strings.HasPrefix(owner, "key:"):
		return sandbox.Floor{}
	}
	return sandbox.Floor{Wall: weakest, Setting: "weakest_isolation, of who comes with a key,"}
}

// Admit implements sandbox.Quotas.
func (b *Book) Admit(owner string, now time.Time) error {
	perMinute := b.Limits(owner).CreatesPerMinute
	if perMinute <= 0 {
		return nil
	}
	wait := b.take(b.creates, owner, rate.Limit(perMinute/60), max(1, int(perMinute)), now)
	if wait == 0 {
		return nil
	}
	e := sandbox.Errorf(sandbox.Exhausted, "this owner may create %g sandboxes in a minute, and did", perMinute).
		WithHint("wait a while")
	e.Retry = wait
	return e
}

// Request takes one request of a key out of what it may send, or fails with
// Exhausted. Requests of different classes do not count for each other.
func (b *Book) Request(owner, credential, class string, now time.Time) error {
	l := b.Limits(owner)
	if l.RequestsPerSecond <= 0 {
		return nil
	}
	burst := l.Burst
	if burst <= 0 {
		burst = max(1, int(2*l.RequestsPerSecond))
	}
	wait := b.take(b.requests, credential+"\x00"+class, rate.Limit(l.RequestsPerSecond), burst, now)
	if wait == 0 {
		return nil
	}
	e := sandbox.Errorf(sandbox.Exhausted, "this key may send %g requests in a second, and did", l.RequestsPerSecond).
		WithHint("send fewer")
	e.Retry = wait
	return e
}

// take takes one out of a bucket, or says when there will be one.
func (b *Book) take(from map[string]*rate.Limiter, name string, each rate.Limit, burst int, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := from[name]
	if l == nil {
		if len(from) >= maxBuckets {
			for other, old := range from { // those that are full again forget nothing
				if old.TokensAt(now) >= float64(old.Burst()) {
					delete(from, other)
				}
			}
		}
		l = rate.NewLimiter(each, burst)
		from[name] = l
	}
	r := l.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
