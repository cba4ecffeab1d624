// Package access is how callers of the daemon's API have sessions: each sees
// its own alone, gets what its rights allow, and is shown what a model is shown.
// What they ask for is read by a profile, as LangBot's clients are.
//
// It refuses a directory of the host, and the machine's own programs, to whom
// they are not granted. Skills are each owner's apart.
package access

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/session/request"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// outputLimit is how many characters of each stream a result has.
const outputLimit = 4000

// Runtime is what is asked of a *session.Runtime, which documents each method.
type Runtime interface {
	ImageName(name string) string
	Exec(ctx context.Context, c sandbox.Caller, spec session.Spec, cmd session.Command) (*session.Result, error)
	Create(ctx context.Context, c sandbox.Caller, spec session.Spec) (sessions.SessionInfo, error)
	Get(ctx context.Context, c sandbox.Caller, id string) (sessions.SessionInfo, error)
	List(ctx context.Context, c sandbox.Caller) ([]sessions.SessionInfo, error)
	Delete(ctx context.Context, c sandbox.Caller, id string) error
	StartProcess(ctx context.Context, c sandbox.Caller, id string, spec sessions.ProcessSpec) (sessions.ProcessInfo, error)
	Process(ctx context.Context, c sandbox.Caller, id, pid string) (sessions.ProcessInfo, error)
	StopProcess(ctx context.Context, c sandbox.Caller, id, pid string) error
	Status(ctx context.Context, c sandbox.Caller) (sessions.RuntimeStatus, error)
	Borrow(ctx context.Context, c sandbox.Caller, id string, job session.Job) (*session.Use, error)
}

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
	Roots *hostroot.Roots
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
	profile sessions.Profile
	errors  ring
}

// New returns an Access; an unknown profile is an error.
func New(o Options) (*Access, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Roots == nil {
		o.Roots = &hostroot.Roots{}
	}
	if err := o.Profiles.Check(); err != nil {
		return nil, err
	}
	p, err := profile.Find(o.Profile, o.Profiles)
	if err != nil {
		return nil, err
	}
	return &Access{o: o, profile: p}, nil
}

// payload has what a request says of its session and its command.
func (c Caller) payload(id, cmd string, given map[string]any) (map[string]any, error) {
	for _, name := range []string{"session_id", "cmd"} {
		if _, ok := given[name]; ok {
			return nil, sandbox.Errorf(sandbox.Invalid, "spec.%s: it is said beside spec, not in it", name)
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

// spec reads a payload: the defaults of the configuration, then the profile's,
// then the checks.
func (a *Access) spec(ctx context.Context, c Caller, payload map[string]any, name string) (sessions.Spec, []sessions.Adjustment, error) {
	p, roots := a.profile, &hostroot.Roots{}
	if name != "" {
		var err error
		if p, err = profile.Find(name, a.o.Profiles); err != nil {
			return sessions.Spec{}, nil, err
		}
	}
	if c.HostPaths {
		roots = a.o.Roots
	}
	var skills []sessions.Mount // nil: not listed yet
	if _, named := payload["extra_mounts"]; !named {
		skills = a.skillMounts(ctx, c)
		payload["extra_mounts"] = skills
	}
	s, adjusted, err := profile.Build(payload, p, profile.Defaults{HostPath: roots.DefaultWorkspace(), WorkspaceQuotaMB: a.o.WorkspaceQuotaMB})
	if err == nil && s.HostPath != "" && s.HostPathMode != sessions.MountNone {
		err = profile.CheckHostPath(roots, s.HostPath)
	}
	if err == nil {
		err = profile.CheckMounts(roots, s.ExtraMounts, skills, func() []sessions.Mount { return a.skillMounts(ctx, c) })
	}
	if err == nil {
		err = a.mayHave(c, s)
	}
	return s, adjusted, err
}

// mayHave refuses the machine's own programs to whom they are not granted.
func (a *Access) mayHave(c Caller, s sessions.Spec) error {
	spec, _ := profile.Translate(s)
	image := a.o.Runtime.ImageName(spec.Image)
	if image != sandbox.DefaultImage || c.HostImage {
		return nil
	}
	return sandbox.Errorf(sandbox.Denied, "image %s: this key may not see the machine's own programs", image).
		WithHint("name another image; %s", sandbox.HostImageHint)
}

// Exec runs a command in a session, which is made where there is none.
func (a *Access) Exec(ctx context.Context, c Caller, id string, req sessions.ExecRequest) (sessions.ToolResult, error) {
	p, err := c.payload(id, req.Command, req.Payload)
	if err != nil {
		return sessions.ToolResult{}, err
	}
	s, adjusted, err := a.spec(ctx, c, p, req.Profile)
	if err == nil {
		err = request.CheckLine(s.Cmd)
	}
	if err != nil {
		return sessions.ToolResult{}, a.note(c, s.SessionID, err)
	}
	spec, cmd := profile.Translate(s)
	got, err := a.o.Runtime.Exec(ctx, c.Caller, spec, cmd)
	if err != nil {
		return sessions.ToolResult{}, a.note(c, s.SessionID, err)
	}
	res := got.Wire()
	res.Adjusted = adjusted
	return profile.ToolResult(res, cmp.Or(req.OutputLimit, outputLimit), session.MaxOutput+session.MaxTail), nil
}

// Create makes a session, or takes the one that is there.
func (a *Access) Create(ctx context.Context, c Caller, req sessions.CreateRequest) (sessions.CreateResponse, error) {
	p, err := c.payload(req.SessionID, "", req.Payload)
	if err != nil {
		return sessions.CreateResponse{}, err
	}
	s, adjusted, err := a.spec(ctx, c, p, req.Profile)
	if err != nil {
		return sessions.CreateResponse{}, a.note(c, s.SessionID, err)
	}
	spec, _ := profile.Translate(s)
	info, err := a.o.Runtime.Create(ctx, c.Caller, spec)
	if err != nil {
		return sessions.CreateResponse{}, a.note(c, s.SessionID, err)
	}
	return sessions.CreateResponse{SessionInfo: profile.Named(info), Adjusted: adjusted}, nil
}

// Get returns a session.
func (a *Access) Get(ctx context.Context, c Caller, id string) (sessions.SessionInfo, error) {
	info, err := a.o.Runtime.Get(ctx, c.Caller, id)
	if err != nil {
		return sessions.SessionInfo{}, err
	}
	return profile.Named(info), nil
}

// List returns the caller's sessions, and everyone's to an admin.
func (a *Access) List(ctx context.Context, c Caller) ([]sessions.SessionInfo, error) {
	list, err := a.o.Runtime.List(ctx, c.Caller)
	for i := range list {
		list[i] = profile.Named(list[i])
	}
	return list, err
}

// Delete ends a session and deletes what it holds.
func (a *Access) Delete(ctx context.Context, c Caller, id string) error {
	return a.o.Runtime.Delete(ctx, c.Caller, id)
}

// StartProcess starts a managed process in a session that is there.
func (a *Access) StartProcess(ctx context.Context, c Caller, id string, p sessions.ProcessSpec) (sessions.ProcessInfo, error) {
	p.ProcessID, p.Cwd = cmp.Or(p.ProcessID, sessions.DefaultProcess), cmp.Or(p.Cwd, tools.WorkspacePath)
	if err := request.CheckProcess(p); err != nil { // before it is written down that it was asked for
		return sessions.ProcessInfo{}, err
	}
	return a.o.Runtime.StartProcess(ctx, c.Caller, id, p)
}

// Process returns a managed process.
func (a *Access) Process(ctx context.Context, c Caller, id, process string) (sessions.ProcessInfo, error) {
	return a.o.Runtime.Process(ctx, c.Caller, id, process)
}

// StopProcess ends a managed process and all that it started.
func (a *Access) StopProcess(ctx context.Context, c Caller, id, process string) error {
	return a.o.Runtime.StopProcess(ctx, c.Caller, id, process)
}

// Status says whether sessions can be had: where the wall works.
func (a *Access) Status(ctx context.Context, c Caller) sessions.Status {
	status := sessions.Status{Enabled: true, Profile: a.profile.Name, RecentErrorCount: len(a.Errors(c))}
	runtime, err := a.o.Runtime.Status(ctx, c.Caller)
	if err != nil {
		status.ConnectorError = err.Error()
		return status
	}
	status.RuntimeStatus, status.Available = runtime, runtime.Backend.Available
	status.ConnectorError = profile.BackendError(runtime.Backend)
	return status
}

// Errors returns the newest errors of the caller's sessions, oldest first.
func (a *Access) Errors(c Caller) []sessions.ErrorRecord { return a.errors.list(c.Owner) }

// note keeps an error among its owner's newest, and returns it.
func (a *Access) note(c Caller, id string, err error) error {
	a.errors.add(c.Owner, profile.ErrorRecord(time.Now(), err, id))
	a.o.Log.Warn("session error", "owner", c.Owner, "session_id", id, "type", profile.Class(err), "error", err)
	return err
}
