package sandbox_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// TestAccessList: whatever was locked and unlocked in whatever order, at each path the last word about it or what is around it
// holds, and a list says nothing twice.
func TestAccessList(t *testing.T) {
	paths := []string{".", "a", "a/b", "a/b/c", "a-b", "a/c", "b"}
	in := func(p, dir string) bool { return dir == "." || p == dir || strings.HasPrefix(p, dir+"/") }
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var l sandbox.AccessList
		is := map[string]bool{}
		for range rng.IntN(12) {
			dir, readOnly := paths[rng.IntN(len(paths))], rng.IntN(2) == 0
			before := slices.Clone(l)
			next := l.With(dir, readOnly)
			if !slices.Equal(before, l) {
				t.Fatalf("%v became %v", before, l)
			}
			l = next
			for _, p := range paths {
				if in(p, dir) {
					is[p] = readOnly
				}
			}
		}
		for i, a := range l {
			if l[:i].ReadOnly(a.Path) == a.ReadOnly {
				t.Errorf("%v says nothing by its %v", l, a)
			}
		}
		for _, p := range paths {
			if l.ReadOnly(p) != is[p] {
				t.Errorf("%v: %s is read-only: %t, want %t", l, p, !is[p], is[p])
			}
		}
		b, err := json.Marshal(l)
		var again sandbox.AccessList
		if err := json.Unmarshal(b, &again); err != nil || !slices.Equal(l, again) {
			t.Errorf("%s is %v, %v", b, again, err)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestAccessOfOlder: a record that knew no directories is read.
func TestAccessOfOlder(t *testing.T) {
	for text, want := range map[string]sandbox.AccessList{"true": {{Path: ".", ReadOnly: true}}, "false": nil, "null": nil} {
		var got sandbox.AccessList
		if err := json.Unmarshal([]byte(text), &got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	var got sandbox.AccessList
	if err := json.Unmarshal([]byte(`"x"`), &got); err == nil {
		t.Errorf("nonsense is %v", got)
	}
}

// TestLockPaths: what of a workspace a user may name, and how it is shown.
func TestLockPaths(t *testing.T) {
	inLockBubble(t, func(t *testing.T, d *daemon, l sandboxtest.Locker, _ func() *daemon) {
		sb := create(t, d, shared("web"))
		change := func(readOnly bool, paths ...string) error {
			_, _, err := d.LockWorkspace(t.Context(), ann, "web", sandbox.LockChange{ReadOnly: readOnly, Paths: paths})
			return err
		}
		for _, step := range []struct {
			readOnly bool
			paths    []string
			want     string
		}{
			{true, []string{"src", "/workspace/docs/", "./src/../other"}, "docs, other, src"},
			{false, []string{"other"}, "docs, src"},
			{true, []string{"/workspace"}, "all"},
			{false, []string{"src"}, "all, not src"},
			{true, []string{"src/x"}, "all, not src, src/x"},
			{false, nil, ""},
		} {
			if err := change(step.readOnly, step.paths...); err != nil {
				t.Fatal(err)
			}
			if got := get(t, d, "web").Access; got.String() != step.want || !slices.Equal(got, l.Locked(sb.ID)) {
				t.Errorf("%v: %q, the instance %q, want %q", step.paths, got, l.Locked(sb.ID), step.want)
			}
		}
		for _, bad := range []string{"", "..", "../etc", "a/../../b", "/etc", "/workspacex", "a\x00b"} {
			if err := change(true, "fine", bad); sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("%q: %v", bad, err)
			}
		}
		many := make([]string, 65)
		for i := range many {
			many[i] = strings.Repeat("d", i+1)
		}
		if err := change(true, many...); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("65 directories: %v", err)
		}
		if got := get(t, d, "web").Access; got != nil || l.Locked(sb.ID) != nil {
			t.Errorf("what was refused changed %v, %v", got, l.Locked(sb.ID))
		}
	})
}

// TestAccessListLocks: only what becomes read-only counts.
func TestAccessListLocks(t *testing.T) {
	var none sandbox.AccessList
	all, src := none.With(".", true), none.With("src", true)
	for _, tt := range []struct {
		name    string
		is, was sandbox.AccessList
		want    bool
	}{
		{"nothing", none, none, false},
		{"the same", src, src, false},
		{"some", src, none, true},
		{"all", all, none, true},
		{"the rest", all, src, true},
		{"less", src, all, false},
		{"given back", none, src, false},
		{"another", none.With("docs", true), src, true},
		{"a part of it", all.With("src", false).With("src/x", true), all.With("src", false), true},
		{"less of a part", all.With("src", false), all.With("src", false).With("src/x", true), false},
	} {
		if got := tt.is.Locks(tt.was); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
