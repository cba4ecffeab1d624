package e2e

import (
	"os"
	"path/filepath"
	"testing"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// TestBoxSkillStoreIsClosed names the directory of skills, and what it is in, as
// directories of the host: a session that had them could read and change the
// skills of all. The control is a directory beside it.
func TestBoxSkillStoreIsClosed(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := newBoxWorld(t, "process", map[string]any{"host_root": root, "allowed_mount_roots": []string{root}})
	conn := w.connect(t, boxservice.Options{Instance: "instance-1"})
	t.Cleanup(func() { _ = conn.Client().Shutdown(t.Context()) })
	victim := conn.Client().For(boxservice.Context{InstanceUUID: "instance-1", WorkspaceUUID: "a", PlacementGeneration: 1})
	skill, err := victim.CreateSkill(t.Context(), boxservice.SkillInput{Name: "greet", Instructions: new("the secret way to greet")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "beside"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(skill.PackageRoot, filepath.Join(root, "beside", "link")); err != nil {
		t.Fatal(err)
	}
	others := map[string]*boxservice.Client{
		"a-workspace": conn.Client().For(boxservice.Context{InstanceUUID: "instance-1", WorkspaceUUID: "b", PlacementGeneration: 1}),
		"no-context":  w.client,
	}
	for name, c := range others {
		t.Run(name, func(t *testing.T) {
			for dir, open := range map[string]bool{
				filepath.Join(root, "beside"):         true,
				filepath.Join(root, "beside", "link"): false,
				skill.PackageRoot:                     false,
				filepath.Dir(skill.PackageRoot):       false,
				filepath.Join(root, "skills"):         false,
				root:                                  false,
			} {
				asWorkspace, asMount := boxservice.NewSpec("s", "grep -r secret /workspace"), boxservice.NewSpec("s", "grep -r secret /mnt/x")
				asWorkspace.HostPath, asWorkspace.HostPathMode = dir, sessions.MountReadOnly
				asMount.ExtraMounts = []sessions.Mount{{HostPath: dir, MountPath: "/mnt/x", Mode: sessions.MountReadOnly}}
				for _, spec := range []boxservice.Spec{asWorkspace, asMount} {
					r, err := c.Exec(t.Context(), spec)
					switch {
					case open && err != nil:
						t.Errorf("%s: %v", dir, err)
					case !open && err == nil:
						t.Errorf("%s is shown: %s", dir, r.Stdout)
					case !open && boxservice.Class(err) != api.ClassValidation:
						t.Errorf("%s: %v", dir, err)
					}
					_ = c.Delete(t.Context(), "s") // where there is one
				}
			}
		})
	}
}
