package profile

import (
	"cmp"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// Validate reports the first thing about a Spec that could not be honoured. An
// empty Cmd passes: a session is made without one. Whether a directory of the
// host may be named is decided by its roots.
func Validate(s sessions.Spec) error {
	for _, f := range []struct { // before they are multiplied
		name    string
		n, most int
	}{
		{"timeout_sec", s.TimeoutSec, int(request.MaxTimeout / time.Second)},
		{"memory_mb", s.MemoryMB, request.MaxMemory >> 20},
		{"workspace_quota_mb", s.WorkspaceQuotaMB, request.MaxQuota >> 20},
	} {
		if f.n > f.most {
			return fault.Invalid("%s must be at most %d", f.name, f.most)
		}
	}
	if err := choice(new(string), s.OnTimeout, sessions.OnTimeoutKeep, sessions.OnTimeoutReset); err != nil {
		return fault.Invalid("on_timeout: %v", err)
	}
	return request.CheckIn(Translate(s))
}

// Translate says in our own terms what a Spec asks for. The image that LangBot's
// clients name is the configured one.
func Translate(s sessions.Spec) (request.Session, request.Command) {
	out := request.Session{
		Key: s.SessionID, Image: s.Image, Isolation: s.Isolation, Network: s.Network, ReadOnlyRoot: s.ReadOnlyRootFS,
		CPUs: s.CPUs, Memory: mib(s.MemoryMB), PIDs: int64(s.PIDsLimit), Skill: s.SkillName, Persistent: s.Persistent,
		Workspace: request.Workspace{
			HostPath: s.HostPath, Mode: s.HostPathMode, Target: s.MountPath,
			Size: mib(s.WorkspaceQuotaMB), Inodes: s.WorkspaceInodes, Quota: s.Quota,
		},
	}
	if out.Image == sessions.DefaultImage {
		out.Image = ""
	}
	for _, m := range s.ExtraMounts {
		out.Mounts = append(out.Mounts, request.Mount{HostPath: m.HostPath, Target: m.MountPath, Mode: m.Mode})
	}
	return out, request.Command{
		Line: s.Cmd, Dir: s.Workdir, Env: s.Env, Timeout: time.Duration(max(s.TimeoutSec, -1)) * time.Second,
		Reset: s.OnTimeout == sessions.OnTimeoutReset,
	}
}

// mib is so many MiB in bytes. What is negative stays so, however large.
func mib(n int) int64 { return int64(max(n, -1)) << 20 }

// Named is a session as LangBot's clients know it: the configured image has its
// name there.
func Named(is sessions.SessionInfo) sessions.SessionInfo {
	is.Image = cmp.Or(is.Image, sessions.DefaultImage)
	return is
}
