package cgroup_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/cgroup"
)

func TestUndelegated(t *testing.T) {
	const app = "/user.slice/user-1000.slice/user@1000.service/app.slice/"
	tests := []struct {
		name   string
		mounts string
		own    string
		mark   string
		want   bool
	}{
		{name: "a-login", mounts: lineV2Only, own: "/user.slice/user-1000.slice/session-3.scope", want: true},
		{name: "an-app-of-the-desktop", mounts: lineV2Only, own: app + "vte-1.scope", want: true},
		{name: "delegated", mounts: lineV2Only, own: app + "mine.service", mark: app + "mine.service"},
		{name: "in-the-leaf", mounts: lineV2Only, own: app + "mine.service/carboy.daemon", mark: app + "mine.service"},
		{name: "a-scope-of-carboy", mounts: lineV2Only, own: app + "carboy-1234.scope"},
		{name: "its-leaf", mounts: lineV2Only, own: app + "carboy-1234.scope/carboy.daemon"},
		{name: "version-1", mounts: lineTmpfs + lineMemory, own: "/"},
		{name: "hybrid", mounts: lineTmpfs + lineMemory + lineV2, own: "/"},
		{name: "read-only", mounts: lineRO, own: "/"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := fake(t, map[string]string{
				"proc/self/mountinfo": tt.mounts, "proc/self/cgroup": "0::" + tt.own + "\n", "sys/fs/cgroup" + tt.own + "/": "",
			})
			if tt.mark != "" {
				if err := unix.Setxattr(root+"/sys/fs/cgroup"+tt.mark, "user.delegate", []byte("1"), 0); err != nil {
					t.Fatal(err)
				}
			}
			if got := cgroup.Undelegated(root); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}
