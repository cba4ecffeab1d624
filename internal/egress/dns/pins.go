package dns

import (
	"net/netip"
	"sync"
	"time"
)

const (
	maxPinned = 4096             // addresses
	maxNames  = 16               // of one address
	minPin    = 10 * time.Minute // programs keep addresses longer than they should
)

// pins remember which names an address was given for.
type pins struct {
	mu    sync.Mutex
	addrs lru[netip.Addr, []pin]
}

// pin is one name of an address.
type pin struct {
	name  string
	until time.Time
}

func (p *pins) init() { p.addrs = newLRU[netip.Addr, []pin](maxPinned) }

// add pins name to every address, for ttl or minPin from now on, whichever is
// longer.
func (p *pins) add(name string, addrs []netip.Addr, ttl time.Duration, now time.Time) {
	until := now.Add(max(ttl, minPin))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range addrs {
		old, _ := p.addrs.get(a)
		if len(old) > 0 && old[0].name == name {
			if until.After(old[0].until) {
				old[0].until = until
			}
			continue
		}
		kept := append(make([]pin, 0, len(old)+1), pin{name, until})
		for _, o := range old {
			if o.name != name && now.Before(o.until) && len(kept) < maxNames {
				kept = append(kept, o)
			}
		}
		p.addrs.put(a, kept)
	}
}

// names returns the names that addr is pinned to now. The slice is the
// caller's.
func (p *pins) names(addr netip.Addr, now time.Time) (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, _ := p.addrs.get(addr)
	for _, o := range old {
		if now.Before(o.until) {
			names = append(names, o.name)
		}
	}
	if old != nil && names == nil {
		p.addrs.remove(addr)
	}
	return names
}
