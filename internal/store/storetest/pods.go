package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Pods is what RunPods tests.
type Pods interface {
	Pods(ctx context.Context, owner string) ([]record.Pod, error)
	ChangePods(ctx context.Context, owner string, put []record.Pod, gone []string) error
	PodOwners(ctx context.Context) ([]string, error)
}

// Pod returns a record with something in every field. Different n give different names.
func Pod(n int) record.Pod {
	at := time.Date(2026, 11, 29, 1, 2, 3, 456789, time.UTC)
	return record.Pod{
		Name: fmt.Sprintf("pod-%d", n), Owner: "uid:1000", State: record.Live, Parent: "root", Workspace: "vol_x",
		Allow:  []scope.Rule{{Target: "/workspace/src", Permission: scope.Write, Recursive: true}},
		Deny:   []scope.Rule{{Target: "/workspace/src/x", Permission: scope.Read}},
		Bounds: scope.Bounds{Secrets: []string{"token"}, Until: at},
		Socket: "/run/pods/p/sock", Callback: "/run/pods/root/sock", Dir: "/run/pods/p", Token: "abc", Ref: "sb_x", Segment: "s",
		Process: procid.ID{PID: 1, StartTime: 1<<63 + 7, BootID: "b"}, Confirmed: true, CreatedAt: at,
		Program: record.Program{Command: []string{"agent", "{}"}, Cwd: "/workspace", Isolation: "gvisor"},
	}
}

// RunPods tests the stores that open returns, a new and empty one per subtest.
func RunPods(t *testing.T, open func(*testing.T) Pods) {
	const owner = "uid:1000"
	want := func(t *testing.T, s Pods, of string, want ...record.Pod) {
		t.Helper()
		got, err := s.Pods(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	change := func(t *testing.T, s Pods, put []record.Pod, gone ...string) {
		t.Helper()
		if err := s.ChangePods(t.Context(), owner, put, gone); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("round-trip", func(t *testing.T) {
		s := open(t)
		want(t, s, owner)
		change(t, s, []record.Pod{Pod(2), Pod(1)})
		want(t, s, owner, Pod(1), Pod(2))
	})
	t.Run("owners", func(t *testing.T) { podOwners(t, open(t)) })
	t.Run("at-once", func(t *testing.T) {
		s := open(t)
		change(t, s, []record.Pod{Pod(1), Pod(2)})
		p := Pod(2)
		p.Parent, p.State = "", record.Ending
		change(t, s, []record.Pod{p, Pod(3)}, "pod-1", "nobody")
		want(t, s, owner, p, Pod(3))
	})
	t.Run("all-or-nothing", func(t *testing.T) {
		s := open(t)
		change(t, s, []record.Pod{Pod(1)})
		broken := Pod(3)
		broken.Allow = nil
		if s.ChangePods(t.Context(), owner, []record.Pod{Pod(2), broken}, []string{"pod-1"}) == nil {
			t.Error("a record that no pod can have was written")
		}
		want(t, s, owner, Pod(1))
	})
	t.Run("others", func(t *testing.T) {
		s := open(t)
		change(t, s, []record.Pod{Pod(1)})
		p := Pod(1)
		p.Owner = "uid:1001"
		if err := s.ChangePods(t.Context(), p.Owner, []record.Pod{p}, nil); err != nil {
			t.Fatal(err)
		}
		if s.ChangePods(t.Context(), owner, []record.Pod{p}, nil) == nil {
			t.Error("another's record was written as one's own")
		}
		change(t, s, nil, "pod-1")
		want(t, s, owner)
		want(t, s, p.Owner, p)
	})
	t.Run("copies", func(t *testing.T) {
		s := open(t)
		p := Pod(1)
		change(t, s, []record.Pod{p})
		p.Allow[0].Target = "/changed"
		want(t, s, owner, Pod(1))
	})
	t.Run("ended-context", func(t *testing.T) {
		s := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if s.ChangePods(ctx, owner, []record.Pod{Pod(1)}, nil) == nil {
			t.Error("written although the context has ended")
		}
		want(t, s, owner)
	})
}

func podOwners(t *testing.T, s Pods) {
	t.Helper()
	for _, of := range []string{"uid:7", "uid:1000"} {
		for n := range 2 {
			p := Pod(n)
			p.Owner = of
			if err := s.ChangePods(t.Context(), of, []record.Pod{p}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, err := s.PodOwners(t.Context()); err != nil || !slices.Equal(got, []string{"uid:1000", "uid:7"}) {
		t.Errorf("owners are %q, %v", got, err)
	}
	if err := s.ChangePods(t.Context(), "uid:1000", nil, []string{"pod-0", "pod-1"}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.PodOwners(t.Context()); err != nil || !slices.Equal(got, []string{"uid:7"}) {
		t.Errorf("then owners are %q, %v", got, err)
	}
}

// Pods implements pod.Store.
func (m *Memory) Pods(_ context.Context, owner string) ([]record.Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []record.Pod
	for _, p := range m.pods[owner] {
		out = append(out, p.Clone())
	}
	slices.SortFunc(out, func(a, b record.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// PodOwners are those who have records.
func (m *Memory) PodOwners(context.Context) (out []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for owner, all := range m.pods {
		if len(all) > 0 {
			out = append(out, owner)
		}
	}
	slices.Sort(out)
	return out, nil
}

// ChangePods implements pod.Store.
func (m *Memory) ChangePods(ctx context.Context, owner string, put []record.Pod, gone []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, p := range put {
		if err := p.Check(); err != nil {
			return err
		}
		if p.Owner != owner {
			return fmt.Errorf("the record of pod %s is %s's", p.Name, p.Owner)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pods == nil {
		m.pods = map[string]map[string]record.Pod{}
	}
	if m.pods[owner] == nil {
		m.pods[owner] = map[string]record.Pod{}
	}
	for _, name := range gone {
		delete(m.pods[owner], name)
	}
	for _, p := range put {
		m.pods[owner][p.Name] = p.Clone()
	}
	return nil
}
