package profile_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
)

func TestBuiltin(t *testing.T) {
	t.Run("test_builtin_profiles_are_consistent", func(t *testing.T) {
		base := sessions.Profile{
			Image: sessions.DefaultImage, Network: "off", TimeoutSec: 30, HostPathMode: "rw", MaxTimeoutSec: 120,
			CPUs: 1, MemoryMB: 512, PIDsLimit: 128, ReadOnlyRootFS: true,
		}
		want := map[string]sessions.Profile{}
		for name, change := range map[string]func(*sessions.Profile){
			"default": func(*sessions.Profile) {},
			"offline_readonly": func(p *sessions.Profile) {
				p.HostPathMode, p.CPUs, p.MemoryMB, p.PIDsLimit, p.MaxTimeoutSec = "ro", 0.5, 256, 64, 60
				p.Locked = []string{"host_path_mode", "network", "read_only_rootfs"}
			},
			"network_basic": func(p *sessions.Profile) { p.Network = "on" },
			"network_extended": func(p *sessions.Profile) {
				p.Network, p.CPUs, p.MemoryMB, p.PIDsLimit, p.ReadOnlyRootFS, p.MaxTimeoutSec = "on", 2, 1024, 256, false, 300
			},
		} {
			p := base
			p.Name = name
			change(&p)
			want[name] = p
		}
		if d := cmp.Diff(want, profile.Builtin()); d != "" {
			t.Errorf("Builtin (-want +got):\n%s", d)
		}
	})
	// Whoever has one can't change it for others.
	profile.Builtin()["offline_readonly"].Locked[0] = "cpus"
	if p, _ := profile.Find("offline_readonly", nil); p.Locked[0] != "host_path_mode" {
		t.Errorf("Find = %v, changed from outside", p.Locked)
	}
}

func TestFind(t *testing.T) {
	custom := profile.Custom{"ci": {Name: "ci", MemoryMB: 64}, "default": {Name: "default", MemoryMB: 1 << 20}}
	for name, memory := range map[string]int{"": 512, " default ": 512, "network_extended": 1024, "ci": 64} {
		if p, err := profile.Find(name, custom); err != nil || p.MemoryMB != memory {
			t.Errorf("Find(%q) = %d MB, %v, want %d", name, p.MemoryMB, err, memory)
		}
	}
	_, err := profile.Find("nonexistent", profile.Custom{"ci": {Name: "ci"}})
	want := "unknown box profile 'nonexistent', available profiles: ci, default, network_basic, network_extended, offline_readonly"
	if err == nil || err.Error() != want || profile.Class(err) != langbot.ClassValidation {
		t.Errorf("Find = %v, want %s", err, want)
	}
}

func TestCustom(t *testing.T) {
	var c profile.Custom
	if err := json.Unmarshal([]byte(`{"ci":{"network":"on","memory_mb":2048,"locked":["network","image"]}}`), &c); err != nil {
		t.Fatal(err)
	}
	want := profile.Builtin()["default"]
	want.Name, want.Network, want.MemoryMB, want.Locked = "ci", "on", 2048, []string{"image", "network"}
	if d := cmp.Diff(profile.Custom{"ci": want}, c); d != "" {
		t.Errorf("Custom (-want +got):\n%s", d)
	}
	if err := c.Check(); err != nil {
		t.Errorf("Check = %v", err)
	}
	for in, want := range map[string]string{
		`[]`:                                "an object of profiles",
		`{"ci":[]}`:                         "profile ci",
		`{"ci":{"memory":64}}`:              `there is no field "memory"`,
		`{"ci":{"memory_mb":"64"}}`:         "profile ci",
		`{"ci":{"memory_mb":8}}`:            "memory_mb must be at least 32",
		`{"ci":{"cpus":0}}`:                 "cpus must be greater than 0",
		`{"ci":{"network":"wide"}}`:         "off or on is wanted",
		`{"ci":{"host_path_mode":"x"}}`:     "none, ro or rw is wanted",
		`{"ci":{"timeout_sec":121}}`:        "max_timeout_sec 120 is less than timeout_sec 121",
		`{"ci":{"locked":["env"]}}`:         "env can't be locked",
		`{"ci":{"locked":["cpus","cpus"]}}`: "locked twice",
		`{"ci":{"name":"cd"}}`:              "can't be called cd",
		`{"default":{}}`:                    "built in",
		`{"a b":{}}`:                        "not a name",
	} {
		var c profile.Custom
		if err := json.Unmarshal([]byte(in), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", in, err, want)
		}
	}
	if err := (profile.Custom{"a": {Name: "b"}}).Check(); err == nil {
		t.Error("Check took a profile by another's name")
	}
}

func TestBuild(t *testing.T) {
	builtin := profile.Builtin()
	quota := 32
	payload := func(fields string) map[string]any {
		var m map[string]any
		if err := json.Unmarshal([]byte(`{"session_id":"s","cmd":"x"`+fields+`}`), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, tt := range []struct {
		name, profile, payload string
		defaults               profile.Defaults
		want                   func(sessions.Spec) bool
		adjusted               []sessions.Adjustment
		fails                  string
	}{
		{name: "fills-in", profile: "network_extended", want: func(s sessions.Spec) bool {
			return s.Network == "on" && s.CPUs == 2 && s.MemoryMB == 1024 && s.PIDsLimit == 256 && !s.ReadOnlyRootFS && s.TimeoutSec == 30
		}},
		{name: "unlocked-is-kept", profile: "default", payload: `,"timeout_sec":60,"network":"on"`, want: func(s sessions.Spec) bool {
			return s.TimeoutSec == 60 && s.Network == "on"
		}},
		{
			name: "locked-is-overwritten", profile: "offline_readonly", payload: `,"network":"on","host_path_mode":"rw","read_only_rootfs":false`,
			want: func(s sessions.Spec) bool { return s.Network == "off" && s.HostPathMode == "ro" && s.ReadOnlyRootFS },
			adjusted: []sessions.Adjustment{
				{Field: "network", Asked: "on", Got: "off", Reason: "locked by profile offline_readonly"},
				{Field: "host_path_mode", Asked: "rw", Got: "ro", Reason: "locked by profile offline_readonly"},
				{Field: "read_only_rootfs", Asked: false, Got: true, Reason: "locked by profile offline_readonly"},
			},
		},
		{name: "locked-and-asked-for-alike", profile: "offline_readonly", payload: `,"network":"off","read_only_rootfs":"yes"`},
		{
			name: "locked-null", profile: "offline_readonly", payload: `,"network":null`,
			adjusted: []sessions.Adjustment{{Field: "network", Asked: nil, Got: "off", Reason: "locked by profile offline_readonly"}},
		},
		{
			name: "resources-are-not-locked", profile: "offline_readonly", payload: `,"cpus":4,"memory_mb":4096`,
			want: func(s sessions.Spec) bool { return s.CPUs == 4 && s.MemoryMB == 4096 },
		},
		{name: "null-is-not-filled-in", profile: "default", payload: `,"network":null`, fails: "network: off or on is wanted, not null"},
		{name: "null-quota-without-a-default", profile: "default", payload: `,"workspace_quota_mb":null`, fails: "workspace_quota_mb"},
		{
			name: "null-quota-with-a-default", profile: "default", payload: `,"workspace_quota_mb":null`, defaults: profile.Defaults{WorkspaceQuotaMB: &quota},
			want: func(s sessions.Spec) bool { return s.WorkspaceQuotaMB == 32 },
		},
		{
			name: "quota-of-the-request", profile: "default", payload: `,"workspace_quota_mb":0`, defaults: profile.Defaults{WorkspaceQuotaMB: &quota},
			want: func(s sessions.Spec) bool { return s.WorkspaceQuotaMB == 0 },
		},
		{
			name: "default-workspace", profile: "default", payload: `,"host_path":""`, defaults: profile.Defaults{HostPath: "/data/default"},
			want: func(s sessions.Spec) bool { return s.HostPath == "/data/default" },
		},
		{
			name: "workspace-of-the-request", profile: "default", payload: `,"host_path":"/x"`, defaults: profile.Defaults{HostPath: "/data/default"},
			want: func(s sessions.Spec) bool { return s.HostPath == "/x" },
		},
		{name: "custom-image", profile: "default", defaults: profile.Defaults{Image: "mine"}, want: func(s sessions.Spec) bool { return s.Image == "mine" }},
		{
			name: "custom-image-and-another", profile: "default", payload: `,"image":"theirs"`, defaults: profile.Defaults{Image: "mine"},
			want: func(s sessions.Spec) bool { return s.Image == "theirs" },
		},
		{
			name: "clamped", profile: "default", payload: `,"timeout_sec":999`, want: func(s sessions.Spec) bool { return s.TimeoutSec == 120 },
			adjusted: []sessions.Adjustment{{Field: "timeout_sec", Asked: 999.0, Got: 120, Reason: "at most 120 by profile default"}},
		},
		{
			name: "clamped-text", profile: "offline_readonly", payload: `,"timeout_sec":"999"`, want: func(s sessions.Spec) bool { return s.TimeoutSec == 60 },
			adjusted: []sessions.Adjustment{{Field: "timeout_sec", Asked: "999", Got: 60, Reason: "at most 60 by profile offline_readonly"}},
		},
		{name: "at-the-maximum", profile: "default", payload: `,"timeout_sec":120`, want: func(s sessions.Spec) bool { return s.TimeoutSec == 120 }},
		{name: "clamp-takes-no-nonsense", profile: "default", payload: `,"timeout_sec":"soon"`, fails: `timeout_sec: a whole number is wanted, not "soon"`},
		{
			name: "unknown-fields-are-told", profile: "default", payload: `,"bogus":"x","list":[1]`,
			adjusted: []sessions.Adjustment{
				{Field: "bogus", Asked: "x", Reason: "no such field: ignored"}, {Field: "list", Reason: "no such field: ignored"},
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := payload(tt.payload)
			before, _ := json.Marshal(m)
			spec, adjusted, err := profile.Build(m, builtin[tt.profile], tt.defaults)
			if after, _ := json.Marshal(m); !slices.Equal(before, after) {
				t.Errorf("the payload became %s", after)
			}
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Errorf("Build = %v, want %q", err, tt.fails)
				}
				return
			}
			if err != nil || tt.want != nil && !tt.want(spec) {
				t.Errorf("Build = %+v, %v", spec, err)
			}
			if d := cmp.Diff(tt.adjusted, adjusted); d != "" {
				t.Errorf("adjusted (-want +got):\n%s", d)
			}
		})
	}
}
