package e2e

import (
	"archive/zip"
	"bytes"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// A skill that is installed when a session runs appears in it, what the
// session makes of it comes back into the store, and a process that was
// started before goes on all the while.
func TestSkillsComeLater(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		w := newBoxWorld(t, wall, nil)
		c := w.client
		says := func(mounts []sessions.Mount, command, want string) boxservice.Result {
			t.Helper()
			spec := boxservice.NewSpec("later", command)
			spec.ExtraMounts = mounts
			r, err := c.Exec(t.Context(), spec)
			if err != nil {
				t.Fatalf("%s: %v", command, err)
			}
			if r.Stdout != want {
				t.Errorf("%s: got %q, want %q (%+v)", command, r.Stdout, want, r)
			}
			return r
		}
		says(nil, "sleep 1000 >/dev/null 2>&1 & echo $! >/tmp/pid; ls /workspace/.skills", "")

		pack := boxservice.Zip{Content: skillZip(t, "demo", "fixed"), Filename: "pack.zip"}
		if skills, err := c.InstallZip(t.Context(), pack); err == nil {
			t.Fatalf("two skills, and none chosen: got %+v", skills)
		}
		pack.SourcePaths = []string{"demo", "fixed"}
		skills, err := c.InstallZip(t.Context(), pack)
		if err != nil || len(skills) != 2 {
			t.Fatal(skills, err)
		}
		var mounts []sessions.Mount
		for _, k := range skills {
			mounts = append(mounts, sessions.Mount{HostPath: k.PackageRoot, MountPath: tools.SkillsPath + "/" + k.Name, Mode: map[string]string{"demo": "rw", "fixed": "ro"}[k.Name]})
		}
		says(mounts, "kill -0 $(cat /tmp/pid) && cd /workspace/.skills && ls && cat */SKILL.md | grep ^use && stat -c '%a %U %n' . demo fixed/SKILL.md",
			"demo\nfixed\nuse demo\nuse fixed\n755 root .\n755 user demo\n644 root fixed/SKILL.md\n")
		says(mounts, "cd /workspace/.skills; for c in 'echo x >>fixed/SKILL.md' 'mv demo x' 'mkdir x' 'mv ../.skills ../x'; do sh -c \"$c\" 2>/dev/null && echo $c; done; echo end", "end\n")

		says(mounts, "cd /workspace/.skills/demo && echo 'use it twice' >>SKILL.md && mkdir .venv", "")
		k, err := c.Skill(t.Context(), "demo")
		if err != nil || k == nil || !strings.HasSuffix(k.Instructions, "use it twice\n") {
			t.Fatalf("in the store: got %+v, %v", k, err)
		}
		says(mounts, "cd /workspace/.skills/demo && echo 'not this' >>SKILL.md && ln -s /etc/passwd p", "")
		if k, err := c.Skill(t.Context(), "demo"); err != nil || strings.Contains(k.Instructions, "not this") {
			t.Errorf("with a link beside it: got %+v, %v", k, err)
		}
		if err := c.DeleteSkill(t.Context(), "demo"); err != nil {
			t.Error(err)
		}
		says(mounts[1:], "ls /workspace/.skills; kill -0 $(cat /tmp/pid) && echo lives", "fixed\nlives\n")
	})
}

func skillZip(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range names {
		f, err := w.Create("pack/" + name + "/SKILL.md")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("---\nname: " + name + "\n---\nuse " + name + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
