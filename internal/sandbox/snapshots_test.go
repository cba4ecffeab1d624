package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// saving is a world with snapshots, in which instances may be kept warm.
type saving struct {
	*world
	kept *sandboxtest.Snapshots
	warm sandboxtest.Warmer
}

func newSaving() *saving {
	w := newWorld()
	return &saving{world: w, kept: sandboxtest.NewSnapshots(), warm: sandboxtest.Warmer{Fake: w.fake}}
}

func (w *saving) life(t fataler) *daemon {
	t.Helper()
	return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, Snapshots: w.kept})
}

func (w *saving) wantKept(t fataler, want ...string) {
	t.Helper()
	slices.Sort(want)
	if d := cmp.Diff(want, w.kept.IDs(), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("kept (-want +got):\n%s", d)
	}
}

func (w *saving) check(t fataler) {
	t.Helper()
	w.world.check(t)
	if faults := w.kept.Faults(); len(faults) > 0 {
		t.Errorf("the snapshots were misused: %q", faults)
	}
}

func inSaving(t *testing.T, test func(t *testing.T, w *saving, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newSaving()
		d := w.life(t)
		test(t, w, d)
		d.shutdown()
		w.check(t)
	})
}

func snap(t fataler, d *daemon, ref string) sandbox.Snapshot {
	t.Helper()
	s, err := d.Snapshot(context.Background(), ann, ref)
	if err != nil {
		t.Fatalf("Snapshot of %s: %v", ref, err)
	}
	return s
}

func TestSnapshot(t *testing.T) {
	inSaving(t, func(t *testing.T, w *saving, d *daemon) {
		web := create(t, d, sandbox.Spec{Name: "web"})
		got := snap(t, d, "web")
		want := sandbox.Snapshot{
			ID: got.ID, Owner: ann.Owner, Image: sandbox.DefaultImage, Source: web.ID,
			Size: sandboxtest.SavedSize, CreatedAt: got.CreatedAt,
		}
		if diff := cmp.Diff(want, got); diff != "" || !sandbox.ValidSnapshotID(got.ID) || got.CreatedAt.IsZero() {
			t.Errorf("Snapshot (-want +got):\n%s", diff)
		}
		wantState(t, d, "web", sandbox.StateRunning, "")
		over := create(t, d, sandbox.Spec{Name: "over", Snapshot: got.ID})
		if over.Spec.Snapshot != got.ID || over.Spec.Image != sandbox.DefaultImage {
			t.Errorf("Spec = %+v", over.Spec)
		}
		d.Stop(t.Context(), ann, "over")
		second := snap(t, d, "over")
		if second.Parent != got.ID || second.Source != over.ID {
			t.Errorf("of a stopped one: %+v", second)
		}
		list, err := d.Snapshots(t.Context(), ann)
		if diff := cmp.Diff([]sandbox.Snapshot{got, second}, list, cmpopts.SortSlices(func(a, b sandbox.Snapshot) bool { return a.ID < b.ID })); err != nil || diff != "" {
			t.Errorf("Snapshots = %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestSnapshotIsRefused(t *testing.T) {
	inSaving(t, func(t *testing.T, w *saving, d *daemon) {
		create(t, d, sandbox.Spec{Name: "view", Workspace: cow()})
		view, err := d.Snapshot(t.Context(), ann, "view")
		if err != nil || len(view.Notes) != 1 || !strings.HasPrefix(view.Notes[0], "/workspace was left out, and what was changed in it") {
			t.Errorf("Snapshot of a view of the host = %+v, %v; want a note that it is left out", view, err)
		}
		create(t, d, sandbox.Spec{Name: "web"})
		s := snap(t, d, "web")
		for name, spec := range map[string]sandbox.Spec{
			"another-image": {Snapshot: s.ID, Image: "a@" + digest},
			"no-id":         {Snapshot: "../../etc"},
			"unknown":       {Snapshot: "sn_" + strings.Repeat("a", 20)},
			"a-sandbox":     {Snapshot: get(t, d, "web").ID},
		} {
			want := sandbox.NotFound
			if name == "another-image" {
				want = sandbox.Invalid
			}
			_, err := d.Create(t.Context(), ann, spec, nil)
			wantKind(t, name, err, want)
		}
		bad := sandbox.Spec{Snapshot: "../../etc"}.Normalize(d.Offer())
		wantKind(t, "Validate", bad.Validate(d.Offer()), sandbox.Invalid)
	})
}

// TestSnapshotOfAnother: what is one owner's does not exist for others, unless
// it is shared; then it can be started from, and nothing else.
func TestSnapshotOfAnother(t *testing.T) {
	inSaving(t, func(t *testing.T, _ *saving, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		s := snap(t, d, "web")
		refused := func(what string) {
			t.Helper()
			_, err := d.Snapshot(t.Context(), bob, get(t, d, "web").ID)
			wantKind(t, what+": Snapshot", err, sandbox.NotFound)
			_, err = d.GetSnapshot(t.Context(), bob, s.ID)
			wantKind(t, what+": GetSnapshot", err, sandbox.NotFound)
			_, err = d.ShareSnapshot(t.Context(), bob, s.ID, true)
			wantKind(t, what+": ShareSnapshot", err, sandbox.NotFound)
			wantKind(t, what+": RemoveSnapshot", d.RemoveSnapshot(t.Context(), bob, s.ID), sandbox.NotFound)
			if list, err := d.Snapshots(t.Context(), bob); err != nil || len(list) > 0 {
				t.Errorf("%s: Snapshots = %v, %v", what, list, err)
			}
		}
		refused("at first")
		_, err := d.Create(t.Context(), bob, sandbox.Spec{Snapshot: s.ID}, nil)
		wantKind(t, "Create", err, sandbox.NotFound)

		if _, err := d.ShareSnapshot(t.Context(), ann, s.ID, true); err != nil {
			t.Fatal(err)
		}
		refused("shared")
		sb, err := d.Create(t.Context(), bob, sandbox.Spec{Name: "bobs", Snapshot: s.ID}, nil)
		if err != nil {
			t.Fatalf("Create from a shared one: %v", err)
		}
		if _, err := d.ShareSnapshot(t.Context(), ann, s.ID, false); err != nil {
			t.Fatal(err)
		}
		d.Stop(t.Context(), bob, sb.ID)
		if _, err := d.Start(t.Context(), bob, sb.ID); err != nil {
			t.Errorf("what started from it goes on: %v", err)
		}
		_, err = d.Create(t.Context(), bob, sandbox.Spec{Snapshot: s.ID}, nil)
		wantKind(t, "Create", err, sandbox.NotFound)
		if list, err := d.Snapshots(t.Context(), admin); err != nil || len(list) != 1 {
			t.Errorf("an admin sees %v, %v", list, err)
		}
	})
}

// TestRemoveSnapshot: a removed one is used for nothing new, and its files go
// with the last that lies over it, over the lives of several daemons.
func TestRemoveSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSaving()
		d := w.life(t)
		create(t, d, sandbox.Spec{Name: "web"})
		a := snap(t, d, "web").ID
		create(t, d, sandbox.Spec{Name: "one", Snapshot: a})
		b := snap(t, d, "one").ID
		create(t, d, sandbox.Spec{Name: "two", Snapshot: b})
		for _, id := range []string{a, b} {
			if err := d.RemoveSnapshot(t.Context(), ann, id); err != nil {
				t.Fatal(err)
			}
			_, err := d.Create(t.Context(), ann, sandbox.Spec{Snapshot: id}, nil)
			wantKind(t, "Create from a removed one", err, sandbox.NotFound)
			wantKind(t, "RemoveSnapshot again", d.RemoveSnapshot(t.Context(), ann, id), sandbox.NotFound)
		}
		w.wantKept(t, a, b)
		d.Remove(t.Context(), ann, "one", true)
		w.wantKept(t, a, b)
		d.shutdown()

		d = w.life(t)
		w.wantKept(t, a, b)
		if list, err := d.Snapshots(t.Context(), ann); err != nil || len(list) > 0 {
			t.Errorf("Snapshots = %v, %v", list, err)
		}
		w.kept.SetHook(func(context.Context, sandboxtest.Op, string) error { return errBoom })
		d.Remove(t.Context(), ann, "two", true)
		w.wantKept(t, a, b)
		w.kept.SetHook(nil)
		d.shutdown()

		d = w.life(t) // what could not be deleted
		w.wantKept(t)
		d.shutdown()
		w.check(t)
	})
}

func TestSnapshotChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSaving()
		var list []sandbox.Snapshot
		parent := ""
		for i := range sandbox.MaxSnapshotChain {
			s := sandbox.Snapshot{
				ID:    fmt.Sprintf("sn_%020s", strings.Repeat("a", 18)+string(rune('a'+i/26))+string(rune('a'+i%26))),
				Owner: ann.Owner, Image: sandbox.DefaultImage, Parent: parent,
			}
			list, parent = append(list, s), s.ID
		}
		w.kept = sandboxtest.NewSnapshots(list...)
		d := w.life(t)
		create(t, d, sandbox.Spec{Name: "last-but-one", Snapshot: list[len(list)-2].ID})
		snap(t, d, "last-but-one")
		create(t, d, sandbox.Spec{Name: "last", Snapshot: parent})
		_, err := d.Snapshot(t.Context(), ann, "last")
		wantKind(t, "Snapshot", err, sandbox.Exhausted)
		d.shutdown()
		w.check(t)
	})
}

// TestSnapshotKeepsItsImage: the image below a snapshot is in use.
func TestSnapshotKeepsItsImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSaving()
		opts := w.withImages(&shelf{images: []string{digestOf("1")}})
		opts.Snapshots = w.kept
		d := w.bootWith(t, opts)
		create(t, d, sandbox.Spec{Name: "web", Image: "one@" + digestOf("1")})
		s := snap(t, d, "web")
		d.Remove(t.Context(), ann, "web", true)
		wantImages(t, d, digestOf("1"))
		if sb := create(t, d, sandbox.Spec{Name: "over", Snapshot: s.ID}); sb.Spec.Image != "one@"+digestOf("1") {
			t.Errorf("image = %s", sb.Spec.Image)
		}
		d.Remove(t.Context(), ann, "over", true)
		if err := d.RemoveSnapshot(t.Context(), ann, s.ID); err != nil {
			t.Fatal(err)
		}
		wantImages(t, d)
		d.shutdown()
		w.check(t)
	})
}

// TestSnapshotFails: of one that fails nothing is left, and the sandbox is
// what it was.
func TestSnapshotFails(t *testing.T) {
	for _, op := range []sandboxtest.Op{sandboxtest.Save, sandboxtest.SnapshotKeep} {
		t.Run(string(op), func(t *testing.T) {
			inSaving(t, func(t *testing.T, w *saving, d *daemon) {
				create(t, d, sandbox.Spec{Name: "web"})
				full := sandbox.Errorf(sandbox.Exhausted, "full")
				hook := func(_ context.Context, at sandboxtest.Op, _ string) error {
					if at == op {
						return full
					}
					return nil
				}
				w.fake.SetHook(hook)
				w.kept.SetHook(hook)
				_, err := d.Snapshot(t.Context(), ann, "web")
				wantKind(t, "Snapshot", err, sandbox.Exhausted)
				w.wantKept(t)
				wantState(t, d, "web", sandbox.StateRunning, "")
				w.fake.SetHook(nil)
				w.kept.SetHook(nil)
				snap(t, d, "web")
			})
		})
	}
}

// TestSnapshotIsInterrupted: by its caller, and by the end of the daemon. A
// stop meanwhile waits for it.
func TestSnapshotIsInterrupted(t *testing.T) {
	inSaving(t, func(t *testing.T, w *saving, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		go1 := make(chan struct{})
		w.fake.SetHook(func(ctx context.Context, op sandboxtest.Op, _ string) error {
			if op != sandboxtest.Save {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-go1:
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Snapshot(ctx, ann, "web")
		wantKind(t, "Snapshot by one who left", err, sandbox.Unavailable)
		w.wantKept(t)
		var wg sync.WaitGroup
		wg.Go(func() { snap(t, d, "web") })
		synctest.Wait()
		wg.Go(func() {
			if _, err := d.Stop(t.Context(), ann, "web"); err != nil {
				t.Errorf("Stop: %v", err)
			}
		})
		synctest.Wait()
		wantState(t, d, "web", sandbox.StateRunning, "")
		close(go1)
		wg.Wait()
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndStopped)
	})
}

// TestWarmSnapshot: instances over a snapshot are kept warm by demand, are of a
// kind of their own, and go with it.
func TestWarmSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSaving()
		d := w.bootWith(t, sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{w.warm}, Snapshots: w.kept, Pool: sandbox.Pool{Size: 1},
		})
		create(t, d, sandbox.Spec{Name: "web"})
		pass(time.Minute)
		s := snap(t, d, "web")
		create(t, d, sandbox.Spec{Name: "over", Snapshot: s.ID})
		pass(time.Minute)
		var ids []string
		for _, id := range w.warm.Warmed() {
			if w.warm.WarmedWith(id).Snapshot == s.ID {
				ids = append(ids, id)
			}
		}
		if len(ids) != 1 {
			t.Fatalf("%d instances are warm over the snapshot, want 1", len(ids))
		}
		if plain := create(t, d, sandbox.Spec{Name: "plain"}); plain.ID == ids[0] {
			t.Error("an instance over a snapshot became a plain one")
		}
		if again := create(t, d, sandbox.Spec{Name: "again", Snapshot: s.ID}); again.ID != ids[0] {
			t.Error("the warm instance was not claimed")
		}
		pass(time.Minute)
		d.Remove(t.Context(), ann, "over", true)
		d.Remove(t.Context(), ann, "again", true)
		if err := d.RemoveSnapshot(t.Context(), ann, s.ID); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		w.wantKept(t)
		d.shutdown()
		w.check(t)
	})
}

func TestNoSnapshots(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		_, err := d.Snapshot(t.Context(), ann, "web")
		wantKind(t, "Snapshot", err, sandbox.Unsupported)
		_, err = d.Create(t.Context(), ann, sandbox.Spec{Snapshot: "sn_" + strings.Repeat("a", 20)}, nil)
		wantKind(t, "Create", err, sandbox.Unsupported)
	})
}

// TestSnapshotRecordFails: what could not be written down is not heeded.
func TestSnapshotRecordFails(t *testing.T) {
	inSaving(t, func(t *testing.T, w *saving, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		s := snap(t, d, "web")
		w.kept.SetHook(func(context.Context, sandboxtest.Op, string) error { return errors.New("boom") })
		wantKind(t, "RemoveSnapshot", d.RemoveSnapshot(t.Context(), ann, s.ID), sandbox.Internal)
		w.kept.SetHook(nil)
		create(t, d, sandbox.Spec{Snapshot: s.ID})
	})
}

// An owner keeps no more snapshots than its quota has, however many are made
// at once; one that is removed makes room.
func TestQuotaOfSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSaving()
		d := w.bootWith(t, sandbox.Options{
			Store: &w.store, Backends: []sandbox.Backend{w.fake}, Snapshots: w.kept,
			Quotas: &rules{quota: sandbox.Quota{Snapshots: 3}, creates: -1},
		})
		for i := range 6 {
			create(t, d, sandbox.Spec{Name: fmt.Sprintf("web-%d", i)})
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		kinds := map[sandbox.Kind]int{}
		for i := range 6 {
			all.Go(func() {
				_, err := d.Snapshot(context.Background(), ann, fmt.Sprintf("web-%d", i))
				mu.Lock()
				defer mu.Unlock()
				kinds[sandbox.KindOf(err)]++
			})
		}
		all.Wait()
		if kinds[sandbox.Exhausted] != 3 || len(w.kept.IDs()) != 3 {
			t.Errorf("%v, kept %v", kinds, w.kept.IDs())
		}
		if err := d.RemoveSnapshot(context.Background(), ann, w.kept.IDs()[0]); err != nil {
			t.Fatal(err)
		}
		snap(t, d, "web-0")
		d.shutdown()
		w.check(t)
	})
}
