package boxservice_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

// connected is a client of a fake runtime.
func connected(t *testing.T) (*boxservice.Client, *fake) {
	t.Helper()
	f := newFake(t)
	c := newConnector(t, boxservice.Options{}, f.dial)
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.asked()
	return c.Client(), f
}

// TestActions has each method ask for its action, with the data that Box
// knows, and read its answer.
func TestActions(t *testing.T) {
	c, f := connected(t)
	ctx := t.Context()
	ignore := func(_ any, err error) error { return err }
	tests := []struct {
		action string
		answer string
		call   func() error
		data   string
	}{
		{api.ActionPing, `{}`, func() error { return c.Ping(ctx) }, `{}`},
		{api.ActionInit, `{"initialized": true}`, func() error { return ignore(c.Init(ctx, map[string]any{"a": 1})) }, `{"a": 1}`},
		{api.ActionHealth, `{"name": "gvisor", "available": true}`, func() error { return ignore(c.Health(ctx)) }, `{}`},
		{api.ActionBackendInfo, `{"name": null, "available": false}`, func() error { return ignore(c.Backend(ctx)) }, `{}`},
		{api.ActionStatus, `{"active_sessions": 1}`, func() error { return ignore(c.Status(ctx)) }, `{}`},
		{api.ActionGet, `{"session_id": "s"}`, func() error { return ignore(c.Get(ctx, "s")) }, `{"session_id": "s"}`},
		{api.ActionList, `{"sessions": []}`, func() error { return ignore(c.List(ctx)) }, `{}`},
		{api.ActionDelete, `{"deleted": "s"}`, func() error { return c.Delete(ctx, "s") }, `{"session_id": "s"}`},
		{
			api.ActionStartProcess, `{"process_id": "default"}`,
			func() error { return ignore(c.StartProcess(ctx, "s", boxservice.ProcessSpec{Command: "cat"})) },
			`{"session_id": "s", "spec": {"process_id": "default", "command": "cat", "args": [], "env": {}, "cwd": "/workspace", "memory_mb": 0}}`,
		},
		{api.ActionGetProcess, `{}`, func() error { return ignore(c.Process(ctx, "s", "")) }, `{"session_id": "s", "process_id": "default"}`},
		{api.ActionGetProcess, `{}`, func() error { return ignore(c.Process(ctx, "s", "p")) }, `{"session_id": "s", "process_id": "p"}`},
		{api.ActionStopProcess, `{"stopped": "p"}`, func() error { return c.StopProcess(ctx, "s", "p") }, `{"session_id": "s", "process_id": "p"}`},
		{api.ActionListSkills, `{"skills": [{"name": "a"}]}`, func() error { return ignore(c.Skills(ctx)) }, `{}`},
		{api.ActionGetSkill, `{"skill": null}`, func() error { return ignore(c.Skill(ctx, "a")) }, `{"name": "a"}`},
		{api.ActionDeleteSkill, `{"deleted": "a"}`, func() error { return c.DeleteSkill(ctx, "a") }, `{"name": "a"}`},
		{api.ActionScanSkill, `{"name": "a"}`, func() error { return ignore(c.ScanSkill(ctx, "/x")) }, `{"path": "/x"}`},
		{
			api.ActionSkillFiles, `{"entries": []}`, func() error { return ignore(c.SkillFiles(ctx, "a", boxservice.SkillFilesOptions{})) },
			`{"name": "a", "path": ".", "include_hidden": false, "max_entries": 200}`,
		},
		{api.ActionReadSkill, `{"content": "x"}`, func() error { return ignore(c.ReadSkill(ctx, "a", "b")) }, `{"name": "a", "path": "b"}`},
		{api.ActionWriteSkill, `{}`, func() error { return ignore(c.WriteSkill(ctx, "a", "b", "c")) }, `{"name": "a", "path": "b", "content": "c"}`},
		{
			api.ActionGrant, `{}`, func() error { return c.PutGrant(ctx, boxservice.Grant{InstanceUUID: "i", MaxSessions: 1}) },
			`{"instance_uuid": "i", "workspace_uuid": "", "execution_generation": 0, "entitlement_revision": 0, "expires_at": "", "max_sessions": 1, "max_managed_processes": 0}`,
		},
		{
			api.ActionRevoke, `{}`, func() error { return c.Revoke(ctx, boxservice.Revocation{EntitlementRevision: 2}) },
			`{"instance_uuid": "", "workspace_uuid": "", "entitlement_revision": 2}`,
		},
		{api.ActionVerifyShared, `{"sha256": "0"}`, func() error { return ignore(c.VerifyShared(ctx, "m")) }, `{"marker_name": "m"}`},
		{api.ActionShutdown, `{}`, func() error { return c.Shutdown(ctx) }, `{}`},
	}
	for _, tt := range tests {
		t.Run(tt.action, func(t *testing.T) {
			var got, want any
			f.on(tt.action, func(r *api.Request) (any, error) {
				if err := json.Unmarshal(r.Data, &got); err != nil {
					t.Error(err)
				}
				return json.RawMessage(tt.answer), nil
			})
			if err := tt.call(); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tt.data), &want); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestExecSendsWholeSpec(t *testing.T) {
	c, f := connected(t)
	var got sessions.Spec
	f.on(api.ActionExec, func(r *api.Request) (any, error) {
		if err := json.Unmarshal(r.Data, &got); err != nil {
			t.Error(err)
		}
		code := 3
		return sessions.Result{SessionID: got.SessionID, Status: sessions.StatusCompleted, ExitCode: &code, Stdout: "x"}, nil
	})
	r, err := c.Exec(t.Context(), boxservice.Spec{SessionID: "s", Cmd: "true", MountPath: "/project", ReadOnlyRootFS: true})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode == nil || *r.ExitCode != 3 || r.Stdout != "x" {
		t.Errorf("got %+v", r)
	}
	want := boxservice.NewSpec("s", "true")
	want.MountPath, want.Workdir = "/project", "/project"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestErrorsByClass(t *testing.T) {
	c, f := connected(t)
	for _, tt := range []struct {
		message string
		class   string
		is      error
		text    string
	}{
		{"BoxSessionNotFoundError: session x not found", api.ClassSessionNotFound, boxservice.ErrNotFound, "session x not found"},
		{"BoxManagedProcessNotFoundError: gone", api.ClassProcessNotFound, boxservice.ErrProcessNotFound, "gone"},
		{"BoxManagedProcessConflictError: ended", api.ClassProcessConflict, boxservice.ErrProcessConflict, "ended"},
		{"BoxSessionConflictError: Box session x already exists with cpus=1", api.ClassSessionConflict, nil, "Box session x already exists with cpus=1"},
		{"BoxValidationError: no", api.ClassValidation, nil, "no"},
		{"BoxCapacityExceededError: full", api.ClassCapacity, boxservice.ErrCapacity, "full"},
		{"BoxBackendUnavailableError: none", api.ClassBackendUnavailable, boxservice.ErrBackend, "none"},
		{"BoxRuntimeUnavailableError: none", api.ClassRuntimeUnavailable, boxservice.ErrUnavailable, "none"},
		{"BoxAdmissionError: none", api.ClassAdmission, boxservice.ErrAdmission, "none"},
		{"BoxReadinessError: none", api.ClassReadiness, boxservice.ErrReadiness, "none"},
		{"BoxError: other", api.ClassError, nil, "other"},
		{"ActionCallError: BoxAdmissionError: wrapped", api.ClassAdmission, boxservice.ErrAdmission, "ActionCallError: BoxAdmissionError: wrapped"},
		{"ValueError: Action x not found", api.ClassError, nil, "ValueError: Action x not found"},
	} {
		t.Run(tt.message, func(t *testing.T) {
			f.on(api.ActionGet, func(*api.Request) (any, error) { return nil, errors.New(tt.message) })
			_, err := c.Get(t.Context(), "x")
			if err == nil || err.Error() != tt.text || boxservice.Class(err) != tt.class {
				t.Fatalf("got %v of class %s, want %s of %s", err, boxservice.Class(err), tt.text, tt.class)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("it is not %v", tt.is)
			}
		})
	}
}

// TestTimes has a runtime answer nothing: each call ends in its own time, and
// an exec not before its command's time is up.
func TestTimes(t *testing.T) {
	for _, tt := range []struct {
		name string
		call func(context.Context, *boxservice.Client) error
		want time.Duration
	}{
		{"status", func(ctx context.Context, c *boxservice.Client) error { _, err := c.Status(ctx); return err }, 15 * time.Second},
		{"delete", func(ctx context.Context, c *boxservice.Client) error { return c.Delete(ctx, "a") }, 30 * time.Second},
		{"stop", func(ctx context.Context, c *boxservice.Client) error { return c.StopProcess(ctx, "a", "") }, 30 * time.Second},
		{"create", func(ctx context.Context, c *boxservice.Client) error {
			_, err := c.Create(ctx, boxservice.Spec{SessionID: "a"})
			return err
		}, 2 * time.Minute},
		{"preview", func(ctx context.Context, c *boxservice.Client) error {
			_, err := c.PreviewZip(ctx, boxservice.Zip{})
			return err
		}, time.Minute},
		{"install", func(ctx context.Context, c *boxservice.Client) error {
			_, err := c.InstallZip(ctx, boxservice.Zip{})
			return err
		}, 2 * time.Minute},
		{"exec", func(ctx context.Context, c *boxservice.Client) error {
			_, err := c.Exec(ctx, boxservice.Spec{SessionID: "a", Cmd: "sleep 300", TimeoutSec: 300})
			return err
		}, 7 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				hang := make(chan struct{})
				defer close(hang)
				for _, action := range []string{api.ActionStatus, api.ActionDelete, api.ActionStopProcess, api.ActionCreate, api.ActionPreviewZip, api.ActionInstallZip, api.ActionExec} {
					f.on(action, func(*api.Request) (any, error) { <-hang; return nil, nil })
				}
				c := newConnector(t, boxservice.Options{}, f.dial)
				if err := c.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				err := tt.call(t.Context(), c.Client())
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				if d := time.Since(began); d != tt.want {
					t.Errorf("it ended after %v, want %v", d, tt.want)
				}
				c.Close()
			})
		})
	}
}

// TestManyCalls has more calls at once than a runtime takes: they wait their
// turn, and none is refused.
func TestManyCalls(t *testing.T) {
	c, f := connected(t)
	f.on(api.ActionGet, func(r *api.Request) (any, error) { return r.Data, nil })
	var wg sync.WaitGroup
	for i := range 4 * rpc.MaxInFlight {
		wg.Go(func() {
			id := fmt.Sprint("session-", i)
			got, err := c.Get(t.Context(), id)
			if err != nil || got.SessionID != id {
				t.Errorf("%s: %s, %v", id, got.SessionID, err)
			}
		})
	}
	wg.Wait()
}

func TestZipInChunks(t *testing.T) {
	c, f := connected(t)
	content := bytes.Repeat([]byte("0123456789"), 5000)
	var got []byte
	f.on(api.ActionInstallZip, func(r *api.Request) (any, error) {
		var in struct {
			Key   string   `json:"file_key"`
			Paths []string `json:"source_paths"`
		}
		if err := json.Unmarshal(r.Data, &in); err != nil {
			return nil, err
		}
		if in.Paths == nil {
			t.Error("source_paths is null")
		}
		var err error
		got, err = f.newest().TakeFile(in.Key)
		return map[string]any{"skills": []sessions.Skill{{Name: "a"}}}, err
	})
	skills, err := c.InstallZip(t.Context(), boxservice.Zip{Content: content, Filename: "a.zip"})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content) || len(skills) != 1 || skills[0].Name != "a" {
		t.Errorf("%d bytes of %d arrived; skills %v", len(got), len(content), skills)
	}
}

func TestForWorkspace(t *testing.T) {
	c, f := connected(t)
	scope := boxservice.Context{InstanceUUID: "i", WorkspaceUUID: "w", PlacementGeneration: 7}
	var got *api.Context
	f.on(api.ActionList, func(r *api.Request) (any, error) { got = r.Context; return nil, nil })
	if _, err := c.For(scope).List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&scope, got); d != "" {
		t.Error(d)
	}
	if _, err := c.List(t.Context()); err != nil || got != nil {
		t.Errorf("the first client has become the workspace's: %v, %v", got, err)
	}
}

func TestBase64OfRawOutput(t *testing.T) {
	c, f := connected(t)
	raw := []byte{0xff, 0, '\n'}
	f.on(api.ActionExec, func(*api.Request) (any, error) {
		return map[string]any{"stdout": "\ufffd\x00\n", "stdout_base64": base64.StdEncoding.EncodeToString(raw), "stdout_bytes": 3}, nil
	})
	r, err := c.Exec(t.Context(), boxservice.NewSpec("s", "head -c 3 /dev/urandom"))
	if err != nil || !bytes.Equal(r.StdoutRaw, raw) || r.StdoutBytes != 3 {
		t.Errorf("got %q, %v", r.StdoutRaw, err)
	}
}
