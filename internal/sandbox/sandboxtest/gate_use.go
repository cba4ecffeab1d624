package sandboxtest

import (
	"context"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Use implements sandbox.Gate: it counts records.
func (g *Gate) Use(_ context.Context, id string) (sandbox.NetUse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var use sandbox.NetUse
	if one := g.gates[id]; one != nil && len(one.records) > 0 {
		use.Counters = []sandbox.NetCounter{{Protocol: "https", Verdict: netlog.Allow, Count: uint64(len(one.records))}}
	}
	return use, nil
}
