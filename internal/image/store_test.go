package image_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/image/layer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestFind(t *testing.T) {
	w := newWorld(t)
	d1 := w.push("app", "1", build(tree{"a": "1"}))
	d2 := w.push("app", "2", build(tree{"a": "2"}))
	w.mustPull(me, "app:1")
	w.mustPull(me, "app:2")
	w.mustPull("uid:2", "app:2")
	tests := []struct {
		name, owner, ref, want string
		kind                   sandbox.Kind
	}{
		{"name", me, w.ref("app:1"), d1, ""},
		{"name-and-digest", me, w.ref("app@" + d2), d2, ""},
		{"tag-and-digest", me, w.ref("app:7@" + d2), d2, ""},
		{"digest", me, d1, d1, ""},
		{"twelve-digits", me, d1[7:19], d1, ""},
		{"prefix", me, d1[:20], d1, ""},
		{"eleven-digits", me, d1[7:18], "", sandbox.NotFound},
		{"other-tag", me, w.ref("app:3"), "", sandbox.NotFound},
		{"other-repository", me, w.ref("b@" + d1), "", sandbox.NotFound},
		{"others-name", "uid:2", w.ref("app:1"), "", sandbox.NotFound},
		{"others-digest", "uid:2", d1, "", sandbox.NotFound},
		{"others-name-and-digest", "uid:2", w.ref("app@" + d1), "", sandbox.NotFound},
		{"own-of-the-same", "uid:2", w.ref("app:2"), d2, ""},
		{"nobody", "", w.ref("app:1"), "", sandbox.Invalid},
		{"nonsense", me, "../x", "", sandbox.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img, err := w.Find(t.Context(), tt.owner, tt.ref)
			if img.Digest != tt.want || sandbox.KindOf(err) != tt.kind {
				t.Errorf("Find = %+v, %v, want %q %q", img, err, tt.want, tt.kind)
			}
			if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.NotFound && e.Hint != "carboy image pull "+tt.ref {
				t.Errorf("hint = %q", e.Hint)
			}
		})
	}
	if img, err := w.ByDigest(t.Context(), d1); err != nil || img.Digest != d1 || len(img.Layers) != 1 {
		t.Errorf("ByDigest = %+v, %v", img, err)
	}
	_, err := w.ByDigest(t.Context(), digest(nil))
	wantError(t, err, sandbox.NotFound, "not found")
	_, err = w.ByDigest(t.Context(), "../../names/x")
	wantError(t, err, sandbox.Invalid, "not sha256:")
	for owner, want := range map[string][]string{me: {"app:1", "app:2"}, "uid:2": {"app:2"}, "": {"app:1", "app:2", "app:2"}, "uid:3": nil} {
		imgs, err := w.List(t.Context(), owner)
		var got []string
		for _, i := range imgs {
			got = append(got, strings.TrimPrefix(i.Name, w.host+"/"))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("List(%q) = %q, %v, want %q", owner, got, err, want)
		}
	}
}

// Nobody is given a layer for knowing its digests: he has to have its bytes.
func TestKnowingADigestIsNotHavingTheLayer(t *testing.T) {
	w := newWorld(t)
	b := build(tree{"secret": "of uid:1000"})
	w.push("private", "1", b)
	w.mustPull(me, "private:1")
	thief := build(tree{"secret": "of uid:1000"})
	thief.blobs = nil // all the names, and nothing else
	w.push("theft", "1", thief)
	w.on(func(rw http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/theft/blobs/"+digest(b.blobs[0])) {
			rw.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	_, err := w.Pull(t.Context(), "uid:2", w.ref("theft:1"), nil, nil)
	wantError(t, err, sandbox.NotFound, "no such image or blob")
	_, err = w.Pull(t.Context(), me, w.ref("theft:1"), nil, nil) // he has it
	if err != nil {
		t.Error(err)
	}
	img, err := w.Pull(t.Context(), "uid:2", w.ref("private:1"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := w.Find(t.Context(), me, w.ref("private:1"))
	if err != nil || !cmp.Equal(img.Layers, mine.Layers) {
		t.Errorf("layers %q and %q are not shared, %v", img.Layers, mine.Layers, err)
	}
}

func TestTwoPullsAtOnce(t *testing.T) {
	var unpacked, most, now int
	var mu sync.Mutex
	gate := make(chan struct{})
	w := newWorld(t, func(o *image.Options) {
		o.Unpack = func(ctx context.Context, r io.Reader, dir string, below []string) (layer.Result, error) {
			mu.Lock()
			unpacked++
			now++
			most = max(most, now)
			mu.Unlock()
			<-gate
			defer func() { mu.Lock(); now--; mu.Unlock() }()
			return layer.Unpack(ctx, r, dir, layer.Options{Below: below})
		}
	})
	var trees []tree
	for i := range 8 {
		trees = append(trees, tree{fmt.Sprint(i): noise(1000 + i)})
	}
	b := build(trees...)
	w.push("app", "1", b)
	w.requests("")
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		wg.Go(func() { _, errs[i] = w.Pull(t.Context(), me, w.ref("app:1"), nil, nil) })
	}
	for range 8 {
		gate <- struct{}{}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	got := w.requests("/blobs/")
	blobs := 0
	for _, l := range b.blobs {
		for _, r := range got {
			if strings.Contains(r, digest(l)) {
				blobs++
			}
		}
	}
	if unpacked != 8 || blobs != 8 {
		t.Errorf("%d unpacked of %d fetched, want 8: each layer once", unpacked, blobs)
	}
	if most > 6 {
		t.Errorf("%d layers at once, want at most 3 for each pull", most)
	}
}

// Who waits for another's work does not fail with it.
func TestTheOtherPullIsCancelled(t *testing.T) {
	entered, release := make(chan struct{}, 9), make(chan struct{})
	first := true
	var mu sync.Mutex
	w := newWorld(t, func(o *image.Options) {
		o.Unpack = func(ctx context.Context, r io.Reader, dir string, below []string) (layer.Result, error) {
			mu.Lock()
			f := first
			first = false
			mu.Unlock()
			if f {
				entered <- struct{}{}
				<-release
				return layer.Result{}, context.Cause(ctx)
			}
			return layer.Unpack(ctx, r, dir, layer.Options{Below: below})
		}
	})
	w.push("app", "1", build(tree{"a": "1"}))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var one, two error
	wg.Go(func() { _, one = w.Pull(ctx, me, w.ref("app:1"), nil, nil) })
	<-entered
	waiting := make(chan struct{})
	wg.Go(func() {
		_, two = w.Pull(t.Context(), me, w.ref("app:1"), nil, func(p image.Progress) {
			if p.Phase == image.PhaseResolve {
				close(waiting)
			}
		})
	})
	<-waiting
	cancel()
	close(release)
	wg.Wait()
	if !errors.Is(one, context.Canceled) || two != nil {
		t.Errorf("Pull = %v and %v, want the first cancelled alone", one, two)
	}
}

func TestTooManyJobs(t *testing.T) {
	w := newWorld(t)
	r, pw := io.Pipe()
	var wg sync.WaitGroup
	started := make(chan struct{}, 16)
	for range 16 {
		wg.Go(func() {
			_, _ = w.Import(t.Context(), me, "a:1", &first{r, started, false}, nil)
		})
	}
	for range 16 {
		<-started
	}
	_, err := w.Pull(t.Context(), me, w.ref("app:1"), nil, nil)
	wantError(t, err, sandbox.Exhausted, "16 pulls and imports")
	pw.Close()
	wg.Wait()
	_, err = w.Pull(t.Context(), me, w.ref("app:1"), nil, nil)
	wantError(t, err, sandbox.NotFound, "")
}

// first says when it is read for the first time.
type first struct {
	io.Reader
	started chan struct{}
	said    bool
}

func (f *first) Read(p []byte) (int, error) {
	if !f.said {
		f.said = true
		f.started <- struct{}{}
	}
	return f.Reader.Read(p)
}

func TestGC(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(o *image.Options) { o.Now = func() time.Time { return now } })
	d1 := w.push("app", "1", build(tree{"common": "x"}, tree{"one": "12345"}))
	d2 := w.push("app", "2", build(tree{"common": "x"}, tree{"two": "2"}))
	w.mustPull(me, "app:1")
	w.mustPull("uid:2", "app:1")
	w.mustPull(me, "app:2")
	gc := func(inUse ...string) []string {
		t.Helper()
		removed, _, err := w.GC(t.Context(), inUse)
		if err != nil {
			t.Fatal(err)
		}
		return removed
	}
	must(w.Remove(t.Context(), me, w.ref("app:1")))
	if e, ok := errors.AsType[*sandbox.Error](w.Remove(t.Context(), me, w.ref("app:1"))); !ok || e.Kind != sandbox.NotFound || e.Hint != "carboy image ls" {
		t.Errorf("Remove of what is gone = %+v, want it not found, and where to look", e)
	}
	if got := gc(); len(got) > 0 {
		t.Errorf("GC removed %q, which another owner names", got)
	}
	must(w.Remove(t.Context(), "uid:2", d1[:19]))
	if got := gc(d1); len(got) > 0 {
		t.Errorf("GC removed %q, which is in use", got)
	}
	if img, err := w.ByDigest(t.Context(), d1); err != nil || files(t, img)["one"] != "12345" {
		t.Errorf("ByDigest = %v of what is in use", err)
	}
	removed, bytes, err := w.GC(t.Context(), nil)
	if err != nil || !slices.Equal(removed, []string{d1}) || bytes != 5 {
		t.Errorf("GC = %q, %d, %v, want the one image and its own layer", removed, bytes, err)
	}
	if left := w.left("layers"); len(left) != 2 {
		t.Errorf("layers left: %q", left)
	}
	if img, err := w.Find(t.Context(), me, d2); err != nil || files(t, img)["two"] != "2" {
		t.Errorf("Find = %v of what is still named", err)
	}
	err = w.Remove(t.Context(), me, w.ref("app:1"))
	wantError(t, err, sandbox.NotFound, "not found")

	for name, age := range map[string]time.Duration{"old": 8 * 24 * time.Hour, "new": 6 * 24 * time.Hour} {
		p := filepath.Join(w.dir, "partial", name)
		must(os.WriteFile(p, nil, 0o600))
		must(os.Chtimes(p, now.Add(-age), now.Add(-age)))
	}
	gc()
	if left := w.left("partial"); !slices.Equal(left, []string{"new"}) {
		t.Errorf("partial files left: %q", left)
	}
	must(os.WriteFile(filepath.Join(w.dir, "manifests", strings.TrimPrefix(d2, "sha256:")+".json"), []byte("{"), 0o600))
	if _, _, err := w.GC(t.Context(), nil); err == nil || len(w.left("layers")) != 2 {
		t.Errorf("GC = %v with a damaged record, layers %q", err, w.left("layers"))
	}
}

// What a pull has made and not named yet stays.
func TestGCDuringAPull(t *testing.T) {
	var w *world
	steps := map[string]bool{}
	w = newWorld(t, func(o *image.Options) {
		o.Step = func(name string) error {
			if strings.HasPrefix(name, "gc-") {
				return fmt.Errorf("GC got to %s", name)
			}
			if !steps[name] {
				steps[name] = true
				_, _, err := w.GC(context.Background(), nil)
				return err
			}
			return nil
		}
	})
	w.push("app", "1", build(tree{"a": "1"}))
	if img := w.mustPull(me, "app:1"); files(t, img)["a"] != "1" {
		t.Error("the file is gone")
	}
	if _, err := w.Import(t.Context(), me, "root:1", strings.NewReader(string(tree{"b": "1"}.tar())), nil); err != nil {
		t.Error(err)
	}
	if len(steps) != 7 {
		t.Errorf("steps: %v", steps)
	}
}

// steps are those of a pull, in order.
var steps = []string{"layer-record", "layer-record-rename", "layer-rename", "manifest", "manifest-rename", "name", "name-rename"}

// However far a pull got, what is there is whole, and the next one ends it.
func TestAStepFails(t *testing.T) {
	boom := errors.New("boom")
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			fail := true
			w := newWorld(t, func(o *image.Options) {
				o.Step = func(name string) error {
					if fail && name == step {
						return boom
					}
					return nil
				}
			})
			w.push("app", "1", build(tree{"a": "1"}))
			if _, err := w.Pull(t.Context(), me, w.ref("app:1"), nil, nil); !errors.Is(err, boom) {
				t.Fatalf("Pull = %v, want %v", err, boom)
			}
			fail = false
			w.afterCrash()
		})
	}
}

// afterCrash holds what is true however a pull of app:1 ended.
func (w *world) afterCrash() {
	w.t.Helper()
	if imgs, err := w.List(w.t.Context(), ""); err != nil || len(imgs) > 0 {
		w.t.Errorf("List = %v, %v", imgs, err)
	}
	if left := w.leftovers(); len(left) > 0 {
		w.t.Errorf("left in tmp: %q", left)
	}
	if img := w.mustPull(me, "app:1"); files(w.t, img)["a"] != "1" {
		w.t.Error("the file is gone")
	}
	must(w.Remove(w.t.Context(), me, w.ref("app:1")))
	if _, _, err := w.GC(w.t.Context(), nil); err != nil {
		w.t.Error(err)
	}
	for _, sub := range []string{"layers", "manifests", "partial"} {
		if left := w.left(sub); len(left) > 0 {
			w.t.Errorf("%s holds %q in the end", sub, left)
		}
	}
	if left := w.leftovers(); len(left) > 0 {
		w.t.Errorf("tmp holds %q in the end", left)
	}
}

// The same with kill -9, in a process of its own.
func TestKilled(t *testing.T) {
	const role = "CARBOY_TEST_IMAGE_KILL"
	if v := os.Getenv(role); v != "" {
		parts := strings.Split(v, ",")
		s, err := image.Open(parts[0], image.Options{Step: func(name string) error {
			if name == parts[2] {
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
			return nil
		}})
		must(err)
		_, err = s.Pull(t.Context(), me, parts[1], nil, nil)
		t.Fatal("not killed:", err)
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			w := newWorld(t)
			w.push("app", "1", build(tree{"a": "1"}))
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
			cmd.Env = append(os.Environ(), role+"="+strings.Join([]string{w.dir, w.ref("app:1"), step}, ","))
			out, err := cmd.CombinedOutput()
			if e, ok := errors.AsType[*exec.ExitError](err); !ok || !strings.Contains(e.String(), "killed") {
				t.Fatalf("the pull ended with %v: %s", err, out)
			}
			if n := len(w.left("tmp")); n != 2 {
				t.Errorf("%d directories in tmp, want this process's and that of the dead one", n)
			}
			w.reopen()
			if n := len(w.left("tmp")); n != 2 { // the first Open's of this process is locked still
				t.Errorf("%d directories in tmp after Open", n)
			}
			w.afterCrash()
		})
	}
}

func TestProgress(t *testing.T) {
	w := newWorld(t)
	b := build(tree{"a": noise(1 << 20)}, tree{"b": noise(1 << 20)})
	w.push("app", "1", b)
	busy := make(chan struct{}, 1)
	phases := map[string][]string{}
	n := 0
	_, err := w.Pull(t.Context(), me, w.ref("app:1"), nil, func(p image.Progress) {
		select {
		case busy <- struct{}{}:
		default:
			t.Error("called twice at once")
		}
		n++
		if ps := phases[p.Layer]; len(ps) == 0 || ps[len(ps)-1] != p.Phase {
			phases[p.Layer] = append(ps, p.Phase)
		}
		if p.Total > 0 && p.Done > p.Total {
			t.Errorf("%+v", p)
		}
		<-busy
	})
	must(err)
	want := map[string][]string{"": {"resolve", "done"}}
	for _, l := range b.blobs {
		want[digest(l)[7:19]] = []string{"download", "unpack", "done"}
	}
	if diff := cmp.Diff(want, phases); diff != "" {
		t.Error(diff)
	}
	if n > 60 {
		t.Errorf("%d reports of two megabytes", n)
	}
}
