package session_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// A skill that is registered after its session's sandbox was started is there
// with the next command, and nothing is lost for it; what the agent changes in
// a writable one is in the store after the command.
func TestSkillsOnAWall(t *testing.T) {
	root := filepath.Join(t.TempDir(), "skills")
	skills, err := skill.Open(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	owners := skill.Owners{Store: skills, Own: ann.Owner}
	mine, err := owners.Of(ann.Owner)
	if err != nil {
		t.Fatal(err)
	}
	register := func(name, mode string) sessions.Mount {
		t.Helper()
		k, err := mine.Create(t.Context(), sessions.SkillInput{Name: name, Instructions: &name}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return sessions.Mount{HostPath: k.PackageRoot, MountPath: tools.SkillsPath + "/" + name, Mode: mode}
	}
	onWallWith(t, session.Options{Skills: owners}, func(t *testing.T, d *real, again func() *real) {
		spec := func(cmd string, mounts ...sessions.Mount) sessions.Spec {
			s := asked("k", cmd)
			s.ExtraMounts = mounts
			return s
		}
		first := register("first", "rw")
		d.want(t, spec("ls .skills; tail -1 .skills/first/SKILL.md", first), 0, "first\nfirst")
		if _, err := d.StartProcess(t.Context(), ann, "k", sessions.ProcessSpec{Command: "cat"}); err != nil {
			t.Fatal(err)
		}
		second := register("second", "ro")
		d.want(t, spec("ls .skills", first, second), 0, "first\nsecond\n")
		d.want(t, spec("echo taught > .skills/first/note; echo x > .skills/second/note", first, second), 2, "")
		if c, err := mine.Read(t.Context(), "first", "note"); err != nil || c.Content != "taught\n" {
			t.Errorf("Read = %+v, %v", c, err)
		}
		if c, err := mine.Read(t.Context(), "second", "note"); err == nil {
			t.Errorf("a read-only skill was written: %+v", c)
		}
		d = again()
		if p, err := d.Process(t.Context(), ann, "k", ""); err != nil || p.Status != sessions.ProcessRunning {
			t.Errorf("Process = %+v, %v", p, err)
		}
		d.want(t, spec("cat .skills/first/note", first, second), 0, "taught\n")
		third := asked("k", "ls .skills")
		third.SkillName = "second"
		if res := d.run(t, third); !strings.Contains(string(res.Stdout), "second") {
			t.Errorf("Exec = %q, %q", res.Stdout, res.Stderr)
		}
		third.SkillName = "none"
		if _, err := d.Exec(t.Context(), ann, third); err == nil {
			t.Error("a skill that is not there was brought")
		}
	})
}
