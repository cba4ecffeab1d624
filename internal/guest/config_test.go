package guest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest"
)

func TestParseConfig(t *testing.T) {
	text := `{"id":"sb_1","socket":"/run/carboy/agent.sock","hide":["/run/carboy"],"user":"root","cwd":"/workspace",
		"env":{"K":"V"},"pids":1024,"allow_root":true,"pid_namespace":true,"disk_paths":["/","/workspace"],
		"not_shown":["/opt/bin"],"strict":true,"tasks":["/run/carboy/m","/run/carboy/p"],"oom_score":500,
		"cgroup_root":"/run/carboy/cgroup","oom_file":"/run/carboy/oom","pids_file":"/run/carboy/pids"}`
	want := guest.Config{
		ID: "sb_1", Socket: "/run/carboy/agent.sock", Hide: []string{"/run/carboy"}, User: "root", Cwd: "/workspace",
		Env: map[string]string{"K": "V"}, PIDs: 1024, AllowRoot: true, PIDNamespace: true, DiskPaths: []string{"/", "/workspace"},
		NotShown: []string{"/opt/bin"}, Strict: true, Tasks: []string{"/run/carboy/m", "/run/carboy/p"}, OOMScore: 500,
		CgroupRoot: "/run/carboy/cgroup", OOMFile: "/run/carboy/oom", PIDsFile: "/run/carboy/pids",
	}
	got, err := guest.ParseConfig(strings.NewReader(text))
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if got, err = guest.ParseConfig(strings.NewReader(`{"socket":"/s"}`)); err != nil || got.User != "user" {
		t.Errorf("the least: %+v, %v", got, err)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	tests := []struct{ name, text string }{
		{"empty", ""},
		{"not-an-object", "[]"},
		{"unknown-field", `{"socket":"/s","sockets":1}`},
		{"two-objects", `{"socket":"/s"}{}`},
		{"no-socket", `{}`},
		{"relative-socket", `{"socket":"s"}`},
		{"unclean-hide", `{"socket":"/s","hide":["/a/../b"]}`},
		{"relative-cwd", `{"socket":"/s","cwd":"w"}`},
		{"relative-disk", `{"socket":"/s","disk_paths":["w"]}`},
		{"relative-not-shown", `{"socket":"/s","not_shown":["bin"]}`},
		{"relative-tasks", `{"socket":"/s","tasks":["tasks"]}`},
		{"empty-tasks", `{"socket":"/s","tasks":[""]}`},
		{"relative-cgroup", `{"socket":"/s","cgroup_root":"c"}`},
		{"unclean-oom-file", `{"socket":"/s","oom_file":"/a//b"}`},
		{"relative-pids-file", `{"socket":"/s","pids_file":"../p"}`},
		{"negative-oom-score", `{"socket":"/s","oom_score":-1}`},
		{"high-oom-score", `{"socket":"/s","oom_score":1001}`},
		{"strict-as-text", `{"socket":"/s","strict":"yes"}`},
		{"negative-pids", `{"socket":"/s","pids":-1}`},
		{"root-not-allowed", `{"socket":"/s","user":"root"}`},
		{"bad-variable", `{"socket":"/s","env":{"A=B":""}}`},
		{"zero-byte", `{"socket":"/s","env":{"A":"\u0000"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := guest.ParseConfig(strings.NewReader(tt.text)); err == nil {
				t.Errorf("got %+v, want an error", got)
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(`{"socket":"/s","env":{"A":"b"},"pids":3}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := guest.ParseConfig(strings.NewReader(text))
		if err == nil && (!strings.HasPrefix(c.Socket, "/") || c.User == "" || c.PIDs < 0 || c.OOMScore < 0) {
			t.Errorf("%q gave %+v", text, c)
		}
	})
}
