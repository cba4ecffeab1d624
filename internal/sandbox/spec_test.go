package sandbox_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

var testOffer = sandbox.Offer{
	Walls: []string{"gvisor", "process"}, Images: true, Volumes: true,
	CPUs: 4, Memory: 8 << 30,
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func hostDir(path string) sandbox.HostDir {
	return sandbox.HostDir{Path: path, Dev: 1, Ino: 2, UID: 1000, GID: 1000}
}

func TestNormalize(t *testing.T) {
	defaults := sandbox.Spec{
		Isolation: "gvisor", Image: "host", User: "user", Network: "off", OnExpiry: "stop",
		Workspace: sandbox.Workspace{Mode: "private"},
		Limits:    sandbox.Limits{CPUs: 2, Memory: 2 << 30, PIDs: 1024, Disk: 8 << 30, Inodes: 1_000_000},
	}
	small := sandbox.Offer{CPUs: 1, Memory: 1 << 30}
	tests := []struct {
		name  string
		in    sandbox.Spec
		offer sandbox.Offer
		want  func(*sandbox.Spec)
	}{
		{name: "empty", offer: testOffer, want: func(*sandbox.Spec) {}},
		{name: "small-machine", offer: small, want: func(s *sandbox.Spec) { s.Limits.CPUs, s.Limits.Memory = 1, 1<<30 }},
		{
			name: "source-means-cow", offer: testOffer,
			in:   sandbox.Spec{Workspace: sandbox.Workspace{Source: hostDir("/w")}},
			want: func(s *sandbox.Spec) { s.Workspace = sandbox.Workspace{Mode: "cow", Source: hostDir("/w")} },
		},
		{
			name: "limits-set-are-explicit", offer: testOffer,
			in: sandbox.Spec{Limits: sandbox.Limits{CPUs: 1, Memory: 2 << 30, PIDs: 1024, Explicit: map[string]bool{"pids": true}}},
			want: func(s *sandbox.Spec) {
				s.Limits.CPUs = 1
				s.Limits.Explicit = map[string]bool{"cpus": true, "pids": true}
			},
		},
		{
			name: "explicit-zero-stays", offer: testOffer,
			in: sandbox.Spec{Limits: sandbox.Limits{Explicit: map[string]bool{"disk": true}}},
			want: func(s *sandbox.Spec) {
				s.Limits.Disk, s.Limits.Inodes, s.Limits.Explicit = 0, sandbox.MinInodes, map[string]bool{"disk": true}
			},
		},
		{
			name: "small-disk-has-fewer-inodes", offer: testOffer,
			in: sandbox.Spec{Limits: sandbox.Limits{Disk: 64 << 20}},
			want: func(s *sandbox.Spec) {
				s.Limits.Disk, s.Limits.Inodes, s.Limits.Explicit = 64<<20, 16384, map[string]bool{"disk": true}
			},
		},
		{
			name: "stronger-walls-are-ordered", offer: testOffer,
			in: sandbox.Spec{Isolation: "process", Stronger: []string{"x", "microvm", "gvisor", "a", "microvm"}},
			want: func(s *sandbox.Spec) {
				s.Isolation, s.Stronger = "process", []string{"gvisor", "microvm", "a", "x"}
			},
		},
		{
			name: "target-is-cleaned", offer: testOffer,
			in: sandbox.Spec{Mounts: []sandbox.Mount{{Target: "/mnt/../mnt//x/"}, {Target: "x/../y"}}},
			want: func(s *sandbox.Spec) {
				s.Mounts = []sandbox.Mount{{Target: "/mnt/x"}, {Target: "x/../y"}}
			},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			want := defaults.Clone()
			tc.want(&want)
			before := tc.in.Clone()
			got := tc.in.Normalize(tc.offer)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("Normalize (-want +got):\n%s", d)
			}
			if d := cmp.Diff(before, tc.in); d != "" {
				t.Errorf("Normalize changed its receiver (-before +after):\n%s", d)
			}
			if d := cmp.Diff(got, got.Normalize(tc.offer)); d != "" {
				t.Errorf("Normalize again (-first +second):\n%s", d)
			}
		})
	}
}

func many(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m[fmt.Sprintf("K%d", i)] = ""
	}
	return m
}

func mounts(targets ...string) []sandbox.Mount {
	var ms []sandbox.Mount
	for _, p := range targets {
		ms = append(ms, sandbox.Mount{Source: hostDir("/srv/x"), Target: p})
	}
	return ms
}

func with(s sandbox.Spec, mounts ...sandbox.Mount) sandbox.Spec {
	s.Mounts = mounts
	return s
}

func volumeWorkspace(w sandbox.Workspace) sandbox.Spec { return sandbox.Spec{Workspace: w} }

func mountOf(source string) sandbox.Spec {
	return sandbox.Spec{Mounts: []sandbox.Mount{{Source: hostDir(source), Target: "/mnt/x"}}}
}

func workspace(mode sandbox.WorkspaceMode, source string) sandbox.Spec {
	s := sandbox.Spec{Workspace: sandbox.Workspace{Mode: mode}}
	if source != "" {
		s.Workspace.Source = hostDir(source)
	}
	return s
}

func TestValidate(t *testing.T) {
	type limits = sandbox.Limits
	zero := func(name string) sandbox.Spec {
		return sandbox.Spec{Limits: limits{Explicit: map[string]bool{name: true}}}
	}
	long := strings.Repeat("x", 1<<17)
	tests := []struct {
		name string
		in   sandbox.Spec
		want sandbox.Kind // "" means that it is valid
		hint string       // in the hint: what would work
	}{
		{name: "empty"},
		{name: "name-longest", in: sandbox.Spec{Name: "a" + strings.Repeat("-", 62)}},
		{name: "name-too-long", in: sandbox.Spec{Name: strings.Repeat("a", 64)}, want: sandbox.Invalid, hint: "63"},
		{name: "name-upper", in: sandbox.Spec{Name: "Web"}, want: sandbox.Invalid, hint: "a-z"},
		{name: "name-digit-first", in: sandbox.Spec{Name: "1a"}, want: sandbox.Invalid},
		{name: "name-like-id", in: sandbox.Spec{Name: "sb_aaaaaaaaaaaaaaaaaaaa"}, want: sandbox.Invalid},
		{name: "name-path", in: sandbox.Spec{Name: "../a"}, want: sandbox.Invalid},
		{name: "isolation-other", in: sandbox.Spec{Isolation: "process"}},
		{name: "isolation-unknown", in: sandbox.Spec{Isolation: "docker"}, want: sandbox.Invalid, hint: "process, gvisor"},
		{name: "isolation-missing", in: sandbox.Spec{Isolation: "microvm"}, want: sandbox.Unsupported, hint: "gvisor, process"},
		{name: "stronger", in: sandbox.Spec{Isolation: "process", Stronger: []string{"gvisor"}}},
		{name: "stronger-missing", in: sandbox.Spec{Isolation: "process", Stronger: []string{"microvm"}}},
		{name: "stronger-than-default", in: sandbox.Spec{Stronger: []string{"microvm"}}},
		{name: "stronger-unknown", in: sandbox.Spec{Stronger: []string{"microvm", "bunker"}}, want: sandbox.Invalid, hint: "process, gvisor"},
		{name: "stronger-equal", in: sandbox.Spec{Stronger: []string{"gvisor"}}, want: sandbox.Invalid, hint: "weakest"},
		{name: "stronger-weaker", in: sandbox.Spec{Stronger: []string{"process"}}, want: sandbox.Invalid, hint: "weakest"},
		{name: "image", in: sandbox.Spec{Image: "debian:12@" + digest}},
		{name: "image-of-a-registry", in: sandbox.Spec{Image: "registry.example:5000/a_b/c-d.e:1.0@" + digest}},
		{name: "image-not-pinned", in: sandbox.Spec{Image: "debian:12"}, want: sandbox.Invalid, hint: "@sha256:"},
		{name: "image-no-name", in: sandbox.Spec{Image: "@" + digest}, want: sandbox.Invalid},
		{name: "image-no-digest", in: sandbox.Spec{Image: "debian@"}, want: sandbox.Invalid},
		{name: "image-short-digest", in: sandbox.Spec{Image: "debian@" + digest[:70]}, want: sandbox.Invalid},
		{name: "image-upper-digest", in: sandbox.Spec{Image: "debian@sha256:" + strings.ToUpper(digest[7:])}, want: sandbox.Invalid},
		{name: "image-other-digest", in: sandbox.Spec{Image: "debian@sha512:" + digest[7:]}, want: sandbox.Invalid},
		{name: "image-two-digests", in: sandbox.Spec{Image: "debian@" + digest + "@" + digest}, want: sandbox.Invalid},
		{name: "image-path", in: sandbox.Spec{Image: "/etc@" + digest}, want: sandbox.Invalid},
		{name: "image-parent", in: sandbox.Spec{Image: "../x@" + digest}, want: sandbox.Invalid},
		{name: "image-flag", in: sandbox.Spec{Image: "-x@" + digest}, want: sandbox.Invalid},
		{name: "image-control", in: sandbox.Spec{Image: "a\x1bb@" + digest}, want: sandbox.Invalid},
		{name: "image-name-long", in: sandbox.Spec{Image: long[:256] + "@" + digest}, want: sandbox.Invalid},
		{name: "network-on", in: sandbox.Spec{Network: "on"}, want: sandbox.Unsupported, hint: "off"},
		{name: "root", in: sandbox.Spec{User: "root"}},
		{name: "user-other", in: sandbox.Spec{User: "ann"}},
		{name: "user-number", in: sandbox.Spec{User: "70"}},
		{name: "user-hostile", in: sandbox.Spec{User: "ann:x"}, want: sandbox.Invalid, hint: "root"},
		{name: "user-option", in: sandbox.Spec{User: "-l"}, want: sandbox.Invalid, hint: "root"},
		{name: "cwd", in: sandbox.Spec{Cwd: "/srv/app"}},
		{name: "cwd-relative", in: sandbox.Spec{Cwd: "srv"}, want: sandbox.Invalid, hint: "/home/user"},
		{name: "cwd-unclean", in: sandbox.Spec{Cwd: "/srv/../etc"}, want: sandbox.Invalid, hint: "/home/user"},
		{name: "startup-nobody-runs", in: sandbox.Spec{Startup: &sandbox.Startup{Command: "true"}}, want: sandbox.Unsupported, hint: "leave it out"},
		{name: "on-expiry-remove", in: sandbox.Spec{OnExpiry: "remove"}},
		{name: "on-expiry-other", in: sandbox.Spec{OnExpiry: "kill"}, want: sandbox.Invalid, hint: "remove"},
		{name: "ttl-shortest", in: sandbox.Spec{TTL: time.Second}},
		{name: "ttl-short", in: sandbox.Spec{TTL: time.Second - 1}, want: sandbox.Invalid, hint: "1s"},
		{name: "ttl-negative", in: sandbox.Spec{TTL: -1}, want: sandbox.Invalid},
		{name: "ttl-long", in: sandbox.Spec{TTL: 366 * 24 * time.Hour}, want: sandbox.Invalid, hint: "8760h"},

		{name: "cpus-all", in: sandbox.Spec{Limits: limits{CPUs: 4}}},
		{name: "cpus-fewest", in: sandbox.Spec{Limits: limits{CPUs: 0.1}}},
		{name: "cpus-too-few", in: sandbox.Spec{Limits: limits{CPUs: 0.09}}, want: sandbox.Invalid, hint: "from 0.1 to 4"},
		{name: "cpus-too-many", in: sandbox.Spec{Limits: limits{CPUs: 4.5}}, want: sandbox.Unsupported, hint: "from 0.1 to 4"},
		{name: "cpus-nan", in: sandbox.Spec{Limits: limits{CPUs: math.NaN()}}, want: sandbox.Invalid},
		{name: "cpus-infinite", in: sandbox.Spec{Limits: limits{CPUs: math.Inf(1)}}, want: sandbox.Unsupported},
		{name: "cpus-zero", in: zero("cpus"), want: sandbox.Invalid},
		{name: "memory-all", in: sandbox.Spec{Limits: limits{Memory: 8 << 30}}},
		{name: "memory-too-much", in: sandbox.Spec{Limits: limits{Memory: 8<<30 + 1}}, want: sandbox.Unsupported, hint: "8g"},
		{name: "memory-too-little", in: sandbox.Spec{Limits: limits{Memory: 1 << 20}}, want: sandbox.Invalid, hint: "16m"},
		{name: "memory-negative", in: sandbox.Spec{Limits: limits{Memory: -1}}, want: sandbox.Invalid},
		{name: "memory-zero", in: zero("memory"), want: sandbox.Invalid},
		{name: "pids-too-few", in: sandbox.Spec{Limits: limits{PIDs: -1}}, want: sandbox.Invalid, hint: "from 1"},
		{name: "pids-too-many", in: sandbox.Spec{Limits: limits{PIDs: 1<<22 + 1}}, want: sandbox.Invalid},
		{name: "pids-zero", in: zero("pids"), want: sandbox.Invalid},
		{name: "disk-too-little", in: sandbox.Spec{Limits: limits{Disk: 1}}, want: sandbox.Invalid, hint: "from 4m to 8t"},
		{name: "disk-too-much", in: sandbox.Spec{Limits: limits{Disk: math.MaxInt64}}, want: sandbox.Invalid},
		{name: "disk-zero", in: zero("disk"), want: sandbox.Invalid},
		{name: "inodes-too-few", in: sandbox.Spec{Limits: limits{Inodes: 1}}, want: sandbox.Invalid, hint: "from 64"},
		{name: "inodes-zero", in: zero("inodes"), want: sandbox.Invalid},
		{name: "limit-unknown", in: zero("files"), want: sandbox.Invalid, hint: "inodes"},

		{name: "env", in: sandbox.Spec{Env: map[string]string{"A": "", "a.b-c d": "\n=é"}}},
		{name: "env-no-key", in: sandbox.Spec{Env: map[string]string{"": "x"}}, want: sandbox.Invalid},
		{name: "env-equals", in: sandbox.Spec{Env: map[string]string{"A=B": "x"}}, want: sandbox.Invalid, hint: "="},
		{name: "env-key-control", in: sandbox.Spec{Env: map[string]string{"A\n": "x"}}, want: sandbox.Invalid},
		{name: "env-key-nul", in: sandbox.Spec{Env: map[string]string{"A\x00": "x"}}, want: sandbox.Invalid},
		{name: "env-key-long", in: sandbox.Spec{Env: map[string]string{long[:257]: "x"}}, want: sandbox.Invalid},
		{name: "env-nul", in: sandbox.Spec{Env: map[string]string{"A": "x\x00"}}, want: sandbox.Invalid, hint: "file"},
		{name: "env-largest", in: sandbox.Spec{Env: map[string]string{"A": long[3:]}}},
		{name: "env-large", in: sandbox.Spec{Env: map[string]string{"A": long[2:]}}, want: sandbox.Invalid, hint: "file"},
		{name: "env-total", in: sandbox.Spec{Env: map[string]string{"A": long[3:], "B": long[3:], "C": ""}}, want: sandbox.Invalid},
		{name: "env-most", in: sandbox.Spec{Env: many(1000)}},
		{name: "env-many", in: sandbox.Spec{Env: many(1001)}, want: sandbox.Invalid, hint: "1000"},

		{name: "labels", in: sandbox.Spec{Labels: map[string]string{"team/é": "red\n"}}},
		{name: "label-no-key", in: sandbox.Spec{Labels: map[string]string{"": "x"}}, want: sandbox.Invalid},
		{name: "label-equals", in: sandbox.Spec{Labels: map[string]string{"a=b": "x"}}, want: sandbox.Invalid},
		{name: "label-bidi", in: sandbox.Spec{Labels: map[string]string{"a\u202eb": "x"}}, want: sandbox.Invalid},
		{name: "label-nul", in: sandbox.Spec{Labels: map[string]string{"a": "\x00"}}, want: sandbox.Invalid},
		{name: "label-not-text", in: sandbox.Spec{Labels: map[string]string{"a": "\xff"}}, want: sandbox.Invalid},
		{name: "label-long", in: sandbox.Spec{Labels: map[string]string{"a": long[:4097]}}, want: sandbox.Invalid},
		{name: "labels-many", in: sandbox.Spec{Labels: many(65)}, want: sandbox.Invalid, hint: "64"},

		{name: "workspace-cow", in: workspace("", "/home/ann/w")},
		{name: "workspace-rw", in: workspace("rw", "/home/ann/w")},
		{name: "workspace-private-source", in: workspace("private", "/w"), want: sandbox.Invalid, hint: "cow"},
		{name: "workspace-no-source", in: workspace("rw", ""), want: sandbox.Invalid, hint: "private"},
		{name: "workspace-mode", in: workspace("copy", "/w"), want: sandbox.Invalid, hint: "private, cow, ro, rw or volume"},
		{name: "workspace-relative", in: workspace("ro", "w"), want: sandbox.Invalid},
		{name: "workspace-unclean", in: workspace("ro", "/w/../v"), want: sandbox.Invalid},
		{name: "workspace-control", in: workspace("ro", "/w\x1b"), want: sandbox.Invalid},
		{name: "workspace-root", in: workspace("ro", "/"), want: sandbox.Denied},
		{name: "workspace-etc", in: workspace("ro", "/etc/ssl/private"), want: sandbox.Denied},
		{name: "workspace-home", in: workspace("cow", "/home"), want: sandbox.Denied, hint: "in it"},

		{name: "mounts", in: sandbox.Spec{Mounts: mounts("/mnt", "/go/pkg/mod", "/home/user/x", "/usrx", "/opt")}},
		{name: "mount-relative", in: sandbox.Spec{Mounts: mounts("mnt")}, want: sandbox.Invalid, hint: "/mnt/cache"},
		{name: "mount-empty", in: sandbox.Spec{Mounts: mounts("")}, want: sandbox.Invalid},
		{name: "mount-nul", in: sandbox.Spec{Mounts: mounts("/mnt/\x00")}, want: sandbox.Invalid},
		{name: "mount-root", in: sandbox.Spec{Mounts: mounts("/")}, want: sandbox.Invalid, hint: "/mnt/cache"},
		{name: "mount-root-spelt-out", in: sandbox.Spec{Mounts: mounts("/mnt/..")}, want: sandbox.Invalid},
		{name: "mount-proc", in: sandbox.Spec{Mounts: mounts("/proc/self")}, want: sandbox.Invalid},
		{name: "mount-sys", in: sandbox.Spec{Mounts: mounts("/sys")}, want: sandbox.Invalid},
		{name: "mount-dev", in: sandbox.Spec{Mounts: mounts("/dev/shm")}, want: sandbox.Invalid},
		{name: "mount-usr", in: sandbox.Spec{Mounts: mounts("/mnt", "/usr//local")}, want: sandbox.Invalid},
		{name: "mount-lib", in: sandbox.Spec{Mounts: mounts("/lib")}, want: sandbox.Invalid},
		{name: "mount-etc", in: sandbox.Spec{Mounts: mounts("/etc")}, want: sandbox.Invalid},
		{name: "mount-agent", in: sandbox.Spec{Mounts: mounts("/run/carboy/x")}, want: sandbox.Invalid},
		{name: "mount-over-agent", in: sandbox.Spec{Mounts: mounts("/run")}, want: sandbox.Invalid},
		{name: "mount-agent-by-link", in: sandbox.Spec{Mounts: mounts("/var/run/carboy")}, want: sandbox.Invalid},
		{name: "mount-workspace", in: sandbox.Spec{Mounts: mounts("/workspace")}, want: sandbox.Invalid, hint: "/workspace/cache"},
		{name: "mount-workspace-spelt-out", in: sandbox.Spec{Mounts: mounts("/workspace/x/..")}, want: sandbox.Invalid},
		{name: "mounts-below-workspace", in: sandbox.Spec{Mounts: mounts("/workspace/.mcp/x", "/workspace/.mcp/y", "/workspacer")}},
		{name: "mount-below-read-only-workspace", in: with(workspace("ro", "/home/ann/w"), mounts("/workspace/.mcp/x")...)},
		{name: "mount-in-mount-below-workspace", in: sandbox.Spec{Mounts: mounts("/workspace/x", "/workspace/x/y")}, want: sandbox.Invalid},
		{name: "mount-deep-in-workspace", in: sandbox.Spec{Mounts: mounts("/workspace" + strings.Repeat("/d", 16))}},
		{name: "mount-too-deep-in-workspace", in: sandbox.Spec{Mounts: mounts("/workspace" + strings.Repeat("/d", 17))}, want: sandbox.Invalid, hint: "16"},
		{name: "own", in: sandbox.Spec{Mounts: []sandbox.Mount{{Own: true, Target: "/workspace/.skills"}, {Own: true, Target: "/mnt/own"}}}},
		{name: "own-of-user", in: sandbox.Spec{Mounts: []sandbox.Mount{{Own: true, Owner: "user", Target: "/home/ann/r/.git/worktrees/w"}}}},
		{name: "own-of-another", in: sandbox.Spec{Mounts: []sandbox.Mount{{Own: true, Owner: "ann", Target: "/a"}}}, want: sandbox.Invalid, hint: "root"},
		{name: "owner-of-a-directory", in: sandbox.Spec{Mounts: []sandbox.Mount{{Source: hostDir("/srv/x"), Owner: "user", Target: "/a"}}}, want: sandbox.Invalid, hint: "own"},
		{name: "own-and-directory", in: sandbox.Spec{Mounts: []sandbox.Mount{{Own: true, Source: hostDir("/srv/x"), Target: "/a"}}}, want: sandbox.Invalid},
		{name: "own-and-volume", in: sandbox.Spec{Mounts: []sandbox.Mount{{Own: true, Volume: volume1, Target: "/a"}}}, want: sandbox.Invalid},
		{name: "own-read-only", in: sandbox.Spec{Mounts: []sandbox.Mount{{Own: true, ReadOnly: true, Target: "/a"}}}, want: sandbox.Invalid, hint: "root"},
		{name: "home", in: sandbox.Spec{Mounts: []sandbox.Mount{{Volume: volume1, Target: "/a", Cache: true, Home: "claude", Sub: ".claude"}}}},
		{name: "home-no-cache", in: sandbox.Spec{Mounts: []sandbox.Mount{{Volume: volume1, Target: "/a", Home: "claude", Sub: "x"}}}, want: sandbox.Invalid},
		{name: "home-above", in: sandbox.Spec{Mounts: []sandbox.Mount{{Volume: volume1, Target: "/a", Cache: true, Home: "claude", Sub: ".."}}}, want: sandbox.Invalid},
		{name: "home-in-another", in: sandbox.Spec{Mounts: []sandbox.Mount{{Volume: volume1, Target: "/a", Cache: true, Home: "claude", Sub: "a/../../b"}}}, want: sandbox.Invalid},
		{name: "home-nobody's", in: sandbox.Spec{Mounts: []sandbox.Mount{{Volume: volume1, Target: "/a", Cache: true, Sub: "x"}}}, want: sandbox.Invalid},
		{name: "own-on-etc", in: sandbox.Spec{Mounts: []sandbox.Mount{{Own: true, Target: "/etc/x"}}}, want: sandbox.Invalid},
		{name: "workspace-volume", in: volumeWorkspace(sandbox.Workspace{Volume: volume1, VolumeName: "data", ReadOnly: true})},
		{name: "workspace-volume-missing", in: volumeWorkspace(sandbox.Workspace{Mode: "volume"}), want: sandbox.Invalid, hint: "volume ls"},
		{name: "workspace-volume-no-id", in: volumeWorkspace(sandbox.Workspace{Volume: "../etc"}), want: sandbox.Invalid, hint: "volume ls"},
		{name: "workspace-volume-and-directory", in: volumeWorkspace(sandbox.Workspace{Mode: "volume", Volume: volume1, Source: hostDir("/w")}), want: sandbox.Invalid},
		{name: "workspace-volume-of-cow", in: volumeWorkspace(sandbox.Workspace{Volume: volume1, Source: hostDir("/w")}), want: sandbox.Invalid},
		{name: "workspace-private-read-only", in: volumeWorkspace(sandbox.Workspace{ReadOnly: true}), want: sandbox.Invalid},
		{name: "mount-twice", in: sandbox.Spec{Mounts: mounts("/a", "/a/")}, want: sandbox.Invalid},
		{name: "mount-in-mount", in: sandbox.Spec{Mounts: mounts("/a/b", "/a")}, want: sandbox.Invalid},
		{name: "mounts-many", in: sandbox.Spec{Mounts: make([]sandbox.Mount, 33)}, want: sandbox.Invalid, hint: "32"},
		{name: "mount-source-missing", in: sandbox.Spec{Mounts: []sandbox.Mount{{Target: "/a"}}}, want: sandbox.Invalid},
		{name: "mount-source-dev", in: mountOf("/dev"), want: sandbox.Denied},
		{name: "mount-source-sys", in: mountOf("/sys/fs"), want: sandbox.Denied},
		{name: "mount-source-run", in: mountOf("/run"), want: sandbox.Denied},
		{name: "mount-source-in-root-home", in: mountOf("/root/go/pkg/mod")},
		{name: "volume", in: volumeOf(volume1)},
		{name: "volume-and-directory", in: sandbox.Spec{Mounts: []sandbox.Mount{{Source: hostDir("/srv/x"), Volume: volume1, Target: "/a"}}}, want: sandbox.Invalid},
		{name: "volume-no-id", in: sandbox.Spec{Mounts: []sandbox.Mount{{Volume: "../../etc", Target: "/a"}}}, want: sandbox.Invalid, hint: "volume ls"},
		{name: "volume-on-proc", in: sandbox.Spec{Mounts: []sandbox.Mount{{Volume: volume1, Target: "/proc"}}}, want: sandbox.Invalid},
		{name: "volume-on-agent", in: sandbox.Spec{Mounts: []sandbox.Mount{{Volume: volume1, Target: "/run/carboy"}}}, want: sandbox.Invalid},
		{name: "volume-in-volume", in: sandbox.Spec{Mounts: []sandbox.Mount{{Volume: volume1, Target: "/a"}, {Volume: volume1, Target: "/a/b"}}}, want: sandbox.Invalid},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.in.Normalize(testOffer).Validate(testOffer)
			if got := sandbox.KindOf(err); got != tc.want {
				t.Fatalf("Validate = %v (kind %q), want kind %q", err, got, tc.want)
			}
			if err == nil {
				return
			}
			e, _ := errors.AsType[*sandbox.Error](err)
			if e.Hint == "" || !strings.Contains(e.Hint, tc.hint) {
				t.Errorf("hint = %q, want %q in it", e.Hint, tc.hint)
			}
			if len(e.Msg) > 5000 || strings.ContainsAny(e.Msg, "\x00\x1b\n") {
				t.Errorf("message is not fit to show: %q", e.Msg)
			}
		})
	}
}

func TestValidateUnknownMachine(t *testing.T) {
	o := sandbox.Offer{Walls: testOffer.Walls}
	s := sandbox.Spec{Limits: sandbox.Limits{CPUs: 500, Memory: 1 << 50}}
	if err := s.Normalize(o).Validate(o); err != nil {
		t.Errorf("Validate = %v, want nil: nothing is known of the machine", err)
	}
}

func TestErrorsHideValues(t *testing.T) {
	const secret = "hunter2"
	for _, env := range []map[string]string{
		{"KEY": secret + "\x00"}, {"KEY": strings.Repeat(secret, 1<<17)},
	} {
		err := sandbox.Spec{Env: env}.Normalize(testOffer).Validate(testOffer)
		e, ok := errors.AsType[*sandbox.Error](err)
		if !ok || strings.Contains(e.Msg+e.Hint, secret) {
			t.Errorf("error shows a value: %v", err)
		}
	}
}

func TestNamesAndIDs(t *testing.T) {
	r := rand.NewChaCha8([32]byte{1})
	ids, names := map[string]bool{}, map[string]bool{}
	for range 2000 {
		id, err := sandbox.NewID(r)
		if err != nil || !sandbox.ValidID(id) || ids[id] {
			t.Fatalf("NewID = %q, %v: invalid or seen before", id, err)
		}
		name, err := sandbox.NewName(r)
		if err != nil || !sandbox.ValidName(name) || strings.Count(name, "-") != 2 {
			t.Fatalf("NewName = %q, %v", name, err)
		}
		ids[id], names[name] = true, true
	}
	if len(names) < 1990 {
		t.Errorf("%d of 2000 names are different", len(names))
	}
	for _, bad := range []string{
		"", "sb_", "sb_aaaaaaaaaaaaaaaaaaa", "sb_aaaaaaaaaaaaaaaaaaaaa", "sb_aaaaaaaaaaaaaaaaaaa1",
		"sb_AAAAAAAAAAAAAAAAAAAA", "sb_../../../../../../../", "xx_aaaaaaaaaaaaaaaaaaaa",
	} {
		if sandbox.ValidID(bad) {
			t.Errorf("ValidID(%q) = true", bad)
		}
	}
	if _, err := sandbox.NewID(bytes.NewReader(make([]byte, 12))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("NewID with too little randomness = %v", err)
	}
	if _, err := sandbox.NewName(strings.NewReader("")); !errors.Is(err, io.EOF) {
		t.Errorf("NewName without randomness = %v", err)
	}
}

// FuzzSpec: whatever is asked for, a spec that is accepted stays accepted and
// the same, and an error is fit to show and names its kind.
func FuzzSpec(f *testing.F) {
	for _, s := range []sandbox.Spec{
		{},
		mountOf("/srv/x"), workspace("cow", "/home/ann/w"),
		{Isolation: "process", Stronger: []string{"microvm", "gvisor"}, Image: "debian@" + digest},
		{Name: "web", Limits: sandbox.Limits{CPUs: 1}, Env: map[string]string{"A": "b"}, Labels: map[string]string{"a": "b"}},
	} {
		b, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in sandbox.Spec
		if json.Unmarshal(b, &in) != nil {
			return
		}
		s := in.Normalize(testOffer)
		if err := s.Validate(testOffer); err != nil {
			e, ok := errors.AsType[*sandbox.Error](err)
			if !ok || e.Kind == sandbox.Internal || e.Hint == "" {
				t.Errorf("Validate = %#v, want a kind and a hint", err)
			}
			return
		}
		again := s.Normalize(testOffer)
		if d := cmp.Diff(s, again); d != "" {
			t.Errorf("Normalize again (-first +second):\n%s", d)
		}
		for _, m := range s.Mounts {
			for _, own := range []string{"/proc", "/sys", "/dev", "/usr", "/etc", "/run/carboy"} {
				if strings.HasPrefix(m.Target+"/", own+"/") || strings.HasPrefix(own+"/", strings.TrimSuffix(m.Target, "/")+"/") {
					t.Errorf("mount at %q is accepted", m.Target)
				}
			}
			if strings.HasPrefix(sandbox.WorkspacePath+"/", strings.TrimSuffix(m.Target, "/")+"/") {
				t.Errorf("mount at %q is accepted, which covers the workspace", m.Target)
			}
		}
		if s.Image != "host" && len(sandbox.ImageDigest(s.Image)) != len(digest) {
			t.Errorf("image %q is accepted", s.Image)
		}
		for k, v := range maps.All(s.Env) {
			if strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
				t.Errorf("variable %q=%q is accepted", k, v)
			}
		}
	})
}

func TestCallersLabels(t *testing.T) {
	for _, tt := range []struct {
		name   string
		labels map[string]string
		want   sandbox.Kind
	}{
		{"none", nil, ""},
		{"their-own", map[string]string{"carboy": "1", "team.carboy.session": "x", "Carboy.session": "y"}, ""},
		{"a-session's", map[string]string{"a": "b", "carboy.session": "person_alice"}, sandbox.Invalid},
		{"one-that-is-not-yet", map[string]string{"carboy.": ""}, sandbox.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := sandbox.CheckCallersLabels(tt.labels); sandbox.KindOf(err) != tt.want {
				t.Errorf("CheckCallersLabels = %v, want kind %q", err, tt.want)
			}
		})
	}
}
