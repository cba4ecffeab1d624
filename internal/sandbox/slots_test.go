package sandbox_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// cacheOf is a sandbox that shows a volume as a cache.
func cacheOf(name string) sandbox.Spec {
	return sandbox.Spec{Name: name, Mounts: []sandbox.Mount{{Volume: volume1, Target: "/mnt/cache", Cache: true}}}
}

func (d *daemon) slot(t *testing.T, name string) int {
	t.Helper()
	sb, err := d.Get(t.Context(), ann, name)
	if err != nil {
		t.Fatal(err)
	}
	return sb.Spec.Mounts[0].Slot
}

// TestSlots: no two sandboxes that run, or are suspended, have one slot of a cache,
// and what has ended leaves its own to the next.
func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		opts := sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{sandboxtest.Suspender{Fake: w.fake}}, Volumes: cellar{volume1},
		}
		d := w.bootWith(t, opts)
		want := func(what string, want map[string]int) {
			t.Helper()
			got := map[string]int{}
			for name := range want {
				got[name] = d.slot(t, name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: slots (-want +got):\n%s", what, diff)
			}
		}
		must := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			wg.Go(func() { create(t, d, cacheOf(name)) })
		}
		wg.Wait()
		if a, b, c := d.slot(t, "a"), d.slot(t, "b"), d.slot(t, "c"); a+b+c != 6 || a*b*c != 6 {
			t.Errorf("three at once have the slots %d, %d and %d", a, b, c)
		}
		for _, name := range []string{"a", "b", "c"} {
			must(d.Stop(t.Context(), ann, name))
		}
		for _, name := range []string{"b", "c"} {
			must(d.Start(t.Context(), ann, name))
		}
		want("started in another order", map[string]int{"b": 1, "c": 2})

		_, _, err := d.Pause(t.Context(), ann, "b", true)
		must(nil, err)
		create(t, d, cacheOf("d"))
		want("beside one that is suspended", map[string]int{"b": 1, "d": 3})
		must(d.Stop(t.Context(), ann, "c"))

		d.shutdown()
		d = w.bootWith(t, opts)
		create(t, d, cacheOf("e"))
		must(d.Start(t.Context(), ann, "b"))
		want("after another daemon came", map[string]int{"b": 1, "d": 3, "e": 2})
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			must(nil, d.Remove(t.Context(), ann, name, true))
		}
		d.shutdown()
		w.check(t)
	})
}

func TestSlotsAreCachesAlone(t *testing.T) {
	for name, m := range map[string]sandbox.Mount{
		"without-a-volume": {Source: sandbox.HostDir{Path: "/srv/x", Dev: 1, Ino: 2}, Cache: true},
		"of-no-cache":      {Volume: volume1, Slot: 1},
		"below-zero":       {Volume: volume1, Cache: true, Slot: -1},
	} {
		m.Target = "/mnt/x"
		spec := sandbox.Spec{Mounts: []sandbox.Mount{m}}
		offer := sandbox.Offer{Walls: []string{sandbox.WallGVisor}, Volumes: true}
		wantKind(t, name, spec.Normalize(offer).Validate(offer), sandbox.Invalid)
	}
}

// TestSame: a directory is known again by what no one can give another one.
func TestSame(t *testing.T) {
	dir := sandbox.HostDir{Path: "/srv/a", Dev: 1, Ino: 2, Born: 3}
	old := sandbox.HostDir{Path: "/srv/a", Dev: 1, Ino: 2}
	tests := []struct {
		name string
		a, b sandbox.HostDir
		want bool
	}{
		{"itself", dir, dir, true},
		{"moved", dir, sandbox.HostDir{Path: "/srv/b", Dev: 1, Ino: 2, Born: 3}, true},
		{"other-device-after-a-boot", dir, sandbox.HostDir{Path: "/srv/a", Dev: 9, Ino: 2, Born: 3}, true},
		{"other-owner", dir, sandbox.HostDir{Path: "/srv/a", Dev: 1, Ino: 2, Born: 3, UID: 7}, true},
		{"elsewhere-on-another-device", dir, sandbox.HostDir{Path: "/srv/b", Dev: 9, Ino: 2, Born: 3}, false},
		{"made-anew-with-its-inode", dir, sandbox.HostDir{Path: "/srv/a", Dev: 1, Ino: 2, Born: 4}, false},
		{"another-at-its-path", dir, sandbox.HostDir{Path: "/srv/a", Dev: 1, Ino: 4, Born: 3}, false},
		{"without-birth", old, old, true},
		{"without-birth-moved", old, sandbox.HostDir{Path: "/srv/b", Dev: 1, Ino: 2}, false},
		{"without-birth-other-device", old, sandbox.HostDir{Path: "/srv/a", Dev: 9, Ino: 2}, false},
		{"none", sandbox.HostDir{}, sandbox.HostDir{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.a.Same(tt.b); got != tt.want {
				t.Errorf("Same = %t, want %t", got, tt.want)
			}
		})
	}
}

// TestHomeSlots: a sandbox that is started again has the home that it had, or does not
// start while another has it; a new one has the first that is free.
func TestHomeSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, Volumes: cellar{volume1}})
		homeOf := func(name string) sandbox.Spec {
			spec := cacheOf(name)
			spec.Mounts[0].Home, spec.Mounts[0].Sub = "claude", ".claude"
			other := spec.Mounts[0]
			other.Target, other.Sub = "/mnt/other", "other"
			spec.Mounts = append(spec.Mounts, other)
			return spec
		}
		create(t, d, homeOf("a"))
		create(t, d, homeOf("b"))
		for _, name := range []string{"a", "b"} {
			if _, err := d.Stop(t.Context(), ann, name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := d.Start(t.Context(), ann, "b"); err != nil || d.slot(t, "b") != 2 {
			t.Errorf("b has the slot %d, %v", d.slot(t, "b"), err)
		}
		create(t, d, homeOf("c"))
		if d.slot(t, "c") != 1 {
			t.Errorf("c has the slot %d", d.slot(t, "c"))
		}
		if sb, err := d.Get(t.Context(), ann, "c"); err != nil || sb.Spec.Mounts[1].Slot != 1 {
			t.Errorf("one home has two slots: %+v, %v", sb, err)
		}
		_, err := d.Start(t.Context(), ann, "a")
		if sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "c") {
			t.Errorf("while another has its home: %v", err)
		}
		if _, err := d.Stop(t.Context(), ann, "c"); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Start(t.Context(), ann, "a"); err != nil || d.slot(t, "a") != 1 {
			t.Errorf("a has the slot %d, %v", d.slot(t, "a"), err)
		}
		for _, name := range []string{"a", "b", "c"} {
			if err := d.Remove(t.Context(), ann, name, true); err != nil {
				t.Fatal(err)
			}
		}
		d.shutdown()
	})
}
