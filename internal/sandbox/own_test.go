package sandbox_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestOwnServices: what the daemon serves to a sandbox is in its policy, beside what was there, and opens nothing else.
func TestOwnServices(t *testing.T) {
	for _, tt := range []struct {
		name string
		own  sandbox.Own
		want []string
	}{
		{"none", sandbox.Own{}, nil},
		{"pods", sandbox.Own{MaySpawn: 1}, []string{"mail", "pods"}},
		{"both", sandbox.Own{MaySpawn: 1, Remotes: []sandbox.Remote{aRemote}}, []string{"git", "mail", "pods"}},
	} {
		network, p, err := tt.own.Network("", &policy.Policy{Services: []string{"mail"}})
		if err != nil || network != sandbox.NetworkPolicy {
			t.Fatalf("%s: %q, %v", tt.name, network, err)
		}
		set, err := policy.Compile(*p, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := tt.want
		if want == nil {
			want = []string{"mail"}
		}
		if d := cmp.Diff(want, set.Services()); d != "" || set.Name("a.example").Allowed() {
			t.Errorf("%s: -want +got\n%s", tt.name, d)
		}
	}
}

// TestMaySpawn: a sandbox whose workspace others can't share, or which it can only read, spawns no pods.
func TestMaySpawn(t *testing.T) {
	volume := sandbox.Workspace{Mode: sandbox.WorkspaceVolume, Volume: "vol_a", VolumeName: "a"}
	locked := volume
	locked.ReadOnly = true
	for _, tt := range []struct {
		name   string
		w      sandbox.Workspace
		pods   int
		refuse string
	}{
		{"volume", volume, 3, ""},
		{"none", sandbox.Workspace{Mode: sandbox.WorkspacePrivate}, 0, ""},
		{"private", sandbox.Workspace{Mode: sandbox.WorkspacePrivate}, 1, "pods share a volume"},
		{"read-only", locked, 1, "pods share a volume"},
		{"less than none", volume, -1, "from 0 to"},
		{"many", volume, sandbox.MaxSpawn + 1, "from 0 to"},
	} {
		s := sandbox.Spec{Isolation: "gvisor", Image: sandbox.DefaultImage, OnExpiry: sandbox.OnExpiryStop, User: sandbox.DefaultUser, Workspace: tt.w, MaySpawn: tt.pods}
		gated := sandbox.Offer{Walls: []string{"gvisor"}, Gate: true}
		s.Normalize(gated)
		err := s.Validate(gated)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if refused := strings.HasPrefix(got, "may_spawn"); refused != (tt.refuse != "") || !strings.Contains(got, tt.refuse) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
