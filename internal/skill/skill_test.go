package skill_test

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

func open(t *testing.T) *skill.Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "skills"))
}

func openAt(t *testing.T, root string) *skill.Store {
	t.Helper()
	s, err := skill.Open(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func scoped(t *testing.T, s *skill.Store, ns string) *skill.Store {
	t.Helper()
	own, err := s.Scoped(ns)
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// file is one of an archive, or of a directory.
type file struct{ name, text string }

func write(t *testing.T, dir string, files ...file) string {
	t.Helper()
	for _, f := range files {
		p := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(f.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, p ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func exists(p ...string) bool {
	_, err := os.Lstat(filepath.Join(p...))
	return err == nil
}

// pkg writes a package into dir/name.
func pkg(t *testing.T, dir, name string) string {
	t.Helper()
	return write(t, filepath.Join(dir, name), file{"SKILL.md", md(name)})
}

func md(name string) string {
	return "---\nname: " + name + "\ndisplay_name: " + strings.ToUpper(name[:1]) + name[1:] + "\ndescription: A test skill\n---\n\nBody.\n"
}

func zipped(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		e, err := w.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func demoZip(t *testing.T) []byte {
	return zipped(t, file{"demo/SKILL.md", md("demo")}, file{"demo/notes.txt", "hello"})
}

func nestedZip(t *testing.T) []byte {
	return zipped(t, file{"repo/packages/alpha/SKILL.md", md("alpha")}, file{"repo/packages/beta/SKILL.md", md("beta")})
}

func ptr(s string) *string { return &s }

func names(ks []sessions.Skill) string {
	var out []string
	for _, k := range ks {
		out = append(out, k.Name)
	}
	return strings.Join(out, " ")
}

// fails checks that err is one of a kind, whose text has a part.
func fails(t *testing.T, err error, kind sandbox.Kind, part string) {
	t.Helper()
	if err == nil {
		t.Errorf("got no error, want %s: …%s…", kind, part)
		return
	}
	if got := sandbox.KindOf(err); got != kind || !strings.Contains(err.Error(), part) {
		t.Errorf("got %s: %v, want %s: …%s…", got, err, kind, part)
	}
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func create(t *testing.T, s *skill.Store, name, instructions string) sessions.Skill {
	t.Helper()
	k, err := s.Create(t.Context(), sessions.SkillInput{Name: name, Instructions: &instructions}, nil)
	return must(t, k, err)
}
