package service_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/service"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// TestAskedBeforeAdopted: a question that comes before sandboxes are adopted keeps nothing from being finished that an earlier
// daemon began.
func TestAskedBeforeAdopted(t *testing.T) {
	w := newWorld(t)
	w.spawn(t, "lead", "docs", "docs")
	w.Close()
	begun := record.Pod{
		Name: "begun", Owner: owner, State: record.Reserved, Parent: "lead", Workspace: "vol_a", Socket: "begun/sock", Token: "t",
		Allow: []scope.Rule{{Target: "/workspace/src", Permission: scope.Write, Recursive: true}},
	}
	if err := w.store.ChangePods(t.Context(), owner, []record.Pod{begun}, nil); err != nil {
		t.Fatal(err)
	}
	w.Service = service.New(service.Options{Store: w.store, Sandboxes: w.boxes, Dir: w.dir, Volumes: fakeVolumes{}})
	t.Cleanup(w.Close)
	w.boxes.away = true
	if _, err := w.Get(t.Context(), ann, "docs"); err != nil {
		t.Fatal(err)
	}
	w.boxes.away = false
	if err := w.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Get(t.Context(), ann, "begun"); err == nil {
		t.Error("what was begun is still there")
	}
}
