package volume_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume"
	"github.com/carboy-sandbox/carboy/internal/volume/origin"
)

var (
	ann  = sandbox.Caller{Owner: "uid:1"}
	bob  = sandbox.Caller{Owner: "key:bob"}
	root = sandbox.Caller{Owner: "uid:0", Admin: true}
)

// users has volumes by ID.
type users map[string][]string

func (u users) WithVolumes(ctx context.Context, f func(context.Context) error) error { return f(ctx) }

func (u users) VolumeUsers(id string) []string { return u[id] }

// world is a home of volumes.
type world struct {
	dir string
	now time.Time
	use users

	roles origin.Runner
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{dir: t.TempDir(), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), use: users{}}
}

func (w *world) volumes() string { return filepath.Join(w.dir, "state", "volumes") }

func (w *world) open(t *testing.T) *volume.Service {
	t.Helper()
	s, err := volume.Open(volume.Options{
		State: filepath.Join(w.dir, "state"), Cache: filepath.Join(w.dir, "cache"), PerOwner: 3, Size: 32 << 20, MaxSize: 64 << 20,
		Launch: func(*exec.Cmd) error { return fmt.Errorf("no process") },
		Roles:  w.roles,
		Now:    func() time.Time { return w.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Bind(w.use)
	t.Cleanup(s.Close)
	return s
}

func create(t *testing.T, s *volume.Service, c sandbox.Caller, name string) volume.Volume {
	t.Helper()
	v, err := s.Create(t.Context(), c, volume.New{Name: name})
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return v
}

func wantKind(t *testing.T, what string, err error, want sandbox.Kind) {
	t.Helper()
	if got := sandbox.KindOf(err); got != want {
		t.Errorf("%s = %v (kind %q), want kind %q", what, err, got, want)
	}
}

func names(list []volume.Volume) (out []string) {
	for _, v := range list {
		out = append(out, v.Name)
	}
	return out
}

func TestLife(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	v := create(t, s, ann, "data")
	if !sandbox.ValidVolumeID(v.ID) || v.Size != 32<<20 || v.Inodes != 2048 || v.Owner != ann.Owner {
		t.Errorf("created %+v", v)
	}
	w.now = w.now.Add(time.Second)
	create(t, s, bob, "data") // a name is its owner's alone
	_, err := s.Create(t.Context(), ann, volume.New{Name: "data"})
	wantKind(t, "a name that is taken", err, sandbox.Conflict)

	s.Close()
	s = w.open(t)
	for _, ref := range []string{"data", v.ID} {
		if got, err := s.Get(t.Context(), ann, ref); err != nil || got != v {
			t.Errorf("Get %s = %+v, %v", ref, got, err)
		}
	}
	_, err = s.Get(t.Context(), bob, v.ID)
	wantKind(t, "another's", err, sandbox.NotFound)
	wantKind(t, "Has", s.Has(t.Context(), ann.Owner, v.ID), "")
	wantKind(t, "Has of another's", s.Has(t.Context(), bob.Owner, v.ID), sandbox.NotFound)
	if got := names(s.List(t.Context(), ann)); !slices.Equal(got, []string{"data"}) {
		t.Errorf("List = %v", got)
	}
	if got := names(s.List(t.Context(), root)); len(got) != 2 {
		t.Errorf("List of an admin = %v", got)
	}

	w.use[v.ID] = []string{"web"}
	wantKind(t, "Remove of one in use", s.Remove(t.Context(), ann, "data"), sandbox.Conflict)
	delete(w.use, v.ID)
	wantKind(t, "Remove of another's", s.Remove(t.Context(), bob, v.ID), sandbox.NotFound)
	wantKind(t, "Remove", s.Remove(t.Context(), ann, "data"), "")
	wantKind(t, "Remove again", s.Remove(t.Context(), ann, "data"), sandbox.NotFound)
	s.Close()
	entries, err := os.ReadDir(w.volumes())
	if err != nil || len(entries) != 2 { // bob's, and the key
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	for _, name := range []string{"", "a b", "../x", "a/b", "ü", strings.Repeat("a", 129), "-f", "vol_aaaaaaaaaaaaaaaaaaaa", "a\n"} {
		_, err := s.Create(t.Context(), ann, volume.New{Name: name})
		wantKind(t, fmt.Sprintf("name %q", name), err, sandbox.Invalid)
	}
	_, err := s.Create(t.Context(), ann, volume.New{Name: "a", Size: 1 << 20})
	wantKind(t, "too small", err, sandbox.Invalid)
	_, err = s.Create(t.Context(), ann, volume.New{Name: "a", Size: 65 << 20})
	wantKind(t, "too large", err, sandbox.Denied)
	_, err = s.Create(t.Context(), ann, volume.New{Name: "a", Inodes: 1 << 40})
	wantKind(t, "too many files", err, sandbox.Invalid)
	_, err = s.Create(t.Context(), sandbox.Caller{}, volume.New{Name: "a"})
	wantKind(t, "nobody's", err, sandbox.Denied)
	for _, name := range []string{"one", "two", "three"} {
		create(t, s, ann, name)
	}
	_, err = s.Create(t.Context(), ann, volume.New{Name: "four"})
	wantKind(t, "one more", err, sandbox.Exhausted)
	create(t, s, bob, "four")
	s.Bound(func(owner string) int { return map[string]int{ann.Owner: 4, bob.Owner: 1}[owner] })
	create(t, s, ann, "four")
	_, err = s.Create(t.Context(), bob, volume.New{Name: "five"})
	wantKind(t, "one more than its own bound", err, sandbox.Exhausted)
}

// TestKilled: whenever a daemon dies, a volume is there whole or not at all.
func TestKilled(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	v, half, gone := create(t, s, ann, "whole"), create(t, s, ann, "half"), create(t, s, ann, "gone")
	s.Close()
	at := func(name string) string { return filepath.Join(w.volumes(), name) }
	for from, to := range map[string]string{half.ID: ".new-" + half.ID, gone.ID: ".old-" + gone.ID} {
		if err := os.Rename(at(from), at(to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(at("vol_zzzzzzzzzzzzzzzzzzzz"), 0o700); err != nil { // no record: another's mistake
		t.Fatal(err)
	}
	s = w.open(t)
	if got := names(s.List(t.Context(), ann)); !slices.Equal(got, []string{"whole"}) {
		t.Errorf("List = %v", got)
	}
	s.Close()
	for name, want := range map[string]bool{v.ID: true, ".new-" + half.ID: false, ".old-" + gone.ID: false, "vol_zzzzzzzzzzzzzzzzzzzz": true} {
		if _, err := os.Lstat(at(name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
	// A disk that is gone is an error, and nothing comes in its place.
	if err := os.RemoveAll(filepath.Join(at(v.ID), "disk.img")); err != nil {
		t.Fatal(err)
	}
	_ = os.RemoveAll(filepath.Join(at(v.ID), "plain"))
	s = w.open(t)
	wantKind(t, "Has without its disk", s.Has(t.Context(), ann.Owner, v.ID), sandbox.NotFound)
	wantKind(t, "Remove without its disk", s.Remove(t.Context(), ann, v.ID), "")
}

func TestTokens(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	v, other := create(t, s, ann, "data"), create(t, s, ann, "other")
	token := s.Token(v, "key 1")
	ask := func(path string, headers ...string) int {
		req := httptest.NewRequest("GET", path, nil)
		for _, h := range headers {
			req.Header.Add("Authorization", h)
		}
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, req)
		return rec.Code
	}
	dir := func(v volume.Volume) string { return "/volumecontent/" + v.ID + "/dir?path=/" }
	const through = http.StatusInternalServerError // as far as the process, which this world lacks
	forged := token[:len(token)-4] + "AAAA"
	for _, tt := range []struct {
		name    string
		path    string
		headers []string
		want    int
	}{
		{"good", dir(v), []string{"Bearer " + token}, through},
		{"none", dir(v), nil, 401},
		{"another-scheme", dir(v), []string{"Basic " + token}, 401},
		{"twice", dir(v), []string{"Bearer " + token, "Bearer " + token}, 401},
		{"forged", dir(v), []string{"Bearer " + forged}, 401},
		{"cut", dir(v), []string{"Bearer " + token[:20]}, 401},
		{"of-another-volume", dir(other), []string{"Bearer " + token}, 403},
		{"of-no-volume", "/volumecontent/x/dir?path=/", []string{"Bearer " + token}, 403},
		{"no-operation", "/volumecontent/" + v.ID + "/other?path=/", []string{"Bearer " + token}, 404},
		{"no-path", "/volumecontent/" + v.ID, []string{"Bearer " + token}, 404},
	} {
		if got := ask(tt.path, tt.headers...); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	s.Close()
	s = w.open(t) // the key is kept
	if got := ask(dir(v), "Bearer "+token); got != through {
		t.Errorf("after a restart: %d", got)
	}
	w.now = w.now.Add(volume.TokenLife)
	if got := ask(dir(v), "Bearer "+token); got != 401 {
		t.Errorf("late: %d, want 401", got)
	}
	token = s.Token(v, "key 1")
	s.Live(func(source string) bool { return source != "key 1" })
	if got := ask(dir(v), "Bearer "+token); got != 401 {
		t.Errorf("of a key that is gone: %d, want 401", got)
	}
	for _, source := range []string{"key 2", ""} {
		if got := ask(dir(v), "Bearer "+s.Token(v, source)); got != through {
			t.Errorf("of the key %q: %d", source, got)
		}
	}
	s.Live(nil)
	if err := s.Remove(t.Context(), ann, v.ID); err != nil {
		t.Fatal(err)
	}
	if got := ask(dir(v), "Bearer "+token); got != 404 {
		t.Errorf("of one that is removed: %d, want 404", got)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"vol_aaaaaaaaaaaaaaaaaaaa","owner":"uid:1","name":"a","size":1,"inodes":1,"created_at":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := volume.ParseRecordForTest(b, "vol_aaaaaaaaaaaaaaaaaaaa")
		if err == nil && (v.ID != "vol_aaaaaaaaaaaaaaaaaaaa" || v.Owner == "" || v.Name == "") {
			t.Errorf("read %+v", v)
		}
	})
}

func FuzzToken(f *testing.F) {
	s := volume.ForTest([]byte(strings.Repeat("k", 32)))
	good := s.Token(volume.Volume{ID: "vol_aaaaaaaaaaaaaaaaaaaa"}, "")
	f.Add(good)
	f.Add("cvt_e30.AAAA")
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		if id, ok := s.GrantedForTest(token); ok && token != good {
			t.Errorf("%q opens %s", token, id)
		}
	})
}

// TestGrow has a volume have more, unless a sandbox has it.
func TestGrow(t *testing.T) {
	w := newWorld(t)
	s := w.open(t)
	v := create(t, s, ann, "data")
	if v.Unenforced != "" {
		if _, err := s.Grow(t.Context(), ann, "data", 48<<20); sandbox.KindOf(err) != sandbox.Unsupported {
			t.Errorf("Grow of a directory = %v", err)
		}
		t.Skipf("needs loop devices, for a volume of a size: %s", v.Unenforced)
	}
	w.use[v.ID] = []string{"box-1"}
	if is, err := s.Grow(t.Context(), ann, "data", 48<<20); sandbox.KindOf(err) != sandbox.Conflict || is.Size != v.Size {
		t.Errorf("Grow of one in use = %+v, %v", is, err)
	}
	delete(w.use, v.ID)
	if _, err := s.Grow(t.Context(), ann, "data", 1<<40); sandbox.KindOf(err) != sandbox.Denied {
		t.Errorf("Grow beyond what one may have = %v", err)
	}
	for range 2 { // the second has nothing to do
		if is, err := s.Grow(t.Context(), ann, "data", 48<<20); err != nil || is.Size != 48<<20 || is.ID != v.ID {
			t.Errorf("Grow = %+v, %v", is, err)
		}
	}
	if is, err := s.Grow(t.Context(), ann, "data", 64<<20); err != nil || is.Size != 64<<20 {
		t.Errorf("Grow = %+v, %v", is, err)
	}
	s.Close()
	if is, err := w.open(t).Get(t.Context(), ann, "data"); err != nil || is.Size != 64<<20 {
		t.Errorf("another daemon has %+v, %v", is, err)
	}
	entries, err := os.ReadDir(w.volumes())
	if err != nil || len(entries) != 2 { // and the key
		t.Errorf("left: %v, %v", entries, err)
	}
}
