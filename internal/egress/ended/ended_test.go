package ended_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/egress/ended"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

type world struct {
	t   *testing.T
	dir string
	now time.Time
	r   *ended.Records
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir() + "/netlogs", now: time.Date(2026, 1, 2, 3, 4, 5, 678_901, time.UTC)}
	w.r = ended.New(w.dir, func() time.Time { return w.now })
	return w
}

func (w *world) keep(owner, id, name string, hosts ...string) {
	w.t.Helper()
	n := sandbox.EndedNet{ID: id, Name: name, Owner: owner}
	for i, h := range hosts {
		n.Records = append(n.Records, netlog.Record{Seq: uint64(i) + 1, Verdict: netlog.Deny, Host: h})
	}
	if err := w.r.Keep(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	w.now = w.now.Add(time.Second)
}

// hosts are those of what was kept; "-" where nothing was.
func (w *world) hosts(owner, ref string, anyone bool) string {
	w.t.Helper()
	records, err := w.r.Kept(w.t.Context(), owner, ref, anyone)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return "-"
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, r := range records {
		out = append(out, r.Host)
	}
	return strings.Join(out, " ")
}

func TestKept(t *testing.T) {
	w := newWorld(t)
	w.keep("uid:1", "sb_a", "web", "a.example")
	w.keep("uid:1", "sb_b", "web", "b.example", "c.example")
	w.keep("uid:2", "sb_c", "web", "other.example")
	w.keep("uid:1", "sb_a", "web", "again.example")
	if err := os.WriteFile(w.dir+"/stray", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, owner, ref string
		anyone           bool
		want             string
	}{
		{"id", "uid:1", "sb_b", false, "b.example c.example"},
		{"replaced", "uid:1", "sb_a", false, "again.example"},
		{"name-is-the-last", "uid:1", "web", false, "again.example"},
		{"others-name", "uid:2", "web", false, "other.example"},
		{"others-id", "uid:2", "sb_b", false, "-"},
		{"others-id-for-an-admin", "uid:0", "sb_b", true, "b.example c.example"},
		{"others-name-for-an-admin", "uid:0", "web", true, "-"},
		{"unknown", "uid:1", "../netlogs", false, "-"},
		{"empty", "uid:1", "", true, "-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := w.hosts(tt.owner, tt.ref, tt.anyone); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if err := w.r.Keep(t.Context(), sandbox.EndedNet{ID: "../x"}); err == nil {
		t.Error("a path for an ID is kept")
	}
}

func TestBounds(t *testing.T) {
	w := newWorld(t)
	w.keep("uid:2", "sb_other", "x", "other.example")
	for i := range ended.PerOwner + 5 {
		w.keep("uid:1", fmt.Sprintf("sb_%d", i), "x", "a.example")
	}
	if got := w.hosts("uid:1", "sb_4", false) + w.hosts("uid:1", "sb_5", false) + w.hosts("uid:2", "sb_other", false); got != "-a.exampleother.example" {
		t.Errorf("the oldest of one owner: %q", got)
	}
	var many []string
	for range 3000 {
		many = append(many, strings.Repeat("\x1b", 255))
	}
	w.keep("uid:1", "sb_long", "x", many...)
	records, err := w.r.Kept(t.Context(), "uid:1", "sb_long", false)
	if err != nil || len(records) == 0 || records[len(records)-1].Seq != 3000 {
		t.Errorf("%d records, %v: want the last ones", len(records), err)
	}
	w.now = w.now.Add(ended.Age + time.Minute)
	if got := w.hosts("uid:1", "sb_long", false); got != "-" {
		t.Errorf("after a day: %q", got)
	}
	w.keep("uid:3", "sb_new", "x", "new.example")
	if files, err := os.ReadDir(w.dir); err != nil || len(files) != 1 {
		t.Errorf("%d files are left, %v", len(files), err)
	}
}

// An agent's word is bounded and escaped, and its clock is not believed.
func TestAsked(t *testing.T) {
	w := newWorld(t)
	answer := api.AskedAnswer{Others: 7, Names: []api.Asked{
		{Name: "a.example", Type: "A", Count: 2, Last: w.now.Add(-time.Minute)},
		{Name: "\x1b[2J", Type: "\x1b", Count: -5, Last: w.now.Add(time.Hour)},
	}}
	got, err := w.r.Asked(t.Context(), "sb_a", agent(t, answer))
	if err != nil {
		t.Fatal(err)
	}
	want := []netlog.Record{
		{Seq: 1, Time: w.now.Add(-time.Minute), Host: "a.example", Method: "A", Count: 2},
		{Seq: 2, Time: w.now, Host: `\x1b[2J`, Method: `\x1b`, Count: 1},
	}
	for i := range want {
		want[i].Sandbox, want[i].Verdict, want[i].Code, want[i].Reason = "sb_a", netlog.Deny, ended.CodeNoNetwork, "the sandbox has no network"
		want[i].Protocol, want[i].Result = "dns", "NXDOMAIN"
	}
	if diff := cmp.Diff(want, got[:2]); diff != "" || len(got) != 3 || got[2].Count != 7 {
		t.Errorf("%d records (-want +got)\n%s", len(got), diff)
	}
	for range 200 {
		answer.Names = append(answer.Names, api.Asked{Name: "b.example"})
	}
	if got, err := w.r.Asked(t.Context(), "sb_a", agent(t, answer)); err != nil || len(got) > 129 {
		t.Errorf("%d records, %v", len(got), err)
	}
	answer.Names[0].Name = strings.Repeat("x", 1<<20)
	if _, err := w.r.Asked(t.Context(), "sb_a", agent(t, answer)); err == nil {
		t.Error("an endless answer is taken")
	}
	if _, err := w.r.Asked(t.Context(), "sb_a", func(context.Context) (net.Conn, error) { return nil, errors.New("gone") }); err == nil {
		t.Error("an agent that is gone has answered")
	}
}

// agent answers one question so.
func agent(t *testing.T, answer api.AskedAnswer) func(context.Context) (net.Conn, error) {
	raw, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return func(context.Context) (net.Conn, error) {
		outer, inner := net.Pipe()
		go func() {
			defer inner.Close()
			buf := make([]byte, 1024)
			_, _ = inner.Read(buf) // the question
			_, _ = fmt.Fprintf(inner, "HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n%s", http.StatusOK, len(raw), raw)
		}()
		return outer, nil
	}
}
