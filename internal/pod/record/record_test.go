package record_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

func full() record.Pod {
	return record.Pod{
		Name: "child", Owner: "uid:0", State: record.Live, Parent: "root", Workspace: "vol_1",
		Allow:  []scope.Rule{{Target: "/w", Permission: scope.Write, Recursive: true}, {Target: "/doc", Permission: scope.Read}},
		Deny:   []scope.Rule{{Target: "/w/x", Permission: scope.Read, Recursive: true}},
		Bounds: scope.Bounds{Secrets: []string{"token"}, Until: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)},
		Socket: "/run/child/sock", Callback: "/run/root/sock", Dir: "/run/child", Token: "t", Ref: "r", Segment: "s",
		Process: procid.ID{PID: 7, StartTime: 8, BootID: "b"}, Confirmed: true, CreatedAt: time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC),
	}
}

func TestRoundTrip(t *testing.T) {
	b, err := record.Marshal(full())
	if err != nil {
		t.Fatal(err)
	}
	got, err := record.Parse(b)
	if d := cmp.Diff(full(), got); d != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, d)
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*record.Pod)
		want   string
	}{
		{"empty-name", func(p *record.Pod) { p.Name = "" }, `"" is no name for a pod`},
		{"up", func(p *record.Pod) { p.Name = ".." }, `".." is no name for a pod`},
		{"path", func(p *record.Pod) { p.Name = "a/b" }, `"a/b" is no name for a pod`},
		{"hidden", func(p *record.Pod) { p.Name = ".pod-x" }, `".pod-x" is no name for a pod`},
		{"the-mirror", func(p *record.Pod) { p.Name = "pods.json" }, `"pods.json" is no name for a pod`},
		{"flag", func(p *record.Pod) { p.Name = "-rf" }, `"-rf" is no name for a pod`},
		{"long", func(p *record.Pod) { p.Name = strings.Repeat("a", 65) }, "is no name for a pod"},
		{"zero-byte", func(p *record.Pod) { p.Name = "a\x00" }, "is no name for a pod"},
		{"parent", func(p *record.Pod) { p.Parent = "../x" }, `its parent: "../x" is no name for a pod`},
		{"state", func(p *record.Pod) { p.State = "asleep" }, `"asleep" is no state of a pod`},
		{"no-scope", func(p *record.Pod) { p.Allow = nil }, "scope must declare at least one allow rule"},
		{"unresolved", func(p *record.Pod) { p.Deny[0].Target = "/w/../etc" }, "scope target must be clean: /w/../etc is /etc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := full()
			tt.change(&p)
			if err := p.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if _, err := record.Marshal(p); err == nil {
				t.Error("it was written")
			}
		})
	}
	for _, name := range []string{"a", "child", "Root-2", "0_x", strings.Repeat("a", 64)} {
		if err := record.CheckName(name); err != nil {
			t.Error(err)
		}
	}
}

func TestCloneSharesNothing(t *testing.T) {
	p := full()
	c := p.Clone()
	c.Allow[0].Target, c.Deny[0].Target, c.Bounds.Secrets[0] = "/x", "/x", "x"
	if d := cmp.Diff(full(), p); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// FuzzParse: what is read can be written, and is the same again.
func FuzzParse(f *testing.F) {
	b, err := record.Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"name":"a","state":"live","allow":[{"target":"/","permission":"read"}]}`))
	f.Add([]byte(`{"name":"a","name":"b"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := record.Parse(b)
		if err != nil {
			return
		}
		again, err := record.Marshal(p)
		if err != nil {
			t.Fatalf("%s was read, and can't be written: %v", b, err)
		}
		twice, err := record.Parse(again)
		if d := cmp.Diff(p, twice); err != nil || d != "" {
			t.Errorf("%v (-first +again)\n%s", err, d)
		}
	})
}
