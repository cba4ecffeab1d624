package langbot

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
)

// readiness is what /readyz says.
type readiness struct {
	Ready     bool             `json:"ready"`
	Mode      string           `json:"mode"`
	Backend   sessions.Backend `json:"backend"`
	Checks    map[string]bool  `json:"checks"`
	Error     string           `json:"error,omitempty"`
	Resources map[string]int   `json:"resources,omitempty"`
}

// strictChecks are what admission asks of the isolation, by the original's
// names.
var strictChecks = []string{
	"workspace_mount", "cgroup_v2", "namespace_isolation", "mount_isolation", "network_isolation",
	"hard_workspace_quota", "hard_skill_storage_quota", "bounded_ephemeral_storage", "inode_quota",
}

// readiness says whether sessions can be had, and, with admission, whether all
// holds that it asks for. It is asked anew when the policy's time is over.
func (a *admission) readiness(ctx context.Context) readiness {
	if out, _, ok := a.recent(); ok {
		return out
	}
	select { // who waits for another's answer may give up
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
	case <-ctx.Done():
		return readiness{Mode: "standard", Checks: map[string]bool{"backend_available": false}, Error: "the request was given up"}
	}
	out, p, ok := a.recent()
	if ok {
		return out
	}
	out = a.ask(ctx, p)
	if ctx.Err() == nil { // else the answer may be about who asked, not about the wall
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.configured == p.configured {
			a.last, a.readyAt = &out, a.h.clock.Now()
		}
	}
	return out.clone()
}

// asked is what readiness is about.
type asked struct {
	policy
	fault      string
	configured int
}

// recent returns an answer that still holds, or what is to be asked.
func (a *admission) recent() (out readiness, p asked, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last != nil && a.h.clock.Now().Sub(a.readyAt) < time.Duration(a.p.ReadinessSec)*time.Second {
		return a.last.clone(), p, true
	}
	return out, asked{a.p, a.fault, a.configured}, false
}

func (a *admission) ask(ctx context.Context, p asked) readiness {
	b := a.h.o.Sessions.Backend(ctx)
	out := readiness{Mode: "standard", Backend: b, Checks: map[string]bool{"backend_available": b.Available}}
	if p.Required {
		out.Mode, out.Error = "grant_enforced", p.fault
		out.Checks["configuration"] = p.fault == ""
		out.Checks["required_backend"] = b.Name != nil
		out.Checks["session_cap"] = p.MaxSessions <= 1
		out.Checks["managed_process_cap"] = p.MaxProcesses == 0
		var holds map[string]bool
		if a.h.o.Readiness != nil {
			holds = a.h.o.Readiness(ctx)
		}
		for _, name := range strictChecks {
			out.Checks[name] = holds[name]
		}
	}
	out.Ready = !slices.Contains(slices.Collect(maps.Values(out.Checks)), false)
	return out
}

func (r readiness) clone() readiness {
	r.Checks = maps.Clone(r.Checks)
	return r
}

// ready says which checks keep sessions from being admitted.
func (a *admission) ready(ctx context.Context) error {
	r := a.readiness(ctx)
	if r.Ready {
		return nil
	}
	var failed []string
	for name, ok := range r.Checks {
		if !ok {
			failed = append(failed, name)
		}
	}
	slices.Sort(failed)
	return readinessError("Managed sandbox isolation is not ready (failed checks: %s)", strings.Join(failed, ", "))
}
