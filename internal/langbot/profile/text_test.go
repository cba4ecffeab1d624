package profile_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
)

func TestTruncate(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		limit    int
		want     string
		cut      bool
	}{
		{"short", "hello", 100, "hello", false},
		{"exact", strings.Repeat("a", 200), 200, strings.Repeat("a", 200), false},
		{"exact-in-characters", strings.Repeat("é", 200), 200, strings.Repeat("é", 200), false},
		{"nothing", "", 0, "", false},
		{"no-room", "hello", 0, "", true},
		{"less-than-none", "hello", -1, "", true},
		{"notice-does-not-fit", strings.Repeat("a", 50), 10, "\n\n... [50 ", true},
		{
			"60-40", strings.Repeat("H", 300) + strings.Repeat("T", 300), 100,
			strings.Repeat("H", 37) + "\n\n... [538 characters truncated] ...\n\n" + strings.Repeat("T", 25), true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, cut := profile.Truncate(tt.in, tt.limit)
			if got != tt.want || cut != tt.cut {
				t.Errorf("Truncate = %q, %v, want %q, %v", got, cut, tt.want, tt.cut)
			}
		})
	}
}

// checkCut holds what is promised of any text and limit.
func checkCut(t interface{ Fatalf(string, ...any) }, s string, limit int) {
	got, cut := profile.Truncate(s, limit)
	n := utf8.RuneCountInString(s)
	if cut != (n > max(limit, 0)) {
		t.Fatalf("%d characters, limit %d: cut is %v", n, limit, cut)
	}
	if !cut {
		if got != s {
			t.Fatalf("changed what fits")
		}
		return
	}
	if have := utf8.RuneCountInString(got); have > max(limit, 0) {
		t.Fatalf("%d characters, of at most %d", have, limit)
	}
	i := strings.Index(got, "\n\n... [")
	head, rest, ok := strings.Cut(got, "] ...\n\n")
	if i < 0 || !ok {
		return // no more of the notice than there is room for
	}
	// The text may have such a notice itself: then nothing follows of where ours is.
	if strings.Contains(s, "characters truncated") {
		return
	}
	if !strings.HasPrefix(s, head[:i]) || !strings.HasSuffix(s, rest) {
		t.Fatalf("neither its head nor its tail: %q", got)
	}
	h, r := utf8.RuneCountInString(got[:i]), utf8.RuneCountInString(rest)
	if h*2 < r*3-8 || h*2 > r*3+8 {
		t.Fatalf("head of %d and tail of %d are not 60 to 40", h, r)
	}
}

func TestTruncateNeverExceeds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Repeat(rapid.String().Draw(t, "unit"), rapid.IntRange(0, 300).Draw(t, "times"))
		checkCut(t, s, rapid.IntRange(-2, 600).Draw(t, "limit"))
	})
}

func FuzzTruncate(f *testing.F) {
	f.Add("hello\xff world é", 4)
	f.Add(strings.Repeat("ab", 100), 60)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		checkCut(t, s, limit)
	})
}

func TestSessionIDTemplate(t *testing.T) {
	vars := map[string]string{"launcher_type": "person", "launcher_id": "test_user", "query_id": "7", "odd": "a/b {x}"}
	for _, tt := range []struct{ template, want, fails string }{
		{"", "person_test_user", ""},
		{"{query_id}", "7", ""},
		{"fixed", "fixed", ""},
		{"{nobody}-{query_id}", "unknown-7", ""},
		{"{{{query_id}}}", "{7}", ""},
		{"{odd}", "a/b {x}", ""}, // nothing is cleaned, nor rendered twice
		{"{", "", "has no match"},
		{"}", "", "has no match"},
		{"{query_id", "", "has no match"},
		{"{}", "", "not the name"},
		{"{query_id:>10}", "", "not the name"},
		{"{query_id!r}", "", "not the name"},
		{"{query_id.__class__}", "", "not the name"},
		{"{a[b]}", "", "not the name"},
	} {
		got, err := profile.SessionID(tt.template, vars)
		if got != tt.want || (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("SessionID(%q) = %q, %v, want %q, %q", tt.template, got, err, tt.want, tt.fails)
		}
	}
}

func FuzzSessionID(f *testing.F) {
	f.Add("{launcher_type}_{launcher_id}", "x")
	f.Add("{{}}{a}", "{a}")
	f.Fuzz(func(t *testing.T, template, value string) {
		got, err := profile.SessionID(template, map[string]string{"a": value})
		if err != nil {
			if profile.Class(err) != langbot.ClassValidation {
				t.Fatalf("SessionID = %v", err)
			}
			return
		}
		// Doubling what it rendered to is a template for that.
		doubled := strings.NewReplacer("{", "{{", "}", "}}").Replace(got)
		if again, err := profile.SessionID(doubled, nil); err != nil || got != "" && again != got {
			t.Fatalf("%q rendered to %q, and that to %q, %v", template, got, again, err)
		}
	})
}

// What was left out before counts among what a cut leaves out.
func TestToolResultCountsWhatWasLeftOut(t *testing.T) {
	r := sessions.Result{Stdout: strings.Repeat("a", 5000) + excerpt.Note(1000) + strings.Repeat("b", 5000), StdoutBytes: 11_000, StdoutLeftOut: 1000}
	got := profile.ToolResult(r, 1000, 10_000)
	head, rest, _ := strings.Cut(got.Stdout, "\n\n... [")
	count, tail, _ := strings.Cut(rest, " characters truncated] ...\n\n")
	if want := fmt.Sprint(11_000 - len(head) - len(tail)); count != want || !got.StdoutTruncated || len(got.Stdout) != 1000 {
		t.Errorf("%s are left out, want %s, in %d characters", count, want, len(got.Stdout))
	}
	if got := profile.ToolResult(r, -1, 10_000); got.Stdout != r.Stdout || !got.StdoutTruncated {
		t.Errorf("all that is kept: %d bytes, %v", len(got.Stdout), got.StdoutTruncated)
	}
}
