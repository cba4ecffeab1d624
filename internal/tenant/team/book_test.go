package team_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestMetrics(t *testing.T) {
	b := team.NewBook(team.Limits{}, nil)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		s, running int
		started    bool
	}{{1, 1, true}, {2, 2, true}, {3, 1, false}, {20, 2, true}, {61, 0, false}} {
		b.Changed("key:a", c.running, c.started, at(c.s))
	}
	got := b.Metrics("key:a", at(-600), at(75))
	want := []team.Point{
		{At: at(0), Concurrent: 2, StartRate: 2.0 / 15},
		{At: at(15), Concurrent: 2, StartRate: 1.0 / 15},
		{At: at(30), Concurrent: 2},
		{At: at(45), Concurrent: 2},
		{At: at(60), Concurrent: 2},
		{At: at(75)},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metrics (-want +got):\n%s", d)
	}
	if got := b.Metrics("key:a", at(30), at(45)); len(got) != 2 || got[0].Concurrent != 2 {
		t.Errorf("metrics of a quiet time = %v", got)
	}
	if got := b.Metrics("key:a", noon, noon.Add(24*time.Hour)); len(got) > 1001 || len(got) < 500 {
		t.Errorf("a day has %d points", len(got))
	}
	if got := b.Metrics("key:b", at(0), at(75)); len(got) != 0 {
		t.Errorf("another's metrics = %v", got)
	}
	for _, tt := range []struct {
		name     string
		from, to int
		most     float64
		rate     float64
	}{
		{"all", 0, 100, 2, 2.0 / 15}, {"quiet", 30, 45, 2, 0}, {"after", 80, 100, 0, 0}, {"before", -100, -50, 0, 0},
	} {
		if got, _ := b.MostConcurrent("key:a", at(tt.from), at(tt.to)); got != tt.most {
			t.Errorf("%s: most = %v, want %v", tt.name, got, tt.most)
		}
		if got, _ := b.MostStarts("key:a", at(tt.from), at(tt.to)); got != tt.rate {
			t.Errorf("%s: rate = %v, want %v", tt.name, got, tt.rate)
		}
	}
}

func TestMetricsAreBounded(t *testing.T) {
	b := team.NewBook(team.Limits{}, nil)
	for i := range 100_000 {
		b.Changed("key:a", i%2, i%2 == 1, noon.Add(time.Duration(i)*15*time.Second))
	}
	if got := b.Metrics("key:a", noon, noon.Add(48*time.Hour)); len(got) != 0 {
		t.Errorf("what is long ago is kept: %d points", len(got))
	}
	for i := range 1500 {
		b.Changed(fmt.Sprintf("key:%d", i), 1, true, noon.Add(5000*time.Hour))
	}
	if got := b.Metrics("key:a", noon, noon.Add(10_000*time.Hour)); len(got) != 0 {
		t.Error("the past of too many is kept")
	}
	if got := b.Metrics("key:1499", noon, noon.Add(10_000*time.Hour)); len(got) == 0 {
		t.Error("the newest was forgotten")
	}
}

func TestRates(t *testing.T) {
	b := team.NewBook(team.Limits{RequestsPerSecond: 2, Burst: 2, CreatesPerMinute: 2}, map[string]team.Limits{"key:free": {}})
	for range 2 {
		if err := b.Request("key:a", "k", "read", noon); err != nil {
			t.Fatal(err)
		}
		if err := b.Admit("key:a", noon); err != nil {
			t.Fatal(err)
		}
	}
	err := b.Request("key:a", "k", "read", noon)
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind != sandbox.Exhausted || e.Retry != 500*time.Millisecond {
		t.Errorf("the third request = %#v", err)
	}
	if e, ok := errors.AsType[*sandbox.Error](b.Admit("key:a", noon)); !ok || e.Retry != 30*time.Second {
		t.Errorf("the third create = %#v", e)
	}
	if err := b.Request("key:a", "k", "read", noon.Add(500*time.Millisecond)); err != nil {
		t.Errorf("what was refused was counted: %v", err)
	}
	for _, other := range [][3]string{{"key:a", "k", "write"}, {"key:a", "l", "read"}, {"key:free", "k", "read"}, {"uid:0", "k", "read"}} {
		for range 2 {
			if err := b.Request(other[0], other[1]+other[0], other[2], noon); err != nil {
				t.Errorf("%v: %v", other, err)
			}
		}
	}
}

func TestGrantWithin(t *testing.T) {
	for _, tt := range []struct {
		name  string
		maker []key.Scope
		asked []key.Scope
		want  []key.Scope
		kind  sandbox.Kind
	}{
		{"usual", nil, nil, key.Usual(), ""},
		{"never-implied", []key.Scope{key.Read, key.Keys, key.Admin}, nil, []key.Scope{key.Read}, ""},
		{"asked", []key.Scope{key.Read, key.Keys}, []key.Scope{key.Keys}, []key.Scope{key.Keys}, ""},
		{"twice", nil, []key.Scope{key.Read, key.Read}, []key.Scope{key.Read}, ""},
		{"more-than-has", []key.Scope{key.Read}, []key.Scope{key.Manage}, nil, sandbox.Denied},
		{"usual-has-no-admin", nil, []key.Scope{key.Admin}, nil, sandbox.Denied},
		{"nothing-to-give", []key.Scope{key.Keys}, nil, nil, sandbox.Denied},
		{"unknown", nil, []key.Scope{"write"}, nil, sandbox.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, err := team.Grant{Scopes: tt.maker, HostImage: true}.Within(tt.asked)
			if sandbox.KindOf(err) != tt.kind {
				t.Fatalf("Within = %v, want %q", err, tt.kind)
			}
			if d := cmp.Diff(tt.want, g.Scopes); d != "" {
				t.Errorf("scopes (-want +got):\n%s", d)
			}
		})
	}
}

func TestIDs(t *testing.T) {
	if id := team.ID("key:a"); !team.ValidID(id) || id != team.ID("key:a") || id == team.ID("key:b") || id == team.MakerID("key:a") {
		t.Errorf("ID = %s", id)
	}
	for _, bad := range []string{"", "x", "00000000-0000-0000-0000-00000000000", "00000000-0000-0000-0000-00000000000g", "AAAAAAAA-0000-0000-0000-000000000000", "00000000+0000-0000-0000-000000000000"} {
		if team.ValidID(bad) {
			t.Errorf("%q is an ID", bad)
		}
	}
}

func FuzzValidID(f *testing.F) {
	f.Add(team.NoID)
	f.Add(team.ID("key:a"))
	f.Fuzz(func(t *testing.T, s string) {
		if team.ValidID(s) && len(s) != 36 {
			t.Errorf("%q is an ID", s)
		}
	})
}
