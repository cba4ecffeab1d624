// Package access is how callers of the daemon's API have sessions: each sees
// its own alone, gets what its rights allow, and is shown what a model is shown.
//
// It refuses a directory of the host, and the machine's own programs, to whom
// they are not granted. Skills are each owner's apart.
package access

import (
	"cmp"
	"context"
	"log/slog"
	"maps"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/service"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// Options are what an Access works with. Runtime is required.
type Options struct {
	Runtime  Runtime
	Skills   *skill.Owners  // nil: there are none
	Profile  string         // of requests that name none; "": "default"
	Profiles profile.Custom // beside the built-in ones
	// WorkspaceQuotaMB is for sessions that name none; nil: the profile's.
	WorkspaceQuotaMB *int
	// Roots are the directories of the host that callers with HostPaths may have
	// mounted, with the workspace of their sessions; nil: none.
	Roots *profile.Roots
	Log   *slog.Logger // default: none
}

// Caller is who asks.
type Caller struct {
	sandbox.Caller
	HostPaths bool // may name directories of the host
	HostImage bool // may see the machine's own programs
}

// Access gives callers their sessions. It is safe for concurrent use.
type Access struct {
	o       Options
	service *service.Service
}

// New returns an Access; an unknown profile is an error.
func New(o Options) (*Access, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := service.New(service.Options{
		Runtime: bound{r: o.Runtime}, Profile: o.Profile, Profiles: o.Profiles, WorkspaceQuotaMB: o.WorkspaceQuotaMB,
		SharesFilesystem: func() bool { return true }, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	s.Connected()
	return &Access{o: o, service: s}, nil
}

// of returns the service as c sees it.
func (a *Access) of(c Caller) *service.Service {
	v := service.View{
		Owner:   c.Owner,
		Runtime: bound{r: a.o.Runtime, c: c},
	}
	if c.HostPaths {
		v.Roots = a.o.Roots
	}
	if a.o.Skills != nil {
		v.Skills = func(ctx context.Context, _ service.Query) []sessions.Skill {
			c := c
			c.HostPaths = true // it mounts them
			list, err := a.Skills(ctx, c)
			if err != nil {
				a.o.Log.Warn("list skills", "owner", c.Owner, "error", err)
			}
			return list
		}
	}
	return a.service.For(v)
}

// payload has what a request says of its session and its command.
func (c Caller) payload(id, cmd string, given map[string]any) (map[string]any, error) {
	for _, name := range []string{"session_id", "cmd"} {
		if _, ok := given[name]; ok {
			return nil, profile.Invalid("spec.%s: it is said beside spec, not in it", name)
		}
	}
	for _, name := range []string{"host_path", "extra_mounts"} {
		if v, ok := given[name]; ok && v != nil && v != "" && !c.HostPaths {
			return nil, sandbox.Errorf(sandbox.Denied, "spec.%s: only the daemon's own user may name directories of the host", name).
				WithHint("leave it out: the session has a workspace of its own")
		}
	}
	p := maps.Clone(given)
	if p == nil {
		p = map[string]any{}
	}
	p["session_id"], p["cmd"] = id, cmd
	return p, nil
}

// Exec runs a command in a session, which is made where there is none.
func (a *Access) Exec(ctx context.Context, c Caller, id string, req sessions.ExecRequest) (sessions.ToolResult, error) {
	p, err := c.payload(id, req.Command, req.Payload)
	if err != nil {
		return sessions.ToolResult{}, err
	}
	return a.of(c).Execute(ctx, service.Request{Payload: p, Profile: req.Profile, OutputLimit: req.OutputLimit, Skills: true})
}

// Create makes a session, or takes the one that is there.
func (a *Access) Create(ctx context.Context, c Caller, req sessions.CreateRequest) (sessions.CreateResponse, error) {
	p, err := c.payload(req.SessionID, "", req.Payload)
	if err != nil {
		return sessions.CreateResponse{}, err
	}
	return a.of(c).Create(ctx, service.Request{Payload: p, Profile: req.Profile, Skills: true})
}

// Get returns a session.
func (a *Access) Get(ctx context.Context, c Caller, id string) (sessions.SessionInfo, error) {
	return a.of(c).Get(ctx, id)
}

// List returns the caller's sessions, and everyone's to an admin.
func (a *Access) List(ctx context.Context, c Caller) ([]sessions.SessionInfo, error) {
	return a.o.Runtime.List(ctx, c.Caller)
}

// Delete ends a session and deletes what it holds.
func (a *Access) Delete(ctx context.Context, c Caller, id string) error {
	return a.of(c).Delete(ctx, id)
}

// StartProcess starts a managed process in a session that is there.
func (a *Access) StartProcess(ctx context.Context, c Caller, id string, spec sessions.ProcessSpec) (sessions.ProcessInfo, error) {
	return a.of(c).StartProcess(ctx, id, withDefaults(spec))
}

// withDefaults fills in what a process's request may leave out.
func withDefaults(p sessions.ProcessSpec) sessions.ProcessSpec {
	p.ProcessID = cmp.Or(p.ProcessID, sessions.DefaultProcess)
	p.Cwd = cmp.Or(p.Cwd, tools.WorkspacePath)
	return p
}

// Process returns a managed process.
func (a *Access) Process(ctx context.Context, c Caller, id, process string) (sessions.ProcessInfo, error) {
	return a.of(c).Process(ctx, id, process)
}

// StopProcess ends a managed process and all that it started.
func (a *Access) StopProcess(ctx context.Context, c Caller, id, process string) error {
	return a.of(c).StopProcess(ctx, id, process)
}

// Status says whether sessions can be had.
func (a *Access) Status(ctx context.Context, c Caller) sessions.Status { return a.of(c).Status(ctx) }

// Errors returns the newest errors of the caller's sessions, oldest first.
func (a *Access) Errors(c Caller) []sessions.ErrorRecord { return a.of(c).Errors() }
