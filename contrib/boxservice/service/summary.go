package service

import (
	"context"
	"log/slog"
	"strings"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

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
