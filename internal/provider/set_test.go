package provider_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestBuiltIn(t *testing.T) {
	list, bad := provider.List("")
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	if got, want := strings.Join(names, " "), "aider claude codex custom gemini opencode"; got != want {
		t.Errorf("built in: %s, want %s", got, want)
	}
}

func TestUsersOwn(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "fake.toml"), "program = \"fakeagent\"\n[access]\nnone = true\n")
	write(t, filepath.Join(dir, "claude.toml"), "title = \"mine\"\nprogram = \"claude\"\n")
	write(t, filepath.Join(dir, "notes.txt"), "not one")
	list, bad := provider.List(dir)
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	if len(list) != 7 {
		t.Errorf("%d providers, want 7", len(list))
	}
	p, err := provider.Find(dir, "claude")
	if err != nil || p.Title != "mine" || p.From != filepath.Join(dir, "claude.toml") {
		t.Errorf("a user's file does not take the place of one that is built in: %+v, %v", p, err)
	}
	_, err = provider.Find(dir, "claud")
	if e, ok := err.(*sandbox.Error); !ok || e.Kind != sandbox.NotFound || e.Hint != "did you mean claude?" { //nolint:errorlint // it is not wrapped
		t.Errorf("an unknown one: %v", err)
	}
}

// TestMistakesHideNothing has files with mistakes beside good ones: each is told of with
// its line, and takes away nothing but the agent of its own name.
func TestMistakesHideNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "fake.toml"), "program = \"fakeagent\"\n[access]\nnone = true\n")
	write(t, filepath.Join(dir, "bad.toml"), "progam = \"x\"\n")
	write(t, filepath.Join(dir, "codex.toml"), "program = \"codex\"\n[config]\nvariable = \"X\"\ndir = \"/x\"\n")
	list, bad := provider.List(dir)
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	if got, want := strings.Join(names, " "), "aider claude custom fake gemini opencode"; got != want {
		t.Errorf("good: %s, want %s", got, want)
	}
	said := make([]string, len(bad))
	for i, err := range bad {
		said[i] = err.Error()
	}
	want := []string{
		filepath.Join(dir, "bad.toml") + ": line 1: progam is not known here",
		filepath.Join(dir, "codex.toml") + ": line 4: config.dir: \"/x\" is not a directory below the home",
	}
	if !slices.Equal(said, want) {
		t.Errorf("bad: %q, want %q", said, want)
	}
	for name, ok := range map[string]bool{"claude": true, "fake": true, "bad": false, "codex": false} {
		if _, err := provider.Find(dir, name); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	var e *sandbox.Error
	if !errors.As(bad[0], &e) || e.Hint != "did you mean program?" {
		t.Errorf("what was meant: %+v", e)
	}
	if _, err := provider.Find(dir, "claud"); !errors.As(err, &e) || e.Hint != "did you mean claude?" {
		t.Errorf("an unknown one: %v", err)
	}
}

// TestOthersMayWrite has a file that others could have written be neither run nor listed, nor the one
// whose place it takes; TestUsersOwn is the control.
func TestOthersMayWrite(t *testing.T) {
	for open, want := range map[string]string{"": "agents: D/claude.toml: D, which is on its way, can be written by other users", "claude.toml": "agents: D/claude.toml: others may write to it"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "claude.toml"), "title = \"mine\"\nprogram = \"claude\"\n")
		fi, err := os.Stat(filepath.Join(dir, open))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, open), fi.Mode().Perm()|0o002); err != nil {
			t.Fatal(err)
		}
		var e *sandbox.Error
		_, err = provider.Find(dir, "claude")
		if want = strings.ReplaceAll(want, "D", dir); !errors.As(err, &e) || e.Msg != want || !strings.HasPrefix(e.Hint, "chmod go-w ") {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, bad := provider.List(dir); len(bad) != 1 {
			t.Errorf("listed: %v", bad)
		}
	}
}

// TestLinks has a link be what it leads to.
func TestLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, filepath.Join(elsewhere, "a.toml"), "program = \"x\"\n[access]\nnone = true\n")
	if err := os.Symlink(filepath.Join(elsewhere, "a.toml"), filepath.Join(dir, "mine.toml")); err != nil {
		t.Fatal(err)
	}
	p, err := provider.Find(dir, "mine")
	if err != nil || p.Name != "mine" || p.Program != "x" {
		t.Fatalf("%+v, %v", p, err)
	}
	if b, err := provider.Text(p); err != nil || !strings.HasPrefix(string(b), "program") {
		t.Errorf("%s, %v", b, err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
