package skill_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/guest/archive"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/request"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// guest is a sandbox whose files are in a directory, and whose agent does
// with them what the real one does.
type guest struct {
	dir    string
	calls  atomic.Int64
	owner  atomic.Value
	tar    func(name string) io.Reader // instead of what is there
	broken error
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	g := &guest{dir: t.TempDir()}
	if err := os.MkdirAll(g.at("."), 0o755); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *guest) at(name ...string) string {
	return filepath.Join(g.dir, tools.SkillsPath, filepath.Join(name...))
}

func (g *guest) Replace(ctx context.Context, name, owner, keep string, tar io.Reader) error {
	g.calls.Add(1)
	g.owner.Store(owner)
	if g.broken != nil {
		return g.broken
	}
	_, err := archive.Replace(ctx, tar, g.at(name), keep, archive.ExtractOptions{})
	if errors.Is(err, os.ErrNotExist) {
		return agent.ErrNotThere
	}
	return err
}

func (g *guest) Fetch(ctx context.Context, name string, except []string, take func(io.Reader) error) error {
	g.calls.Add(1)
	if g.tar != nil {
		return take(g.tar(name))
	}
	var b bytes.Buffer
	_, err := archive.Create(ctx, &b, g.at(name), archive.CreateOptions{Except: except})
	if errors.Is(err, os.ErrNotExist) {
		return agent.ErrNotThere
	}
	if err != nil {
		return err
	}
	return take(&b)
}

func (g *guest) Remove(_ context.Context, name string) error {
	g.calls.Add(1)
	return os.RemoveAll(g.at(name))
}

func (g *guest) Names(context.Context) ([]string, error) {
	g.calls.Add(1)
	entries, err := os.ReadDir(g.at("."))
	if err != nil {
		return nil, agent.ErrNotThere
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

// bring brings packages, and checks how many calls of the guest it took.
func bring(t *testing.T, s *skill.Store, g *guest, b *skill.Brought, calls int64, want ...skill.Placed) []string {
	t.Helper()
	before := g.calls.Load()
	notices, err := s.Bring(t.Context(), g, b, want)
	if err != nil {
		t.Fatal(err)
	}
	if got := g.calls.Load() - before; got != calls {
		t.Errorf("got %d calls of the guest, want %d", got, calls)
	}
	return notices
}

func placed(t *testing.T, s *skill.Store, k sessions.Skill, mode string) skill.Placed {
	t.Helper()
	p, ok, err := s.Place(request.Mount{HostPath: k.PackageRoot, Target: tools.SkillsPath + "/" + k.Name, Mode: mode})
	if err != nil || !ok {
		t.Fatalf("place %s: %v, %v", k.Name, ok, err)
	}
	return p
}

func noted(t *testing.T, notices []string, want ...string) {
	t.Helper()
	if len(notices) != len(want) {
		t.Fatalf("got notices %q, want %q", notices, want)
	}
	for i := range want {
		if !strings.Contains(notices[i], want[i]) {
			t.Errorf("got notice %q, want …%s…", notices[i], want[i])
		}
	}
}

func TestPlace(t *testing.T) {
	s := open(t)
	own := scoped(t, s, "ws-1")
	at := tools.SkillsPath + "/x"
	for name, tt := range map[string]struct {
		s    *skill.Store
		m    request.Mount
		want skill.Placed
		ok   bool
		part string
	}{
		"writable":          {s, request.Mount{HostPath: s.Root() + "/a/b", Target: at}, skill.Placed{Name: "x", Dir: "a/b", Mode: "rw"}, true, ""},
		"read-only":         {s, request.Mount{HostPath: s.Root() + "/a/", Target: at + "/", Mode: "ro"}, skill.Placed{Name: "x", Dir: "a", Mode: "ro"}, true, ""},
		"of-a-namespace":    {own, request.Mount{HostPath: own.Root() + "/a", Target: at}, skill.Placed{Name: "x", Dir: "a", Mode: "rw"}, true, ""},
		"outside":           {s, request.Mount{HostPath: "/etc", Target: at}, skill.Placed{}, false, ""},
		"beside":            {s, request.Mount{HostPath: s.Root() + "2/x", Target: at}, skill.Placed{}, false, ""},
		"above":             {own, request.Mount{HostPath: s.Root() + "/a", Target: at}, skill.Placed{}, false, ""},
		"another-namespace": {own, request.Mount{HostPath: s.Root() + "/tenants/ws-2/a", Target: at}, skill.Placed{}, false, ""},
		"up":                {own, request.Mount{HostPath: own.Root() + "/../ws-2/a", Target: at}, skill.Placed{}, false, ""},
		"all-namespaces":    {s, request.Mount{HostPath: s.Root() + "/tenants/ws-2/a", Target: at}, skill.Placed{}, true, "no skill's package"},
		"the-root":          {s, request.Mount{HostPath: s.Root(), Target: at}, skill.Placed{}, true, "no skill's package"},
		"ours":              {s, request.Mount{HostPath: s.Root() + "/.carboy/stage", Target: at}, skill.Placed{}, true, "no skill's package"},
		"elsewhere":         {s, request.Mount{HostPath: s.Root() + "/a", Target: "/workspace/x"}, skill.Placed{}, true, "can't be mounted"},
		"deeper":            {s, request.Mount{HostPath: s.Root() + "/a", Target: at + "/y"}, skill.Placed{}, true, "can't be mounted"},
		"no-name":           {s, request.Mount{HostPath: s.Root() + "/a", Target: tools.SkillsPath + "/x.conflict"}, skill.Placed{}, true, "can't be mounted"},
		"another-mode":      {s, request.Mount{HostPath: s.Root() + "/a", Target: at, Mode: "none"}, skill.Placed{}, true, "mode"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := tt.s.Place(tt.m)
			if got != tt.want || ok != tt.ok || (err == nil) != (tt.part == "") || err != nil && !strings.Contains(err.Error(), tt.part) {
				t.Errorf("got %+v, %v, %v, want %+v, %v, …%s…", got, ok, err, tt.want, tt.ok, tt.part)
			}
		})
	}
}

func TestBring(t *testing.T) {
	t.Run("a-skill-that-is-registered-later", func(t *testing.T) {
		s, g, b := open(t), newGuest(t), &skill.Brought{}
		one := placed(t, s, create(t, s, "one", "x"), "rw")
		bring(t, s, g, b, 1, one)
		two := create(t, s, "two", "y")
		write(t, two.PackageRoot, file{"bin/run", "#!/bin/sh\n"}, file{".git/config", ""}, file{"a/__pycache__/x", ""})
		if err := os.Chmod(filepath.Join(two.PackageRoot, "bin/run"), 0o755); err != nil {
			t.Fatal(err)
		}
		bring(t, s, g, b, 1, one, placed(t, s, two, "ro"))
		if g.owner.Load() != "root" || exists(g.at("two/.git")) || exists(g.at("two/a/__pycache__")) || !exists(g.at("one/SKILL.md")) {
			t.Errorf("got owner %v", g.owner.Load())
		}
		if st := must2(os.Stat(g.at("two/bin/run"))); st.Mode() != 0o755 {
			t.Errorf("got mode %v", st.Mode())
		}
		bring(t, s, g, b, 0, one, placed(t, s, two, "ro")) // unchanged ones cost nothing
		bring(t, s, g, b, 1, one, placed(t, s, two, "rw"))
		if g.owner.Load() != "user" {
			t.Errorf("got owner %v, want user", g.owner.Load())
		}
	})
	t.Run("a-change-in-the-store", func(t *testing.T) {
		s, g, b := open(t), newGuest(t), &skill.Brought{}
		k := create(t, s, "k", "old")
		p := placed(t, s, k, "ro")
		bring(t, s, g, b, 1, p)
		if _, err := s.Update(t.Context(), "k", sessions.SkillInput{Instructions: ptr("new")}); err != nil {
			t.Fatal(err)
		}
		bring(t, s, g, b, 1, p)
		if got := read(t, g.at("k/SKILL.md")); !strings.HasSuffix(got, "new") {
			t.Errorf("got %q", got)
		}
		if exists(g.at("k" + skill.ConflictSuffix)) {
			t.Error("the old one was kept")
		}
	})
}

func TestBringAgain(t *testing.T) {
	t.Run("a-deleted-skill-is-removed", func(t *testing.T) {
		s, g, b := open(t), newGuest(t), &skill.Brought{}
		p, q := placed(t, s, create(t, s, "p", "x"), "rw"), placed(t, s, create(t, s, "q", "x"), "rw")
		bring(t, s, g, b, 2, p, q)
		must2(s.Delete(t.Context(), "p"))
		bring(t, s, g, b, 1)
		if exists(g.at("p")) || !exists(g.at("q/SKILL.md")) {
			t.Error("it is there, or the other is not")
		}
		noted(t, bring(t, s, g, b, 0, p, q), "skill p was not brought")
	})
	t.Run("after-a-restart", func(t *testing.T) {
		s, g, b := open(t), newGuest(t), &skill.Brought{}
		p, q := placed(t, s, create(t, s, "p", "x"), "rw"), placed(t, s, create(t, s, "q", "x"), "rw")
		bring(t, s, g, b, 2, p, q)
		b.Restarted()
		bring(t, s, g, b, 1, p, q) // all is there: one look
		if err := os.RemoveAll(g.at("q")); err != nil {
			t.Fatal(err)
		}
		write(t, g.at(".carboy-X"), file{"half", ""})
		text := must2(json.Marshal(b))
		again := &skill.Brought{}
		if err := json.Unmarshal(text, again); err != nil {
			t.Fatal(err)
		}
		bring(t, s, g, again, 3, p, q)
		if exists(g.at(".carboy-X")) || !exists(g.at("q/SKILL.md")) || len(again.Writable()) != 2 {
			t.Error("q was not brought again")
		}
		if err := os.RemoveAll(g.at(".")); err != nil {
			t.Fatal(err)
		}
		again.Restarted()
		_, err := s.Bring(t.Context(), g, again, []skill.Placed{p})
		fails(t, err, sandbox.Unavailable, "has no /workspace/.skills")
	})
	t.Run("a-link-is-left-out-and-said", func(t *testing.T) {
		s, g, b := open(t), newGuest(t), &skill.Brought{}
		k := create(t, s, "k", "x")
		if err := os.Symlink("/etc/shadow", filepath.Join(k.PackageRoot, "shadow")); err != nil {
			t.Fatal(err)
		}
		noted(t, bring(t, s, g, b, 1, placed(t, s, k, "ro")), "links and special files were not brought: shadow")
		if exists(g.at("k/shadow")) {
			t.Error("it was brought")
		}
	})
	t.Run("a-guest-that-breaks-off", func(t *testing.T) {
		s, g, b := open(t), newGuest(t), &skill.Brought{}
		p := placed(t, s, create(t, s, "k", "x"), "rw")
		g.broken = agent.ErrBroken
		_, err := s.Bring(t.Context(), g, b, []skill.Placed{p})
		fails(t, err, sandbox.Unavailable, "did not answer")
		g.broken = nil
		bring(t, s, g, b, 1, p)
	})
}

func TestTakeBack(t *testing.T) {
	setup := func(t *testing.T, mode string) (*skill.Store, *guest, *skill.Brought, skill.Placed, string) {
		t.Helper()
		s, g, b := open(t), newGuest(t), &skill.Brought{}
		k := create(t, s, "k", "x")
		write(t, k.PackageRoot, file{"a/b", "old"}, file{".git/config", "git"}, file{"a/.venv/bin/python", "py"})
		p := placed(t, s, k, mode)
		bring(t, s, g, b, 1, p)
		return s, g, b, p, k.PackageRoot
	}
	t.Run("what-changed-is-taken", func(t *testing.T) {
		s, g, b, p, root := setup(t, "rw")
		write(t, g.at("k"), file{"a/b", "new"}, file{"c", "more"}, file{"__pycache__/x", "cache"}, file{".venv/y", "cache"})
		if err := os.Chmod(g.at("k/c"), 0o4777); err != nil {
			t.Fatal(err)
		}
		got := must2(s.TakeBack(t.Context(), g, b, p))
		if !got.Changed || got.Conflict || len(got.Notices) != 0 {
			t.Errorf("got %+v", got)
		}
		if read(t, root, "a/b") != "new" || read(t, root, "c") != "more" || exists(root, "__pycache__") || exists(root, ".venv") {
			t.Error("it is not as the sandbox has it")
		}
		if read(t, root, ".git/config") != "git" || read(t, root, "a/.venv/bin/python") != "py" {
			t.Error("what the store has of its own is gone")
		}
		if st := must2(os.Stat(filepath.Join(root, "c"))); st.Mode() != 0o755 {
			t.Errorf("got mode %v, want 0755", st.Mode())
		}
		if got := must2(s.TakeBack(t.Context(), g, b, p)); got.Changed || len(got.Notices) > 0 {
			t.Errorf("once more: got %+v", got)
		}
		bring(t, s, g, b, 0, p)
	})
	t.Run("a-read-only-one-never", func(t *testing.T) {
		s, g, b, p, root := setup(t, "ro")
		write(t, g.at("k"), file{"a/b", "new"})
		if got := must2(s.TakeBack(t.Context(), g, b, p)); got.Changed || read(t, root, "a/b") != "old" {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("both-changed", func(t *testing.T) {
		s, g, b, p, root := setup(t, "rw")
		write(t, g.at("k"), file{"a/b", "the sandbox's"})
		must2(s.Write(t.Context(), "k", "a/b", "the store's"))
		got := must2(s.TakeBack(t.Context(), g, b, p))
		if !got.Conflict || got.Changed || read(t, root, "a/b") != "the store's" {
			t.Errorf("got %+v", got)
		}
		noted(t, got.Notices, "k.conflict")
		noted(t, bring(t, s, g, b, 2, p), "the sandbox's at /workspace/.skills/k.conflict")
		if read(t, g.at("k/a/b")) != "the store's" || read(t, g.at("k.conflict/a/b")) != "the sandbox's" {
			t.Error("one of the two is lost")
		}
		bring(t, s, g, b, 0, p)
	})
	t.Run("both-changed-alike", func(t *testing.T) {
		s, g, b, p, _ := setup(t, "rw")
		write(t, g.at("k"), file{"a/b", "same"})
		must2(s.Write(t.Context(), "k", "a/b", "same"))
		if got := must2(s.TakeBack(t.Context(), g, b, p)); got.Changed || got.Conflict {
			t.Errorf("got %+v", got)
		}
		bring(t, s, g, b, 0, p)
	})
	t.Run("one-that-is-gone", func(t *testing.T) {
		s, g, b, p, root := setup(t, "rw")
		if err := os.RemoveAll(g.at("k")); err != nil {
			t.Fatal(err)
		}
		noted(t, must2(s.TakeBack(t.Context(), g, b, p)).Notices, "no longer in the sandbox")
		if !exists(root, "SKILL.md") {
			t.Error("the store's is gone")
		}
		bring(t, s, g, b, 1, p)
		must2(s.Delete(t.Context(), "k"))
		write(t, g.at("k"), file{"a/b", "new"})
		noted(t, must2(s.TakeBack(t.Context(), g, b, p)).Notices, "the store has no package")
	})
}

// BenchmarkUnchanged is what a command pays for a skill that its sandbox has.
func BenchmarkUnchanged(b *testing.B) {
	s, err := skill.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	k, err := s.Create(b.Context(), sessions.SkillInput{Name: "k"}, nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 50 {
		if _, err := s.Write(b.Context(), "k", "f"+strings.Repeat("x", i), "text"); err != nil {
			b.Fatal(err)
		}
	}
	p, _, err := s.Place(request.Mount{HostPath: k.PackageRoot, Target: tools.SkillsPath + "/k"})
	if err != nil {
		b.Fatal(err)
	}
	g := &guest{dir: b.TempDir()}
	if err := os.MkdirAll(g.at("."), 0o755); err != nil {
		b.Fatal(err)
	}
	var brought skill.Brought
	for b.Loop() {
		if _, err := s.Bring(b.Context(), g, &brought, []skill.Placed{p}); err != nil {
			b.Fatal(err)
		}
	}
}
