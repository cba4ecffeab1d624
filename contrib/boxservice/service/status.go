package service

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// Status says how the service and its runtime are. It is available only where
// the runtime answers and its wall works: a connection alone is not enough.
func (s *Service) Status(ctx context.Context) sessions.Status {
	status := sessions.Status{
		Enabled: s.Enabled(), Profile: s.profile.Name, RecentErrorCount: len(s.Errors()), ConnectorError: s.whyNot(),
	}
	if status.ConnectorError != "" {
		return status
	}
	runtime, err := s.o.Runtime.Status(ctx)
	if err != nil {
		status.ConnectorError = err.Error()
		return status
	}
	status.RuntimeStatus, status.Available = runtime, runtime.Backend.Available
	status.ConnectorError = profile.BackendError(runtime.Backend)
	return status
}

// Usable reports whether a sandbox can be had now. Tools that need one hide
// themselves where it can't: nothing runs on the host instead.
func (s *Service) Usable(ctx context.Context) bool {
	if !s.Available() {
		return false
	}
	b, err := s.o.Runtime.Backend(ctx)
	return err == nil && b.Available
}

// Sessions lists the sessions; there are none where the runtime can't tell.
func (s *Service) Sessions(ctx context.Context) []sessions.SessionInfo {
	if !s.Available() {
		return []sessions.SessionInfo{}
	}
	list, err := s.o.Runtime.List(ctx)
	if err != nil || list == nil {
		return []sessions.SessionInfo{}
	}
	return list
}

// Errors returns the newest 50 errors, oldest first.
func (s *Service) Errors() []sessions.ErrorRecord { return s.errors.list() }

const maxErrors = 50

// ring keeps the newest errors.
type ring struct {
	mu     sync.Mutex
	newest []sessions.ErrorRecord
}

func (r *ring) list() []sessions.ErrorRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]sessions.ErrorRecord{}, r.newest...)
}

// note keeps an error, and returns it.
func (s *Service) note(q Query, session string, err error) error {
	e := profile.ErrorRecord(s.o.Now(), err, session)
	e.QueryID = q.ID
	s.errors.mu.Lock()
	s.errors.newest = slices.Clone(append(s.errors.newest, e)[max(0, len(s.errors.newest)+1-maxErrors):])
	s.errors.mu.Unlock()
	s.o.Log.Warn("box error", "query_id", q.ID, "session_id", session, "type", e.Type, "error", err)
	return err
}

const maxLoggedCmd = 400 // characters

func (s *Service) log(ctx context.Context, what string, q Query, about slog.Attr) {
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, what, slog.String("query_id", q.ID), about)
}

// summary is what is logged of a request: of its environment the names alone.
func summary(s sessions.Spec) slog.Attr {
	return slog.Group("spec",
		"session_id", s.SessionID, "workdir", s.Workdir, "mount_path", s.MountPath, "timeout_sec", s.TimeoutSec,
		"network", s.Network, "image", s.Image, "host_path", s.HostPath, "host_path_mode", s.HostPathMode,
		"cpus", s.CPUs, "memory_mb", s.MemoryMB, "pids_limit", s.PIDsLimit, "read_only_rootfs", s.ReadOnlyRootFS,
		"workspace_quota_mb", s.WorkspaceQuotaMB,
		"env_keys", request.EnvNames(s.Env), "cmd", shorten(strings.TrimSpace(s.Cmd), maxLoggedCmd))
}

// outcome is what is logged of a result: how much was written, and nothing of
// it, which may be a secret.
func outcome(r sessions.Result) slog.Attr {
	args := []any{"session_id", r.SessionID, "backend", r.BackendName, "status", r.Status}
	if r.ExitCode != nil {
		args = append(args, "exit_code", *r.ExitCode)
	}
	return slog.Group("result", append(args, "duration_ms", r.DurationMS, "queued_ms", r.QueuedMS,
		"stdout_bytes", r.StdoutBytes, "stderr_bytes", r.StderrBytes)...)
}

// shorten cuts s to so many characters, the last three of which then are dots.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	n, keep := 0, 0
	for i := range s {
		if n == most-3 {
			keep = i
		}
		if n++; n > most {
			return s[:keep] + "..."
		}
	}
	return s
}
