package boxservice

import "context"

// ExecuteTool runs a command for an agent: "command" of its parameters, with
// "workdir", "timeout_sec" and "env". Which session it runs in and what that may
// do is not the agent's to say: it is the query's, and the profile's. Output is
// cut to the service's limit. A command that fails, or whose time is up, is a
// result; an error is kept among Errors as well.
func (s *Service) ExecuteTool(ctx context.Context, q Query, parameters map[string]any) (ToolResult, error) {
	return s.core.ExecuteTool(ctx, q, parameters)
}

// Execute runs the command of a payload, which has fields of a Spec by their
// JSON names, in the session that it names. What the profile changed is in the
// result.
func (s *Service) Execute(ctx context.Context, r Request) (ToolResult, error) {
	return s.core.Execute(ctx, r)
}

// BuildSpec makes the Spec of a request, and says what is otherwise than it was
// asked for.
func (s *Service) BuildSpec(ctx context.Context, r Request) (Spec, []Adjustment, error) {
	return s.core.BuildSpec(ctx, r)
}

// SessionID returns the key of the session that a query's commands run in.
func (s *Service) SessionID(q Query) (string, error) { return s.core.SessionID(q) }

// SkillMounts returns where the packages of a query's session are inside.
func (s *Service) SkillMounts(ctx context.Context, q Query) []Mount {
	return s.core.SkillMounts(ctx, q)
}

// Status says how the service and its runtime are. It is available only where
// the runtime answers and has a wall that works.
func (s *Service) Status(ctx context.Context) Status { return s.core.Status(ctx) }

// Available says whether the runtime answers.
func (s *Service) Available() bool { return s.core.Available() }

// Usable says whether a sandbox can be had now: tools that need one are to hide
// where it can't.
func (s *Service) Usable(ctx context.Context) bool { return s.core.Usable(ctx) }

// Enabled says whether the configuration has sandboxes at all.
func (s *Service) Enabled() bool { return s.core.Enabled() }

// Profile returns the profile of requests that name none.
func (s *Service) Profile() Profile { return s.core.Profile() }

// SharesFilesystem says whether the directories that the runtime speaks of are
// this machine's.
func (s *Service) SharesFilesystem() bool { return s.core.SharesFilesystem() }

// HostRoot is the configuration's directory of workspaces, as it holds: absolute,
// and with links followed. So are the two below.
func (s *Service) HostRoot() string { return s.roots.HostRoot() }

// DefaultWorkspace is the workspace of sessions that name none; "": their own.
func (s *Service) DefaultWorkspace() string { return s.roots.DefaultWorkspace() }

// AllowedMountRoots are the directories of the host that may be mounted.
func (s *Service) AllowedMountRoots() []string { return s.roots.Allowed() }

// Sessions lists the sessions; there are none where the runtime can't tell.
func (s *Service) Sessions(ctx context.Context) []SessionInfo { return s.core.Sessions(ctx) }

// Errors returns the newest 50 errors, oldest first.
func (s *Service) Errors() []ErrorRecord { return s.core.Errors() }

// Get returns one session, with its managed processes.
func (s *Service) Get(ctx context.Context, id string) (SessionInfo, error) {
	return s.core.Get(ctx, id)
}

// Delete ends a session, with what it has.
func (s *Service) Delete(ctx context.Context, id string) error { return s.core.Delete(ctx, id) }

// StartProcess starts a process that a session keeps. Client.Attach is for its
// input and output.
func (s *Service) StartProcess(ctx context.Context, session string, p ProcessSpec) (ProcessInfo, error) {
	return s.core.StartProcess(ctx, session, processBody(p))
}

// Process returns a session's process; id "" is DefaultProcess.
func (s *Service) Process(ctx context.Context, session, id string) (ProcessInfo, error) {
	return s.core.Process(ctx, session, process(session, id).Process)
}

// StopProcess ends a session's process with all that it started.
func (s *Service) StopProcess(ctx context.Context, session, id string) error {
	return s.core.StopProcess(ctx, session, process(session, id).Process)
}
