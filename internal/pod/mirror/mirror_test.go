package mirror_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod/mirror"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

var system sandbox.SystemClock

// patient is a clock by which no time passes, however long something takes.
type patient struct{ sandbox.SystemClock }

func (patient) Now() time.Time { return time.Time{} }

// hasty is a clock by which a second passes whenever it is looked at.
type hasty struct {
	sandbox.SystemClock
	looked int
}

func (h *hasty) Now() time.Time {
	h.looked++
	return time.Time{}.Add(time.Duration(h.looked) * time.Second)
}

func pods() []record.Pod {
	rule := scope.Rule{Target: "/w", Permission: scope.Write, Recursive: true}
	return []record.Pod{
		{Name: "root", State: record.Live, Allow: []scope.Rule{rule}, Socket: "/run/root/sock", Process: procid.ID{PID: 7}, Segment: "s"},
		{Name: "child", State: record.Live, Parent: "root", Allow: []scope.Rule{rule}, Socket: "/run/child/sock", Callback: "/run/root/sock"},
		{Name: "soon", State: record.Reserved, Parent: "root", Allow: []scope.Rule{rule}, Socket: "/run/soon/sock"},
	}
}

// TestFields: the files have the fields that others read, by their names.
func TestFields(t *testing.T) {
	rule := `[{"target":"/w","permission":"write","recursive":true}]`
	for _, tt := range []struct {
		v    any
		want string
	}{
		{mirror.TableOf(pods()[:2]), `{"allocations":[` +
			`{"pod_name":"root","pid":7,"socket":"/run/root/sock","scope_allow":` + rule + `,"scope_deny":[],"delegated_from":null,"segment_id":"s"},` +
			`{"pod_name":"child","pid":7,"socket":"/run/child/sock","scope_allow":` + rule + `,"scope_deny":[],"delegated_from":"root","segment_id":null}]}`},
		{mirror.TableOf(nil), `{"allocations":[]}`},
		{mirror.SpawnedOf(pods()[1:]), `[{"pod_name":"child","socket_path":"/run/child/sock","scope_delegated":` + rule + `,"callback_address":"/run/root/sock"}]`},
		{mirror.SpawnedOf(nil), `[]`},
	} {
		if b, err := json.Marshal(tt.v); err != nil || string(b) != tt.want {
			t.Errorf("%s, %v; want %s", b, err, tt.want)
		}
	}
}

func TestWriteAndOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), mirror.PodsFile)
	find := func(name string) *mirror.Allocation {
		t.Helper()
		g, err := mirror.Open(t.Context(), system, path)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		return g.Data().Find(name)
	}
	if find("root") != nil {
		t.Error("a file that is not there has a pod")
	}
	want := mirror.TableOf(pods())
	if err := mirror.Write(t.Context(), system, path, want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&want.Allocations[1], find("child")); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	// Cut in half, it is said to be so; the next write has it whole.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range []string{string(b[:len(b)/2]), "[]", "\x00", `{"allocations":[{"name":"x"}]}`} {
		if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := mirror.Open(t.Context(), system, path); err == nil || !strings.HasPrefix(err.Error(), "pods.json parse error: ") {
			t.Errorf("%q: %v", broken, err)
		}
	}
	if err := mirror.Write(t.Context(), system, path, want); err != nil || find("child") == nil {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil || find("child") != nil {
		t.Errorf("an empty file has a pod: %v", err)
	}
}

func TestSpawned(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, mirror.SpawnedFile)
	if got, err := mirror.ReadSpawned(path); len(got) > 0 || err != nil || mirror.Shown(dir) {
		t.Errorf("%v, %v", got, err)
	}
	want := mirror.SpawnedOf(pods()[1:])
	if err := mirror.Write(t.Context(), system, path, want); err != nil || !mirror.Shown(dir) {
		t.Fatal(err)
	}
	got, err := mirror.ReadSpawned(path)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, d)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mirror.ReadSpawned(path); err == nil || !strings.HasPrefix(err.Error(), "spawned_pods.json parse error: ") {
		t.Errorf("%v", err)
	}
}

// TestLock: as long as somebody reads under the lock nobody writes; who waits is not kept forever, and
// leaves when it is told to.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), mirror.PodsFile)
	g, err := mirror.Open(t.Context(), system, path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("left")
	cancel(left)
	if err := mirror.Write(ctx, system, path, mirror.Table{}); !errors.Is(err, left) {
		t.Errorf("%v, want that it left", err)
	}
	if err := mirror.Write(t.Context(), new(hasty), path, mirror.Table{}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("%v, want that it is in use", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mirror.Write(ctx, system, path, mirror.Table{}); err != nil {
		t.Errorf("with the lock free: %v", err)
	}
}

// TestReadersFindAWholeFile: whatever is read while others write is of before or after.
func TestReadersFindAWholeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), mirror.PodsFile)
	table := func(n int) (out mirror.Table) {
		for i := range n {
			out.Allocations = append(out.Allocations, mirror.Allocation{PodName: fmt.Sprint(n, "-", i), ScopeAllow: []scope.Rule{}, ScopeDeny: []scope.Rule{}})
		}
		return out
	}
	if err := mirror.Write(t.Context(), patient{}, path, table(1)); err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for n := range 3 {
		writing.Go(func() {
			for range 20 {
				if err := mirror.Write(t.Context(), patient{}, path, table(n*50+1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 60 {
		b, err := os.ReadFile(path) // as who knows of no lock
		if err != nil {
			t.Fatal(err)
		}
		got, err := mirror.Parse(b)
		if err != nil || len(got.Allocations) == 0 || !strings.HasPrefix(got.Allocations[0].PodName, fmt.Sprint(len(got.Allocations), "-")) {
			t.Fatalf("%d, %v", len(got.Allocations), err)
		}
	}
	writing.Wait()
}

// FuzzParse: what is read can be written, and is the same again.
func FuzzParse(f *testing.F) {
	b, err := json.Marshal(mirror.TableOf(pods()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"allocations":null}`))
	f.Add(b[:len(b)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := mirror.Parse(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := mirror.Parse(again)
		if d := cmp.Diff(got, twice); d != "" || err != nil {
			t.Errorf("%v (-first +again)\n%s", err, d)
		}
	})
}
