package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// TestBoxRegistersSkills has skills taken from workspaces, by the paths that
// their platform knows them under.
func TestBoxRegistersSkills(t *testing.T) {
	t.Parallel()
	w := newBoxWorld(t, "process", nil)
	w.subtest(t, "from-a-workspace-on-another-machine", func(t *testing.T) {
		const root = "/srv/of-another-machine/data/box"
		w.registers(t, root, map[string]any{"local": map[string]any{"host_root": root}})
	})
	w.subtest(t, "small-quota-of-a-workspace", func(t *testing.T) {
		const root = "/srv/of-another-machine/data/small"
		c := w.connect(t, boxservice.Options{Init: map[string]any{"local": map[string]any{"host_root": root}}}).Client()
		spec := boxservice.NewSpec("small", "head -c 4000000 /dev/zero > a && head -c 30000000 /dev/zero > b")
		spec.HostPath, spec.WorkspaceQuotaMB = root+"/default", 8
		r, err := c.Exec(t.Context(), spec)
		if err != nil || r.ExitCode == nil || *r.ExitCode == 0 || !strings.Contains(r.Stderr, "No space left on device") {
			t.Errorf("got %+v, %v", r, err)
		}
		if said := strings.Join(r.Notices, "\n"); !strings.Contains(said, "16 MiB") {
			t.Errorf("it says %q", said)
		}
	})
	shared := w.dirs(t, "shared")[0]
	other := newBoxWorld(t, "process", map[string]any{"host_root": shared, "allowed_mount_roots": []string{shared}})
	other.subtest(t, "from-a-workspace-that-is-shared", func(t *testing.T) { other.registers(t, shared, nil) })
}

// tenantOf is a workspace's directory, as platforms name it.
func tenantOf(instance, workspace string) string {
	sum := sha256.Sum256([]byte(instance + "\x00" + workspace))
	return "ws-" + hex.EncodeToString(sum[:])[:24]
}

const makeSkills = `mkdir -p made/sub linked
printf -- '---\nname: made\ndescription: by an agent\n---\nRead sub/data.\n' | tee made/SKILL.md | sed s/made/linked/ > linked/SKILL.md
echo data > made/sub/data
ln -s /etc/hostname linked/out
ln -s /etc door`

// registers has a workspace of a platform that keeps its own below root.
func (w *boxWorld) registers(t *testing.T, root string, init map[string]any) {
	conn := w.connect(t, boxservice.Options{Instance: "instance-1", Init: init})
	t.Cleanup(func() { _ = conn.Client().Shutdown(t.Context()) })
	of := func(workspace string) (c *boxservice.Client, dir string) {
		c = conn.Client().For(boxservice.Context{InstanceUUID: "instance-1", WorkspaceUUID: workspace, PlacementGeneration: 1})
		spec := boxservice.NewSpec("chat", "pwd")
		list, err := c.Skills(t.Context())
		if err != nil || len(list) != 0 {
			t.Fatalf("there are %+v, %v", list, err)
		}
		dir = root + "/default/tenants/" + tenantOf("instance-1", workspace)
		spec.HostPath = dir
		spec.Cmd = makeSkills
		if r, err := c.Exec(t.Context(), spec); err != nil || r.ExitCode == nil || *r.ExitCode != 0 {
			t.Fatalf("got %+v, %v", r, err)
		}
		return c, dir
	}
	a, at := of("a")
	got, err := a.ScanSkill(t.Context(), at+"/made")
	if err != nil || got.Name != "made" || got.Description != "by an agent" || got.PackageRoot != at+"/made" {
		t.Fatalf("the scan has %+v, %v", got, err)
	}
	if made, err := a.CreateSkill(t.Context(), boxservice.SkillInput{Name: "kept", PackageRoot: at + "/made"}); err != nil || made.Name != "kept" {
		t.Fatalf("made was %+v, %v", made, err)
	}
	if c, err := a.ReadSkill(t.Context(), "kept", "sub/data"); err != nil || c.Content != "data\n" {
		t.Errorf("it has %+v, %v", c, err)
	}
	b, _ := of("b")
	for _, tt := range []struct {
		name, path string
		c          *boxservice.Client
	}{
		{"a link", at + "/linked", a},
		{"a link on the way", at + "/door", a},
		{"what is not there", at + "/none", a},
		{"above it", at + "/../../..", a},
		{"the host's", "/etc", a},
		{"another workspace's", at + "/made", b},
	} {
		made, err := tt.c.CreateSkill(t.Context(), boxservice.SkillInput{Name: "bad", PackageRoot: tt.path})
		if boxservice.Class(err) != api.ClassValidation {
			t.Errorf("%s: made was %+v, %v", tt.name, made, err)
		}
	}
	if list, err := b.Skills(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the other one has %+v, %v", list, err)
	}
	if err := a.DeleteSkill(t.Context(), "kept"); err != nil {
		t.Error(err)
	}
	if list, err := w.left(t); err != nil || len(list) > 0 {
		t.Errorf("copies are left: %s, %v", strings.Join(list, ", "), err)
	}
}

// left lists the copies of directories from which a skill was taken.
func (w *boxWorld) left(t *testing.T) (names []string, err error) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(w.dir, "state", "carboy", "box", "sources"))
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names, err
}
