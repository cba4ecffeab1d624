package egress

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// counts are the records of a gate, counted by what they are. There are few
// kinds: none of what tells them apart is the guest's to choose.
type counts struct {
	mu sync.Mutex
	by map[countKey]*sandbox.NetCounter
}

type countKey struct {
	protocol string
	verdict  netlog.Verdict
	code     string
}

func (c *counts) add(r netlog.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := countKey{r.Protocol, r.Verdict, r.Code}
	n := c.by[k]
	if n == nil {
		if c.by == nil {
			c.by = make(map[countKey]*sandbox.NetCounter)
		}
		n = &sandbox.NetCounter{Protocol: r.Protocol, Verdict: r.Verdict, Code: r.Code}
		c.by[k] = n
	}
	n.Count += uint64(max(r.Count, 1))
	n.Sent += uint64(max(r.Sent, 0))
	n.Received += uint64(max(r.Received, 0))
}

// all returns the counters, in order.
func (c *counts) all() []sandbox.NetCounter {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]sandbox.NetCounter, 0, len(c.by))
	for _, n := range c.by {
		list = append(list, *n)
	}
	slices.SortFunc(list, func(a, b sandbox.NetCounter) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(a.Code, b.Code))
	})
	return list
}

// Use implements sandbox.Gate.
func (g *Gates) Use(ctx context.Context, id string) (sandbox.NetUse, error) {
	one, err := g.known(id)
	if err != nil {
		return sandbox.NetUse{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, controlLimit)
	defer cancel()
	var st status
	err = one.do(ctx, http.MethodGet, pathStatus, nil, &st)
	return st.Use, err
}
