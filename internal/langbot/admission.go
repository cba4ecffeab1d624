package langbot

import (
	"context"
	"encoding/json"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// admission lets workspaces have a sandbox only while a grant says so. It is
// off until the operator's configuration or a host's asks for it, and then on
// for as long as the Handler lives; what asks for it and can't be read turns it
// on as well, with nothing admitted. Grants are lost with the daemon, and until
// a host renews its own nothing is admitted: the sessions are still there.
type admission struct {
	h     *Handler
	watch sandbox.Stopwatch
	fixed bool // the policy is the operator's

	asking chan struct{} // a slot, of who asks for the readiness anew

	mu         sync.Mutex // held over nothing that takes time
	p          policy
	fault      string // of the configuration; "": none
	configured int    // how often a host said one
	grants     map[workspace]*granted
	ends       expiries
	wake       chan struct{}
	readyAt    time.Time
	last       *readiness // nil: to be asked anew
}

// dropsAtOnce is of how many workspaces sessions are ended side by side: one
// whose guest takes its time keeps no other's.
const dropsAtOnce = 8

// granted is a grant that holds.
type granted struct {
	langbot.Grant
	key     workspace
	expires time.Time
	// ends is the same in time that passes: whatever the clock is set to, nothing
	// is ended before it, nor lives on after it.
	ends  time.Duration
	index int // in admission.ends
}

func newAdmission(h *Handler, operator json.RawMessage) *admission {
	a := &admission{h: h, watch: sandbox.NewStopwatch(h.clock), p: defaultPolicy(), grants: map[workspace]*granted{}, wake: make(chan struct{}, 1), asking: make(chan struct{}, 1)}
	if operator == nil {
		return a
	}
	p, err := parsePolicy(operator)
	if err != nil {
		p, a.fault = defaultPolicy(), err.Error()
		p.Required = true
		h.log.Error("box.admission can't be read: no session is admitted", "why", err)
	}
	a.p, a.fixed = p, true
	return a
}

// configure takes a host's policy, and reports whether it was left out: the
// operator's is what holds where there is one, but a host may always ask for
// grants to be required.
func (a *admission) configure(raw json.RawMessage) (left bool) {
	p, err := parsePolicy(raw)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = nil
	a.configured++
	switch {
	case err != nil:
		a.p.Required, a.fault = true, err.Error()
		a.h.log.Warn("a host's admission policy can't be read: no session is admitted", "why", err)
		return false
	case a.p.Required && !p.Required:
		if a.fixed {
			return true
		}
		a.fault = "enforcement can't be switched off while the runtime lives: start it anew"
		return false
	case a.fixed:
		a.p.Required = a.p.Required || p.Required
		return true
	}
	a.p, a.fault = p, ""
	return false
}

func (a *admission) required() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.p.Required
}

// backend is the name by which a host that asks for admission knows the wall.
func (a *admission) backend(wall *string) *string {
	if wall == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name := a.p.RequiredBackend
	return &name
}

// admitted returns the grant by which a workspace may have a session now.
func (a *admission) admitted(ctx context.Context, about *langbot.Context) (langbot.Grant, error) {
	if about == nil {
		return langbot.Grant{}, admissionError("Sandbox admission needs an action context: this runtime admits workspaces by their grants")
	}
	if err := a.ready(ctx); err != nil {
		return langbot.Grant{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.grants[workspaceOf(about)]
	switch {
	case g == nil:
		return langbot.Grant{}, admissionError("Sandbox admission grant is missing")
	case !a.h.clock.Now().Before(g.expires) || a.watch.Passed() >= g.ends:
		return langbot.Grant{}, admissionError("Sandbox admission grant has expired")
	case g.ExecutionGeneration != about.PlacementGeneration:
		return langbot.Grant{}, admissionError("Sandbox admission grant belongs to another execution generation")
	case g.MaxSessions <= 0:
		return langbot.Grant{}, admissionError("Sandbox admission grant does not permit sessions")
	case g.MaxSessions > a.p.MaxSessions || g.MaxProcesses > a.p.MaxProcesses:
		return langbot.Grant{}, admissionError("Sandbox admission grant exceeds the active runtime policy")
	}
	return g.Grant, nil
}

// normalize makes of a request the one session that a grant admits. What it
// asks for besides is refused, not left out.
func (a *admission) normalize(ctx context.Context, t tenant, spec sessions.Spec) (sessions.Spec, error) {
	a.mu.Lock()
	p := a.p
	a.mu.Unlock()
	ns := rpc.Namespace(t.about.InstanceUUID, t.about.WorkspaceUUID)
	switch {
	case spec.Network != sessions.NetworkOff:
		return spec, admissionError("Managed sandbox network access is disabled")
	case len(spec.ExtraMounts) > 0:
		return spec, admissionError("Managed sandbox additional host mounts are disabled")
	case spec.MountPath != tools.WorkspacePath:
		return spec, admissionError("Managed sandbox mount_path is runtime-owned")
	case path.Clean(spec.Workdir) != tools.WorkspacePath && !strings.HasPrefix(path.Clean(spec.Workdir), tools.WorkspacePath+"/"):
		return spec, admissionError("Managed sandbox workdir must stay under /workspace")
	case spec.HostPath != "" && !strings.HasSuffix(path.Clean(spec.HostPath), "/tenants/"+ns):
		return spec, admissionError("Managed sandbox host_path is runtime-owned")
	case spec.Isolation != "" || spec.OnTimeout == sessions.OnTimeoutReset:
		return spec, admissionError("Managed sandbox isolation and on_timeout are runtime-owned")
	}
	// Its workspace outlives generations: a volume of the workspace's, under a
	// name that is this runtime's own and of no file system.
	const root = "/carboy-managed"
	a.h.o.Sessions.Declare(t.caller.Owner, root)
	var mounts []sessions.Mount
	if spec.SkillName != "" {
		skill, err := a.skillMount(ctx, t, spec.SkillName)
		if err != nil {
			return spec, err
		}
		mounts = []sessions.Mount{skill}
	}
	spec.SessionID = prefix(t.about) + admittedID
	spec.Image, spec.HostPath, spec.HostPathMode = sessions.DefaultImage, root+"/workspace", sessions.MountWritable
	spec.ExtraMounts, spec.Persistent, spec.TimeoutSec = mounts, true, min(spec.TimeoutSec, p.MaxTimeoutSec)
	spec.CPUs, spec.MemoryMB, spec.PIDsLimit = p.CPUs, p.MemoryMB, p.PIDsLimit
	spec.ReadOnlyRootFS, spec.WorkspaceQuotaMB = p.ReadOnlyRootFS, p.QuotaMB
	spec.Quota, spec.WorkspaceInodes = sessions.QuotaHard, 0
	return spec, nil
}

// skillMount is that of a skill of the workspace's own, which the session may
// read.
func (a *admission) skillMount(ctx context.Context, t tenant, name string) (sessions.Mount, error) {
	unavailable := admissionError("Managed sandbox skill is unavailable in this Workspace")
	if a.h.o.Skills == nil {
		return sessions.Mount{}, unavailable
	}
	s, err := a.h.o.Skills(t.caller.Owner)
	if err != nil {
		return sessions.Mount{}, unavailable
	}
	got, err := s.Get(ctx, name)
	if err != nil || got.Name != name {
		return sessions.Mount{}, unavailable
	}
	return sessions.Mount{HostPath: got.PackageRoot, MountPath: tools.SkillsPath + "/" + name, Mode: sessions.MountReadOnly}, nil
}

// enforced says what keeps grants from being taken at all.
func (a *admission) enforced() (policy, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !a.p.Required:
		return a.p, admissionError("Sandbox admission enforcement is not enabled")
	case a.fault != "":
		return a.p, readinessError("Invalid sandbox admission configuration: %s", a.fault)
	}
	return a.p, nil
}

func (a *admission) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run ends the sessions of grants that expire, until ctx ends.
func (a *admission) run(ctx context.Context) error {
	var drops sync.WaitGroup
	defer drops.Wait()
	slots := make(chan struct{}, dropsAtOnce)
	for {
		expired, next := a.expire(a.watch.Passed())
		for _, key := range expired {
			drops.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				a.drop(ctx, key)
			})
		}
		var timer <-chan time.Time
		if next > 0 {
			timer = a.h.clock.After(next)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-timer:
		}
	}
}

// drop ends the sessions of a workspace whose grant is over. One that has
// another by now keeps them.
func (a *admission) drop(ctx context.Context, key workspace) {
	err := a.h.o.Sessions.DropAll(ctx, ownerOf(key.instance, key.name), func(string) bool { return !a.holds(key) })
	if err != nil && ctx.Err() == nil {
		a.h.log.Warn("sessions whose grant expired were not all ended", "err", err)
	}
}

func (a *admission) holds(key workspace) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.grants[key] != nil
}

// expire forgets the grants that are over, and says in what time the next is; 0:
// there is none. It looks at no other.
func (a *admission) expire(now time.Duration) (over []workspace, next time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.ends) > 0 {
		g := a.ends[0]
		if now < g.ends {
			return over, max(g.ends-now, time.Millisecond)
		}
		a.forgetLocked(g.key)
		over = append(over, g.key)
	}
	return over, 0
}
