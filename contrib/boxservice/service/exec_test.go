package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice/service"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
)

func mkdirs(t *testing.T, names ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if err := os.MkdirAll(filepath.Join(root, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func there(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// tool runs a command with these parameters, and returns the Spec it came to.
func tool(t *testing.T, rt *fakeRuntime, s *service.Service, parameters map[string]any) (sessions.ToolResult, sessions.Spec) {
	t.Helper()
	parameters["command"] = "echo hi"
	r, err := s.ExecuteTool(t.Context(), query("30"), parameters)
	if err != nil || !r.OK {
		t.Fatalf("ExecuteTool = %+v, %v", r, err)
	}
	return r, rt.started[0]
}

func payload(t *testing.T, rt *fakeRuntime, s *service.Service, fields map[string]any) (sessions.ToolResult, sessions.Spec) {
	t.Helper()
	fields["cmd"], fields["session_id"] = "echo hi", "31"
	r, err := s.Execute(t.Context(), service.Request{Query: query("31"), Payload: fields})
	if err != nil || !r.OK {
		t.Fatalf("Execute = %+v, %v", r, err)
	}
	return r, rt.started[0]
}

// with is a service of a profile, and its runtime.
func with(t *testing.T, name string) (*fakeRuntime, *service.Service) {
	t.Helper()
	rt := &fakeRuntime{}
	return rt, initialized(t, rt, func(o *service.Options) { o.Profile = name })
}

func TestProfiles(t *testing.T) {
	standard := profile.Builtin()["default"]
	t.Run("test_profile_default_provides_defaults", func(t *testing.T) {
		rt, s := with(t, "")
		r, spec := tool(t, rt, s, map[string]any{})
		if spec.Network != "off" || spec.Image != standard.Image || spec.TimeoutSec != standard.TimeoutSec || r.Adjusted != nil {
			t.Errorf("spec %+v, adjusted %v", spec, r.Adjusted)
		}
	})
	t.Run("test_profile_unlocked_field_can_be_overridden", func(t *testing.T) {
		rt, s := with(t, "")
		r, spec := payload(t, rt, s, map[string]any{"timeout_sec": 60, "network": "on"})
		if spec.TimeoutSec != 60 || spec.Network != "on" || r.Adjusted != nil {
			t.Errorf("spec %+v, adjusted %v", spec, r.Adjusted)
		}
	})
	t.Run("test_profile_locked_field_cannot_be_overridden", func(t *testing.T) {
		rt, s := with(t, "offline_readonly")
		r, spec := payload(t, rt, s, map[string]any{"network": "on", "host_path_mode": "rw"})
		want := []sessions.Adjustment{
			{Field: "network", Asked: "on", Got: "off", Reason: "locked by profile offline_readonly"},
			{Field: "host_path_mode", Asked: "rw", Got: "ro", Reason: "locked by profile offline_readonly"},
		}
		if d := cmp.Diff(want, r.Adjusted); d != "" || spec.Network != "off" || spec.HostPathMode != "ro" {
			t.Errorf("spec %+v, adjusted (-want +got):\n%s", spec, d)
		}
	})
	t.Run("test_profile_offline_readonly_locks_read_only_rootfs", func(t *testing.T) {
		rt, s := with(t, "offline_readonly")
		r, spec := payload(t, rt, s, map[string]any{"read_only_rootfs": false})
		if !spec.ReadOnlyRootFS || len(r.Adjusted) != 1 {
			t.Errorf("spec %+v, adjusted %v", spec, r.Adjusted)
		}
	})
	t.Run("test_unknown_profile_raises_error", func(t *testing.T) {
		_, err := service.New(service.Options{Runtime: &fakeRuntime{}, Profile: "nonexistent"})
		if profile.Class(err) != langbot.ClassValidation || !strings.Contains(err.Error(), "unknown box profile 'nonexistent', available profiles: default, ") {
			t.Errorf("New = %v", err)
		}
	})
}

func TestProfileNumbers(t *testing.T) {
	standard := profile.Builtin()["default"]
	clamped := func(asked any) func(*testing.T) {
		return func(t *testing.T) {
			rt, s := with(t, "")
			r, spec := tool(t, rt, s, map[string]any{"timeout_sec": asked})
			want := []sessions.Adjustment{{Field: "timeout_sec", Asked: asked, Got: 120, Reason: "at most 120 by profile default"}}
			if d := cmp.Diff(want, r.Adjusted); d != "" || spec.TimeoutSec != 120 {
				t.Errorf("timeout %d, adjusted (-want +got):\n%s", spec.TimeoutSec, d)
			}
		}
	}
	t.Run("test_profile_timeout_clamped_to_max", clamped(999))
	t.Run("test_profile_timeout_clamped_for_coercible_inputs", func(t *testing.T) {
		t.Run("text", clamped("999"))
		t.Run("float", clamped(999.0))
	})
	t.Run("test_profile_default_applies_resource_limits", func(t *testing.T) {
		rt, s := with(t, "")
		_, spec := tool(t, rt, s, map[string]any{})
		if spec.CPUs != standard.CPUs || spec.MemoryMB != standard.MemoryMB || spec.PIDsLimit != standard.PIDsLimit ||
			spec.ReadOnlyRootFS != standard.ReadOnlyRootFS || spec.WorkspaceQuotaMB != standard.WorkspaceQuotaMB {
			t.Errorf("spec %+v", spec)
		}
	})
	t.Run("test_profile_network_extended_has_relaxed_limits", func(t *testing.T) {
		rt, s := with(t, "network_extended")
		_, spec := tool(t, rt, s, map[string]any{})
		if spec.Network != "on" || spec.CPUs != 2 || spec.MemoryMB != 1024 || spec.ReadOnlyRootFS {
			t.Errorf("spec %+v", spec)
		}
	})
	t.Run("test_box_service_applies_workspace_quota_from_config", func(t *testing.T) {
		ws, rt, quota := mkdirs(t), &fakeRuntime{}, 32
		s := initialized(t, rt, func(o *service.Options) {
			o.WorkspaceQuotaMB = &quota
			o.Roots = roots(t, hostroot.Config{DefaultWorkspace: ws, AllowedMountRoots: []string{ws}})
		})
		if _, spec := tool(t, rt, s, map[string]any{}); spec.WorkspaceQuotaMB != 32 || spec.HostPath != ws {
			t.Errorf("spec %+v", spec)
		}
	})
	t.Run("of-a-request", func(t *testing.T) {
		rt, s := with(t, "")
		do := func(name string) error {
			_, err := s.Execute(t.Context(), service.Request{Profile: name, Payload: map[string]any{"cmd": "x", "session_id": name}})
			return err
		}
		if err := do("network_basic"); err != nil || rt.started[0].Network != "on" {
			t.Errorf("Execute = %v, %+v", err, rt.started)
		}
		if err := do("nonexistent"); profile.Class(err) != langbot.ClassValidation {
			t.Errorf("Execute = %v", err)
		}
	})
}

func TestTruncation(t *testing.T) {
	run := func(t *testing.T, rt *fakeRuntime, limit int) sessions.ToolResult {
		t.Helper()
		s := initialized(t, rt, func(o *service.Options) { o.OutputLimit = limit })
		r, _ := tool(t, rt, s, map[string]any{})
		return r
	}
	t.Run("test_truncate_short_output_unchanged", func(t *testing.T) {
		if r := run(t, &fakeRuntime{stdout: "hello world"}, 100); r.Stdout != "hello world" || r.StdoutTruncated {
			t.Errorf("got %q, %v", r.Stdout, r.StdoutTruncated)
		}
	})
	t.Run("test_truncate_preserves_head_and_tail", func(t *testing.T) {
		r := run(t, &fakeRuntime{stdout: "HEAD_START|" + strings.Repeat("x", 500) + "|TAIL_END"}, 100)
		if !r.StdoutTruncated || !strings.HasPrefix(r.Stdout, "HEAD_START|") || !strings.HasSuffix(r.Stdout, "|TAIL_END") ||
			!strings.Contains(r.Stdout, "characters truncated") || utf8.RuneCountInString(r.Stdout) > 100 {
			t.Errorf("got %q, %v", r.Stdout, r.StdoutTruncated)
		}
	})
	t.Run("test_truncate_at_exact_limit_not_truncated", func(t *testing.T) {
		exact := strings.Repeat("a", 200)
		if r := run(t, &fakeRuntime{stdout: exact}, 200); r.Stdout != exact || r.StdoutTruncated {
			t.Errorf("got %q, %v", r.Stdout, r.StdoutTruncated)
		}
	})
	t.Run("test_truncate_stderr_independently", func(t *testing.T) {
		r := run(t, &fakeRuntime{stdout: "short", stderr: strings.Repeat("E", 300)}, 100)
		if r.StdoutTruncated || !r.StderrTruncated || !strings.Contains(r.Stderr, "characters truncated") || len(r.Stderr) > 100 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("default-limit", func(t *testing.T) {
		if r := run(t, &fakeRuntime{stdout: strings.Repeat("a", 5000)}, 0); !r.StdoutTruncated || len(r.Stdout) != 4000 {
			t.Errorf("got %d characters, %v", len(r.Stdout), r.StdoutTruncated)
		}
	})
	t.Run("no-limit", func(t *testing.T) {
		if r := run(t, &fakeRuntime{stdout: strings.Repeat("a", 5000)}, -1); r.StdoutTruncated || len(r.Stdout) != 5000 {
			t.Errorf("got %d characters, %v", len(r.Stdout), r.StdoutTruncated)
		}
	})
	t.Run("what-the-runtime-did-not-keep", func(t *testing.T) {
		if r := run(t, &fakeRuntime{stdout: "a", stdoutBytes: 2 << 20}, -1); !r.StdoutTruncated || r.StdoutBytes != 2<<20 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("exact-bytes", func(t *testing.T) {
		if r := run(t, &fakeRuntime{stdout: "\n\t a \n\n"}, 0); r.Stdout != "\n\t a \n\n" {
			t.Errorf("got %q", r.Stdout)
		}
	})
}

func TestExecuteTool(t *testing.T) {
	rt := &fakeRuntime{stdout: "out", exitCode: 3}
	s := initialized(t, rt)
	parameters := map[string]any{
		"command": " make ", "workdir": "/workspace/a", "timeout_sec": 5, "env": map[string]any{"A": "b"}, "description": "builds",
		"session_id": "another", "network": "on", "host_path": "/etc",
	}
	r, err := s.ExecuteTool(t.Context(), query("1"), parameters)
	if err != nil {
		t.Fatal(err)
	}
	spec := rt.execs[0]
	if spec.Cmd != "make" || spec.Workdir != "/workspace/a" || spec.TimeoutSec != 5 || spec.Env["A"] != "b" ||
		spec.SessionID != "person_test_user" || spec.Network != "off" || spec.HostPath != "" {
		t.Errorf("spec %+v", spec)
	}
	three := 3
	want := sessions.ToolResult{
		SessionID: "person_test_user", Backend: "fake", Status: "completed", ExitCode: &three, Stdout: "out", DurationMS: 12,
		StdoutBytes: 3, Notices: []string{"a notice"}, Limits: []string{"memory"},
		Adjusted: []sessions.Adjustment{
			{Field: "host_path", Asked: "/etc", Reason: "not for a tool to say: ignored"},
			{Field: "network", Asked: "on", Reason: "not for a tool to say: ignored"},
			{Field: "session_id", Asked: "another", Reason: "not for a tool to say: ignored"},
		},
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("ExecuteTool (-want +got):\n%s", d)
	}
	rt.timedOut = true
	r, err = s.ExecuteTool(t.Context(), query("1"), map[string]any{"command": "sleep"})
	if err != nil || r.OK || r.Status != "timed_out" || r.ExitCode != nil {
		t.Errorf("ExecuteTool = %+v, %v", r, err)
	}
	for name, parameters := range map[string]map[string]any{
		"no-command": {}, "empty": {"command": " "}, "number": {"command": 1}, "workdir": {"command": "x", "workdir": "y"},
		"timeout": {"command": "x", "timeout_sec": "soon"}, "env": {"command": "x", "env": []any{}},
	} {
		if _, err := s.ExecuteTool(t.Context(), query("1"), parameters); profile.Class(err) != langbot.ClassValidation {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCreate(t *testing.T) {
	rt := &fakeRuntime{}
	s := initialized(t, rt)
	got, err := s.Create(t.Context(), service.Request{Payload: map[string]any{"session_id": "a", "timeout_sec": 1000, "zeal": true}})
	if err != nil || got.SessionID != "a" || len(got.Adjusted) != 2 {
		t.Errorf("Create = %+v, %v", got, err)
	}
	for _, skills := range []bool{false, true} {
		if _, err := s.Create(t.Context(), service.Request{Skills: skills}); profile.Class(err) != langbot.ClassValidation {
			t.Errorf("Create = %v", err)
		}
	}
}

func TestErrors(t *testing.T) {
	failing := func(t *testing.T, n int) *service.Service {
		t.Helper()
		s := initialized(t, &fakeRuntime{noBackend: true})
		for i := range n {
			_, err := s.ExecuteTool(t.Context(), query(fmt.Sprint(100+i)), map[string]any{"command": "fail"})
			if profile.Class(err) != langbot.ClassBackendUnavailable {
				t.Fatalf("ExecuteTool = %v", err)
			}
		}
		return s
	}
	t.Run("test_box_service_fails_closed_when_backend_unavailable", func(t *testing.T) { failing(t, 1) })
	t.Run("test_service_records_errors_on_failure", func(t *testing.T) {
		got := failing(t, 1).Errors()
		if len(got) != 1 || got[0].Type != langbot.ClassBackendUnavailable || got[0].QueryID != "100" || got[0].Timestamp.IsZero() ||
			got[0].SessionID != "person_test_user" || got[0].Message != "no wall" {
			t.Errorf("Errors = %+v", got)
		}
	})
	t.Run("test_service_error_ring_buffer_capped", func(t *testing.T) {
		got := failing(t, 60).Errors()
		if len(got) != 50 || got[0].QueryID != "110" || got[49].QueryID != "159" {
			t.Errorf("Errors = %d, from %v", len(got), got)
		}
	})
}

func TestLogHasNoSecrets(t *testing.T) {
	var out bytes.Buffer
	rt := &fakeRuntime{stdout: "printed: hunter2", stderr: "hunter2"}
	s := initialized(t, rt, func(o *service.Options) { o.Log = slog.New(slog.NewTextHandler(&out, nil)) })
	_, err := s.ExecuteTool(t.Context(), query("1"), map[string]any{
		"command": strings.Repeat("é", 396) + "END" + strings.Repeat("x", 1000), "env": map[string]any{"TOKEN": "hunter2", "A": "b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.ExecuteTool(t.Context(), query("1"), map[string]any{"command": "x", "env": map[string]any{"TOKEN=": "hunter2"}})
	got := out.String()
	if strings.Contains(got, "hunter2") {
		t.Errorf("what was given or printed is in the log: %s", got)
	}
	if !strings.Contains(got, "stdout_bytes=16 ") {
		t.Errorf("the log lacks how much was printed: %s", got)
	}
	if !strings.Contains(got, "env_keys=\"[A TOKEN]\"") || !strings.Contains(got, strings.Repeat("é", 396)+"E...\n") {
		t.Errorf("the log lacks the names, or the command cut to 400 characters: %s", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	rt := &fakeRuntime{}
	s := initialized(t, rt)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 50 {
				id := fmt.Sprint(i, "-", j)
				_, _ = s.ExecuteTool(context.Background(), service.Query{ID: id}, map[string]any{"command": "x"})
				_, _ = s.ExecuteTool(context.Background(), service.Query{ID: id}, map[string]any{})
				s.Errors()
				s.Disconnected(errors.New("gone"))
				s.Connected()
			}
		})
	}
	group.Wait()
	if !s.Available() || len(s.Errors()) != 50 {
		t.Errorf("available %v with %d errors", s.Available(), len(s.Errors()))
	}
}
