package session_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
)

func TestConfig(t *testing.T) {
	d := session.Config{}.WithDefaults()
	if d.Image != sandbox.DefaultImage || d.Isolation != sandbox.WallGVisor || d.TTL() != 300*time.Second || d.KeepIdle() != 7*24*time.Hour || d.Silence() != time.Minute ||
		d.Limits.MaxSessions != 64 || d.Limits.MaxProcesses != 64 || d.Limits.MaxCompleted != 256 || d.Limits.CompletedSec != 300 ||
		d.Limits.MaxEntries != 100_000 || d.Limits.MaxSleeping != 256 || d.Limits.MaxRPCFileBytes != 20<<20 {
		t.Errorf("defaults %+v", d)
	}
	for _, tt := range []struct{ name, text, setting string }{
		{"nothing", `{}`, ""},
		{"all", `{"image":"x","isolation":"process","host_root":"/srv","default_workspace":"w","allowed_mount_roots":["/srv"],"workspace_quota_mb":5,"quota":"hard","session_ttl_sec":0,"keep_idle_sec":-1,"limits":{"max_sessions":5000}}`, ""},
		{"relative-root", `{"host_root":"srv"}`, "box.host_root"},
		{"relative-workspace-without-a-root", `{"default_workspace":"w"}`, "box.default_workspace"},
		{"workspace-that-may-not-be-mounted", `{"default_workspace":"/srv/w"}`, "box.default_workspace"},
		{"workspace-in-a-mount-root", `{"default_workspace":"/srv/w","allowed_mount_roots":["/srv"]}`, ""},
		{"relative-mount-root", `{"allowed_mount_roots":["x"]}`, "box.allowed_mount_roots"},
		{"quota", `{"workspace_quota_mb":-1}`, "box.workspace_quota_mb"},
		{"large-quota", `{"workspace_quota_mb":1073741825}`, "box.workspace_quota_mb"},
		{"long-ttl", `{"session_ttl_sec":10000000000}`, "box.session_ttl_sec"},
		{"long-sleep", `{"keep_idle_sec":10000000000}`, "box.keep_idle_sec"},
		{"long-silence", `{"silence_sec":86401}`, "box.silence_sec"},
		{"said-and-not-set", `{"limits":{"sleeping_keeps_sec":1}}`, "box.limits.sleeping_keeps_sec"},
		{"wall", `{"isolation":"nonsense"}`, "box.isolation"},
		{"quota-word", `{"quota":"maybe"}`, "box.quota"},
		{"many-sessions", `{"limits":{"max_sessions":5001}}`, "box.limits.max_sessions"},
		{"negative-sessions", `{"limits":{"max_sessions":-1}}`, "box.limits.max_sessions"},
		{"many-processes", `{"limits":{"max_managed_processes":1025}}`, "box.limits.max_managed_processes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c session.Config
			if err := json.Unmarshal([]byte(tt.text), &c); err != nil {
				t.Fatal(err)
			}
			err := c.Validate()
			if tt.setting == "" {
				if err != nil {
					t.Errorf("Validate = %v", err)
				}
				return
			}
			if profile.Class(err) != langbot.ClassValidation || !strings.Contains(err.Error(), tt.setting+":") {
				t.Errorf("Validate = %v, want the setting %s", err, tt.setting)
			}
		})
	}
}
