package volume_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// TestCache: a directory has one cache for each owner, made once, found again by
// another service and at another path, and no other directory has it.
func TestCache(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	dir := sandbox.HostDir{Path: "/srv/My Pröject", Dev: 1, Ino: 2, Born: 3, UID: 1}
	get := func(c sandbox.Caller, dir sandbox.HostDir) volume.Volume {
		t.Helper()
		v, err := s.Cache(t.Context(), c, dir)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { get(ann, dir) })
	}
	wg.Wait()
	v := get(ann, dir)
	if list := s.List(t.Context(), ann); len(list) != 1 || list[0] != v {
		t.Fatalf("eight who ask at once make %+v", list)
	}
	if v.Cache != dir || v.Size != 32<<20 || v.Name[:len("cache-My-Pr-ject-")] != "cache-My-Pr-ject-" {
		t.Errorf("made %+v", v)
	}
	for what, other := range map[string]volume.Volume{
		"another's":                get(bob, dir),
		"another directory's":      get(ann, sandbox.HostDir{Path: "/srv/other", Dev: 1, Ino: 4, Born: 3}),
		"one's of the same number": get(ann, sandbox.HostDir{Path: dir.Path, Dev: 1, Ino: 2, Born: 9}),
	} {
		if other.ID == v.ID {
			t.Errorf("%s cache is this one's", what)
		}
	}
	_, err := s.Cache(t.Context(), ann, sandbox.HostDir{Path: "/srv/fourth", Dev: 1, Ino: 5})
	wantKind(t, "more than an owner may have", err, sandbox.Exhausted)

	moved := dir
	moved.Path = "/srv/moved"
	s.Close()
	s = w.open(t)
	if got := get(ann, moved); got.ID != v.ID || got.Cache.Path != moved.Path {
		t.Errorf("moved: %+v, want %s", got, v.ID)
	}
	s.Close()
	s = w.open(t)
	if got, err := s.Get(t.Context(), ann, v.ID); err != nil || got.Cache != moved {
		t.Errorf("read again: %+v, %v", got, err)
	}
	_, err = s.Cache(t.Context(), ann, sandbox.HostDir{})
	wantKind(t, "no directory", err, sandbox.Denied)
}

// TestHome: each program has a home of its own for a directory, which is no cache of it.
func TestHome(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	dir := sandbox.HostDir{Path: "/srv/repo", Dev: 1, Ino: 2, Born: 3, UID: 1}
	claude, err := s.Home(t.Context(), ann, dir, "claude")
	if err != nil || claude.Home != "claude" || claude.Name[:len("home-claude-repo-")] != "home-claude-repo-" {
		t.Fatalf("made %+v, %v", claude, err)
	}
	cache, err := s.Cache(t.Context(), ann, dir)
	if err != nil || cache.ID == claude.ID {
		t.Errorf("the cache is %+v, %v", cache, err)
	}
	codex, err := s.Home(t.Context(), ann, dir, "codex")
	if err != nil || codex.ID == claude.ID {
		t.Errorf("another program has %+v, %v", codex, err)
	}
	s.Close()
	s = w.open(t)
	if again, err := s.Home(t.Context(), ann, dir, "claude"); err != nil || again.ID != claude.ID {
		t.Errorf("found again: %+v, %v", again, err)
	}
	for _, name := range []string{"", "a/b", "..", "a b", strings.Repeat("x", 33)} {
		_, err := s.Home(t.Context(), ann, dir, name)
		wantKind(t, name, err, sandbox.Invalid)
	}
}

// TestDiscard: what was made for one sandbox alone can be taken back, and nothing that
// anybody else may have used: not by one who asked before or after, nor across a restart.
func TestDiscard(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	home := func(ino uint64) volume.Volume {
		t.Helper()
		v, err := s.Home(t.Context(), ann, sandbox.HostDir{Path: "/srv/a", Dev: 1, Ino: ino, Born: 3}, "claude")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	fresh := home(1)
	wantKind(t, "another's", s.Discard(t.Context(), bob, fresh.ID), sandbox.NotFound)
	if err := s.Discard(t.Context(), ann, fresh.Name); err != nil {
		t.Fatal(err)
	}
	if list := s.List(t.Context(), ann); len(list) != 0 {
		t.Errorf("left: %+v", list)
	}
	wantKind(t, "twice", s.Discard(t.Context(), ann, fresh.ID), sandbox.NotFound)

	asked := home(2)
	home(2)
	wantKind(t, "one that was asked for again", s.Discard(t.Context(), ann, asked.ID), sandbox.Conflict)
	plain, err := s.Create(t.Context(), ann, volume.New{Name: "data"})
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, "one that is no cache", s.Discard(t.Context(), ann, plain.ID), sandbox.Conflict)
	s.Close()
	s = w.open(t)
	if home(2).ID != asked.ID {
		t.Error("it was not found again")
	}
	wantKind(t, "one of an earlier service", s.Discard(t.Context(), ann, asked.ID), sandbox.Conflict)
}
