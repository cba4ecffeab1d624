package request_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

func TestDifferences(t *testing.T) {
	is := request.Session{
		Key: "s", Network: "off", CPUs: 1, Memory: 512 << 20, PIDs: 128, ReadOnlyRoot: true,
		Workspace: request.Workspace{HostPath: "/a", Mode: "rw", Target: "/workspace"},
	}
	other := is
	other.Mounts, other.Skill = []request.Mount{{HostPath: "/b"}}, "x"
	if d := request.Differences(is, other); d != nil {
		t.Errorf("Differences = %v, of what no session is held to", d)
	}
	other.Network, other.Image, other.Persistent = "on", "i", true
	other.Workspace = request.Workspace{HostPath: "/b", Mode: "ro", Target: "/m", Size: 9 << 20}
	other.CPUs, other.Memory, other.PIDs, other.ReadOnlyRoot = 2, 64<<20, 1, false
	differ := func(field string, is, asked any) sessions.Difference {
		return sessions.Difference{Field: field, Is: is, Asked: asked}
	}
	want := []sessions.Difference{
		differ("network", "off", "on"),
		differ("image", "", "i"),
		differ("host_path", "/a", "/b"),
		differ("host_path_mode", "rw", "ro"),
		differ("mount_path", "/workspace", "/m"),
		differ("persistent", false, true),
		differ("cpus", 1.0, 2.0),
		differ("memory_mb", int64(512), int64(64)),
		differ("pids_limit", int64(128), int64(1)),
		differ("read_only_rootfs", true, false),
		differ("workspace_quota_mb", int64(0), int64(9)),
	}
	if d := cmp.Diff(want, request.Differences(is, other)); d != "" {
		t.Errorf("Differences (-want +got):\n%s", d)
	}
}

func TestSameMounts(t *testing.T) {
	a, b := request.Mount{HostPath: "/a", Target: "/x", Mode: "rw"}, request.Mount{HostPath: "/b", Target: "/y", Mode: "ro"}
	none := request.Mount{HostPath: "/c", Target: "/z", Mode: "none"}
	ro := a
	ro.Mode = "ro"
	for _, tt := range []struct {
		x, y []request.Mount
		want bool
	}{
		{nil, []request.Mount{none}, true},
		{[]request.Mount{a, b}, []request.Mount{b, none, a, a}, true},
		{[]request.Mount{a}, []request.Mount{ro}, false},
		{[]request.Mount{a}, nil, false},
	} {
		if got := request.SameMounts(tt.x, tt.y); got != tt.want {
			t.Errorf("SameMounts(%v, %v) = %v", tt.x, tt.y, got)
		}
	}
}
