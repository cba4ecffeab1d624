package service_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/service"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
	"github.com/carboy-sandbox/carboy/internal/store/storetest"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// TestAtOnce: of spawns of one name, or of one directory, at once one comes about, and nothing is left of the others.
func TestAtOnce(t *testing.T) {
	for name, of := range map[string]func(i int) service.Spawn{
		"one name":      func(int) service.Spawn { return request("lead", "docs", "docs") },
		"one directory": func(i int) service.Spawn { return request("lead", fmt.Sprintf("docs-%d", i), "docs") },
	} {
		w := newWorld(t)
		var all sync.WaitGroup
		var mu sync.Mutex
		there := 0
		for i := range 20 {
			all.Go(func() {
				_, _, err := w.Spawn(t.Context(), ann, of(i))
				mu.Lock()
				defer mu.Unlock()
				if err != nil && strings.Contains(err.Error(), "the pod remains registered") {
					there++
				}
			})
		}
		all.Wait()
		list, err := w.List(t.Context(), ann)
		if err != nil || there != 1 || len(list) != 2 || len(w.boxes.access()) != 3 || w.boxes.access()["lead"] != "docs" {
			t.Errorf("%s: %d came about; %s; %v, %v", name, there, w.listing(t), w.boxes.access(), err)
		}
	}
}

// TestMany: 200 pods that read, and as many that write as a wall has room for; one more is refused, and changes nothing.
func TestMany(t *testing.T) {
	w := newWorld(t)
	for i := range 200 {
		q := request("lead", fmt.Sprintf("reader-%d", i), ".")
		q.Scope[0].Permission = scope.Read
		if _, _, err := w.Spawn(t.Context(), ann, q); err == nil || !strings.Contains(err.Error(), "the pod remains registered") {
			t.Fatal(err)
		}
	}
	list, err := w.List(t.Context(), ann)
	if err != nil || len(list) != 201 || w.boxes.access()["lead"] != "" {
		t.Fatalf("%d pods, the parent can't write to %q, %v", len(list), w.boxes.access()["lead"], err)
	}
	q := request("lead", "greedy", "docs")
	q.Budget.Pods = 1
	if _, _, err := w.Spawn(t.Context(), ann, q); !strings.Contains(err.Error(), "the pod remains registered") {
		t.Fatal(err)
	}
	w.boxes.mu.Lock()
	for _, sb := range w.boxes.all { // what it has is its own, not its parent's
		sb.Spec.Limits = sandbox.Limits{}
	}
	w.boxes.mu.Unlock()
	for i, want := range []string{"the pod remains registered", "below it there may be 1 pods at once"} {
		q := request("greedy", fmt.Sprintf("below-%d", i), "docs")
		q.Scope[0].Permission = scope.Read
		if _, _, err := w.Spawn(t.Context(), ann, q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pod %d below it: %v", i, err)
		}
	}
}

// TestNothingIsLeft: of pods and parents that are gone no transcript is left.
func TestNothingIsLeft(t *testing.T) {
	w := newWorld(t)
	left := func() (names []string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(w.dir, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name, _, _ := strings.Cut(filepath.Base(f), "-")
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	w.spawn(t, "lead", "docs", "docs")
	w.spawn(t, "lead", "src", "src")
	if got := left(); !slices.Equal(got, []string{"docs", "lead", "src"}) {
		t.Errorf("there are transcripts of %q", got)
	}
	if _, err := w.Stop(t.Context(), ann, "docs"); err != nil {
		t.Fatal(err)
	}
	w.boxes.Remove(t.Context(), ann, "lead", true)
	w.listing(t)
	if got := left(); !slices.Equal(got, []string{"src"}) {
		t.Errorf("with the parent gone there are transcripts of %q", got)
	}
	w.Service.Close()
	w.boxes.Remove(t.Context(), ann, "src", true)
	if err := w.store.ChangePods(t.Context(), owner, nil, []string{"src"}); err != nil { // a daemon that is killed then
		t.Fatal(err)
	}
	if err := w.store.ChangePods(t.Context(), owner, []record.Pod{storetest.Pod(1)}, nil); err != nil {
		t.Fatal(err)
	}
	w.boot(t)
	if got := left(); slices.Contains(got, "src") {
		t.Errorf("the next daemon has transcripts of %q", got)
	}
}

// TestOthers: who has the workspace and is no pod is named.
func TestOthers(t *testing.T) {
	w := newWorld(t)
	w.spawn(t, "lead", "docs", "docs")
	w.boxes.add("stranger", sandbox.Workspace{Mode: sandbox.WorkspaceVolume, Volume: "vol_a"})
	w.boxes.add("elsewhere", sandbox.Workspace{Mode: sandbox.WorkspaceVolume, Volume: "vol_b"})
	p, err := w.Get(t.Context(), ann, "docs")
	if err != nil || strings.Join(p.Others, " ") != "stranger" {
		t.Errorf("others are %q, %v", p.Others, err)
	}
}

// TestHeard: a parent hears how its pods' turns ended, and that they have stopped, each from the pod itself and no other.
func TestHeard(t *testing.T) {
	w := newWorld(t)
	w.spawn(t, "lead", "docs", "docs")
	w.spawn(t, "lead", "src", "src")
	w.spawn(t, "src", "deep", "src/x")
	if _, err := w.Stop(t.Context(), ann, "docs"); err != nil {
		t.Fatal(err)
	}
	heard := func(name string) string {
		t.Helper()
		out, err := w.Output(t.Context(), ann, name, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		return out.Text
	}
	const failed = "reported an error: the command was not started: its sandbox has ended\n"
	want := "Pod `docs` " + failed + "Pod `src` " + failed + "Pod `docs` has stopped.\n"
	if got := heard("lead"); got != want {
		t.Errorf("the parent heard\n%s\nwant\n%s", got, want)
	}
}

// TestRemoved: a pod whose sandbox was removed is ended without being asked for, and its parent has back what it had; it is listed once more.
func TestRemoved(t *testing.T) {
	w := newWorld(t)
	w.spawn(t, "lead", "docs", "docs")
	w.spawn(t, "docs", "deep", "docs")
	w.boxes.Remove(t.Context(), ann, "docs", true)
	w.Removed("somebody else")
	w.Removed(owner)
	if !patience.Until(time.Minute, func() bool {
		p, err := w.Get(t.Context(), ann, "deep")
		return err == nil && p.Parent == "lead"
	}) {
		t.Fatal("the pod was not ended")
	}
	w.boxes.Remove(t.Context(), ann, "deep", true)
	w.Removed(owner)
	if !patience.Until(time.Minute, func() bool { return w.boxes.access()["lead"] == "" }) {
		t.Fatal("the parent has nothing back")
	}
	for _, want := range []string{"deep<lead gone []; docs<lead gone []", ""} {
		if got := w.listing(t); got != want {
			t.Errorf("listed are %s, want %s", got, want)
		}
	}
}

// TestInbox: what a sandbox was told is read once, also after its last pod has ended and by the next daemon, as long as the sandbox is
// there; another sandbox of its name was told nothing.
func TestInbox(t *testing.T) {
	w := newWorld(t)
	unread := func() string {
		t.Helper()
		out, err := w.Output(t.Context(), ann, "lead", service.Unread, false)
		if err != nil {
			return string(sandbox.KindOf(err))
		}
		return out.Text
	}
	stopped := func(name string) string {
		t.Helper()
		w.spawn(t, "lead", name, "docs")
		if _, err := w.Stop(t.Context(), ann, name); err != nil {
			t.Fatal(err)
		}
		return "Pod `" + name + "` reported an error: the command was not started: its sandbox has ended\nPod `" + name + "` has stopped.\n"
	}
	if got := unread(); got != "not_found" {
		t.Errorf("before any pod: %s", got)
	}
	want := stopped("one")
	if got := unread(); got != want {
		t.Errorf("read\n%s\nwant\n%s", got, want)
	}
	w.boot(t)
	want = stopped("two")
	w.boot(t)
	if got := unread(); got != want {
		t.Errorf("read by another daemon\n%s\nwant\n%s", got, want)
	}
	if got := unread(); got != "" {
		t.Errorf("read once more\n%s", got)
	}
	volume := w.boxes.all["sb_1"].Spec.Workspace
	if err := w.boxes.Remove(t.Context(), ann, "lead", true); err != nil {
		t.Fatal(err)
	}
	w.Removed(owner)
	w.boxes.add("lead", volume)
	want = stopped("three")
	if got := unread(); got != want {
		t.Errorf("of another sandbox\n%s\nwant\n%s", got, want)
	}
	if !patience.Until(time.Minute, func() bool {
		kept, err := filepath.Glob(filepath.Join(w.dir, "*", "lead-*"))
		return err == nil && len(kept) == 1
	}) {
		t.Error("what the first one was told is kept")
	}
}
