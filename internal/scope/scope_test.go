package scope_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/scope"
)

func rw(target string) scope.Rule {
	return scope.Rule{Target: target, Permission: scope.Write, Recursive: true}
}

func ro(target string) scope.Rule {
	return scope.Rule{Target: target, Permission: scope.Read, Recursive: true}
}

func flat(r scope.Rule) scope.Rule {
	r.Recursive = false
	return r
}

func TestAt(t *testing.T) {
	s := scope.Scope{
		Allow: []scope.Rule{rw("/w"), ro("/w/doc"), flat(ro("/etc"))},
		Deny:  []scope.Rule{rw("/w/given"), ro("/w/hidden"), rw("/elsewhere")},
	}
	for _, tt := range []struct {
		path string
		want scope.Permission
	}{
		{"/w", scope.Write},
		{"/w/a.txt", scope.Write}, // whether or not it is there
		{"/w/doc/x", scope.Write}, // the most of what allows
		{"/wide", scope.None},     // whole components
		{"/w/given", scope.Read},
		{"/w/given/deep/er", scope.Read},
		{"/w/givenx", scope.Write},
		{"/w/hidden/x", scope.None},
		{"/elsewhere", scope.None}, // denying raises nothing
		{"/etc", scope.Read},
		{"/etc/passwd", scope.Read},
		{"/etc/ssl/cert", scope.None},
		{"/", scope.None},
		{"w/a", scope.None},
		{"", scope.None},
		{"/w/../etc/shadow", scope.None}, // nothing that is not resolved
		{"/w/", scope.None},
		{"/w/\x00", scope.None},
	} {
		if got := s.At(tt.path); got != tt.want {
			t.Errorf("at %q: %v, want %v", tt.path, got, tt.want)
		}
		if got := s.IsWritable(tt.path); got != (tt.want == scope.Write) {
			t.Errorf("%q is writable: %v", tt.path, got)
		}
	}
	if got := (scope.Scope{}).At("/"); got != scope.None {
		t.Errorf("the zero scope has %v", got)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		allow []scope.Rule
		deny  []scope.Rule
		want  string
	}{
		{"nothing", nil, nil, "scope must declare at least one allow rule"},
		{"relative", []scope.Rule{rw("w")}, nil, "scope target must be absolute: w"},
		{"relative-deny", []scope.Rule{rw("/w")}, []scope.Rule{rw("../w")}, "scope target must be absolute: ../w"},
		{"up", []scope.Rule{rw("/allow/../etc")}, nil, "scope target must be clean: /allow/../etc is /etc"},
		{"slash-at-the-end", []scope.Rule{rw("/w/")}, nil, "scope target must be clean: /w/ is /w"},
		{"no-permission", []scope.Rule{{Target: "/w"}}, nil, "scope target /w has no permission"},
		{"line-break", []scope.Rule{rw("/w\n")}, nil, `scope target must be made of letters that can be seen: "/w\n"`},
		{"bytes", []scope.Rule{rw("/\xff")}, nil, `scope target must be made of letters that can be seen: "/\xff"`},
		{"long", []scope.Rule{rw("/" + strings.Repeat("w", 5000))}, nil, "scope target must have at most 4095 bytes: /" + strings.Repeat("w", 199) + "..."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := scope.New(tt.allow, tt.deny)
			if e, ok := errors.AsType[*scope.Error](err); !ok || e.Msg != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
	if s, err := scope.Writable("/w"); err != nil || s.At("/w/x") != scope.Write {
		t.Errorf("%v, %v", s, err)
	}
}

func TestReadRule(t *testing.T) {
	for _, tt := range []struct {
		text string
		want scope.Rule // none: it is refused
	}{
		{`{"target":"/w","permission":"write"}`, rw("/w")},
		{`{"target":"/w","permission":"read","recursive":true}`, ro("/w")},
		{`{"target":"/w","permission":"read","recursive":false}`, flat(ro("/w"))},
		{`{"target":"/w","permission":"Write"}`, scope.Rule{}},
		{`{"target":"/w","permission":"admin"}`, scope.Rule{}},
		{`{"target":"/w"}`, scope.Rule{}},
		{`{"target":"/w","permission":"read","Recursive":false}`, scope.Rule{}},
		{`{"target":"/w","permission":"read","follow":true}`, scope.Rule{}},
		{`{"target":"/w","target":"/etc","permission":"read"}`, scope.Rule{}},
		{`["/w"]`, scope.Rule{}},
	} {
		var got scope.Rule
		err := json.Unmarshal([]byte(tt.text), &got)
		if (err == nil) != (tt.want.Target != "") || got != tt.want {
			t.Errorf("%s: %v, %v; want %v", tt.text, got, err, tt.want)
		}
		if err != nil {
			continue
		}
		b, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var again scope.Rule
		if err := json.Unmarshal(b, &again); err != nil || again != got {
			t.Errorf("%s: %v, %v", b, again, err)
		}
	}
	if _, err := json.Marshal(scope.Rule{Target: "/w"}); err == nil {
		t.Error("a rule without a permission was written")
	}
}

func TestWithin(t *testing.T) {
	parent := scope.Scope{
		Allow: []scope.Rule{rw("/w"), rw("/w/deep/src"), ro("/doc"), flat(rw("/out"))},
		Deny:  []scope.Rule{rw("/w/kept"), ro("/w/secret")},
	}
	taken := []scope.Taken{{By: "sib", Rules: []scope.Rule{rw("/w/sib"), ro("/w/free")}}}
	for _, tt := range []struct {
		name    string
		rule    scope.Rule
		why     string // "": it is within
		nearest scope.Rule
	}{
		{"part", rw("/w/a"), "", scope.Rule{}},
		{"read-where-it-writes", ro("/w/kept"), "", scope.Rule{}},
		{"read-a-sibling's", ro("/w/sib"), "", scope.Rule{}},
		{"write-where-a-sibling-reads", rw("/w/free"), "", scope.Rule{}},
		{"elsewhere", rw("/etc"), "no rule is about it", scope.Rule{}},
		{"name-that-begins-alike", rw("/wide"), "no rule is about it", scope.Rule{}},
		{"write-where-it-reads", rw("/doc/x"), "it may only be read there", ro("/doc/x")},
		{"more-than-direct", rw("/out"), "no one rule allows all of it", flat(rw("/out"))},
		{"above", rw("/"), "no one rule allows all of it", flat(rw("/out"))},
		{"read-above", ro("/"), "no one rule allows all of it", ro("/doc")},
		{"denied", rw("/w/kept/x"), "write:/w/kept is denied", ro("/w/kept/x")},
		{"denied-below", rw("/w"), "write:/w/kept is denied", rw("/w/deep/src")},
		{"read-denied", ro("/w/secret/x"), "read:/w/secret is denied", scope.Rule{}},
		{"sibling", rw("/w/sib/x"), "pod `sib` has write:/w/sib", ro("/w/sib/x")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parent.Within(tt.rule, taken)
			if got == nil {
				got = &scope.Refusal{}
			}
			if got.Why != tt.why || got.Nearest != tt.nearest {
				t.Errorf("%q, nearest %v; want %q, %v", got.Why, got.Nearest, tt.why, tt.nearest)
			}
			want := ""
			if tt.nearest.Target != "" {
				want = "the nearest that would be within is " + tt.nearest.String()
			}
			if hint := got.Hint(); hint != want {
				t.Errorf("hint %q, want %q", hint, want)
			}
		})
	}
}

// TestRestore: taking back is by exact rules, one for one.
func TestRestore(t *testing.T) {
	base := scope.Scope{Allow: []scope.Rule{rw("/w")}, Deny: []scope.Rule{rw("/w/a")}}
	given := base.Difference(rw("/w/a"), rw("/w/b"))
	if got := given.At("/w/b"); got != scope.Read {
		t.Errorf("what was given has %v", got)
	}
	back := given.Restore(rw("/w/a"), rw("/w/b"))
	if d := cmp.Diff(base, back); d != "" {
		t.Errorf("a rule of its own went, too: (-want +got)\n%s", d)
	}
	if got := back.Restore(rw("/w/b"), flat(rw("/w/a")), ro("/w/a")); !slices.Equal(got.Deny, base.Deny) {
		t.Errorf("once more, and by other rules: %v", got.Deny)
	}
	if got := base.Union(ro("/doc")).At("/doc/x"); got != scope.Read {
		t.Errorf("with a rule more: %v", got)
	}
	if len(base.Allow) != 1 || len(base.Deny) != 1 {
		t.Errorf("the scope itself was changed: %v", base)
	}
}

func TestSummary(t *testing.T) {
	s := scope.Scope{Allow: []scope.Rule{rw("/w"), flat(ro("/doc"))}, Deny: []scope.Rule{rw("/w/given")}}
	const want = "Readable:\n  - /w\n  - /doc [non-recursive]\nWritable:\n  - /w\n"
	if got := s.Summary(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestShared: who asks sees a scope of before or after, whole, and no change is lost.
func TestShared(t *testing.T) {
	s := scope.NewShared(scope.Scope{Allow: []scope.Rule{rw("/")}})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				s.Update(func(now scope.Scope) scope.Scope { return now.Difference(rw("/a"), rw("/b")) })
				if n := len(s.Load().Deny); n%2 != 0 {
					t.Errorf("%d rules: half a change was seen", n)
				}
			}
		})
	}
	group.Wait()
	if n := len(s.Load().Deny); n != 800 {
		t.Errorf("%d rules, want 800", n)
	}
}
