package control_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

func TestParseConfig(t *testing.T) {
	text := `{"id":"sb_1","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","hide":["/run/carboy"],"user":"root","cwd":"/workspace",
		"env":{"K":"V"},"pids":1024,"allow_root":true,"pid_namespace":true,"disk_paths":["/","/workspace"],
		"not_shown":["/opt/bin"],"strict":true,"tasks":["/run/carboy/m","/run/carboy/p"],"oom_score":500,"files":2048,"files_share":8192,
		"cgroup_root":"/run/carboy/cgroup","oom_file":"/run/carboy/oom","pids_file":"/run/carboy/pids",
		"network":{"nameservers":["192.0.0.1","fd63::1"],"gate":"gate.carboy.internal","roots":"/run/carboy/roots.pem"}}`
	want := control.Config{
		ID: "sb_1", Key: make([]byte, 32), Hide: []string{"/run/carboy"}, User: "root", Cwd: "/workspace",
		Env: map[string]string{"K": "V"}, PIDs: 1024, AllowRoot: true, PIDNamespace: true, DiskPaths: []string{"/", "/workspace"},
		NotShown: []string{"/opt/bin"}, Strict: true, Tasks: []string{"/run/carboy/m", "/run/carboy/p"}, OOMScore: 500, Files: 2048, FilesShare: 8192,
		CgroupRoot: "/run/carboy/cgroup", OOMFile: "/run/carboy/oom", PIDsFile: "/run/carboy/pids",
		Network: &api.Network{Nameservers: []string{"192.0.0.1", "fd63::1"}, Gate: "gate.carboy.internal", Roots: "/run/carboy/roots.pem"},
	}
	got, err := control.ParseConfig(strings.NewReader(text))
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got))
	}
	if got, err = control.ParseConfig(strings.NewReader(`{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`)); err != nil || got.User != "user" {
		t.Errorf("the least: %+v, %v", got, err)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	tests := []struct{ name, text string }{
		{"empty", ""},
		{"not-an-object", "[]"},
		{"unknown-field", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","sockets":1}`},
		{"two-objects", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}{}`},
		{"no-key", `{}`},
		{"short-key", `{"key":"AAAA"}`},
		{"unclean-hide", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","hide":["/a/../b"]}`},
		{"relative-cwd", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","cwd":"w"}`},
		{"relative-disk", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","disk_paths":["w"]}`},
		{"relative-not-shown", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","not_shown":["bin"]}`},
		{"relative-tasks", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","tasks":["tasks"]}`},
		{"empty-tasks", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","tasks":[""]}`},
		{"relative-cgroup", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","cgroup_root":"c"}`},
		{"unclean-oom-file", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","oom_file":"/a//b"}`},
		{"relative-pids-file", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","pids_file":"../p"}`},
		{"negative-oom-score", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","oom_score":-1}`},
		{"high-oom-score", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","oom_score":1001}`},
		{"negative-files", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","files":-1}`},
		{"strict-as-text", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","strict":"yes"}`},
		{"negative-pids", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","pids":-1}`},
		{"root-not-allowed", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","user":"root"}`},
		{"bad-variable", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","env":{"A=B":""}}`},
		{"no-nameserver", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{}}`},
		{"four-nameservers", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["1.1.1.1","1.1.1.2","1.1.1.3","1.1.1.4"]}}`},
		{"named-nameserver", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["gate"]}}`},
		{"nameserver-in-two-lines", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["1.1.1.1\nsearch x"]}}`},
		{"nameserver-with-zone", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["fe80::1%eth0"]}}`},
		{"gate-in-two-lines", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["1.1.1.1"],"gate":"a\n1.2.3.4 b"}}`},
		{"gate-with-a-space", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["1.1.1.1"],"gate":"a b"}}`},
		{"gate-without-a-label", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["1.1.1.1"],"gate":"a..b"}}`},
		{"trust-of-nothing", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["1.1.1.1"],"trust":"words"}}`},
		{"trust-with-a-key", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["1.1.1.1"],"trust":"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}}`},
		{"relative-roots", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["1.1.1.1"],"roots":"roots.pem"}}`},
		{"unknown-of-network", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["1.1.1.1"],"key":"x"}}`},
		{"negative-cpus", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","machine":{"cpus":-1}}`},
		{"negative-memory", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","machine":{"memory":-1}}`},
		{"negative-pids-of-machine", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","machine":{"pids":-1}}`},
		{"negative-processor", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","machine":{"processors":[0,-1]}}`},
		{"high-processor", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","machine":{"processors":[8192]}}`},
		{"unknown-of-machine", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","machine":{"disk":1}}`},
		{"zero-byte", `{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","env":{"A":"\u0000"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := control.ParseConfig(strings.NewReader(tt.text)); err == nil {
				t.Errorf("got %+v, want an error", got)
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(`{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","env":{"A":"b"},"pids":3}`)
	f.Add(`{"key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","network":{"nameservers":["192.0.0.1"],"gate":"g","trust":"","roots":"/r"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := control.ParseConfig(strings.NewReader(text))
		if err == nil && (len(c.Key) != 32 || c.User == "" || c.PIDs < 0 || c.OOMScore < 0) {
			t.Errorf("%q gave %+v", text, c)
		}
		if n := c.Network; err == nil && n != nil && strings.ContainsAny(strings.Join(n.Nameservers, "")+n.Gate, " \t\n#") {
			t.Errorf("%q would write %+v into the guest's files", text, n)
		}
	})
}
