package instance

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMountPoints(t *testing.T) {
	p := &Layout{Mounts: []Dir{
		{Target: "/mnt/x"}, {Target: "/workspace/a/b/c"}, {Target: "/workspacer/d"}, {Target: "/workspace/a/d"}, {Target: "/workspace/a-b"},
	}}
	want := []string{"a", "a-b", "a/b", "a/b/c", "a/d"}
	if d := cmp.Diff(want, p.mountPoints()); d != "" {
		t.Errorf("mountPoints (-want +got):\n%s", d)
	}
}
