package boxed_test

import (
	"testing"

	"github.com/carboy-sandbox/carboy/internal/pod/boxed"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

func rule(p scope.Permission, target string) scope.Rule {
	return scope.Rule{Target: target, Permission: p, Recursive: true}
}

// TestAccessOf: what a wall is told says of each path what the scope says.
func TestAccessOf(t *testing.T) {
	w := func(target string) scope.Rule { return rule(scope.Write, target) }
	r := func(target string) scope.Rule { return rule(scope.Read, target) }
	paths := []string{"", "/src", "/src/x", "/src/x/y", "/srcx", "/docs", "/docs/a"}
	for _, tt := range []struct {
		name        string
		allow, deny []scope.Rule
		want        string
	}{
		{"all", []scope.Rule{w("/workspace")}, nil, ""},
		{"nothing", nil, nil, "all"},
		{"to read", []scope.Rule{r("/workspace")}, nil, "all"},
		{"a directory", []scope.Rule{w("/workspace/src")}, nil, "all, not src"},
		{"two", []scope.Rule{w("/workspace/src"), w("/workspace/docs")}, nil, "all, not docs, not src"},
		{"a child has some", []scope.Rule{w("/workspace")}, []scope.Rule{w("/workspace/src")}, "src"},
		{"a child has some of some", []scope.Rule{w("/workspace/src")}, []scope.Rule{w("/workspace/src/x")}, "all, not src, src/x"},
		{"a child has all", []scope.Rule{w("/workspace")}, []scope.Rule{w("/workspace")}, "all"},
		{"elsewhere", []scope.Rule{w("/workspace"), w("/etc"), w("/")}, nil, ""},
		{"a name that begins alike", []scope.Rule{w("/workspacex")}, nil, "all"},
	} {
		s := scope.Scope{Allow: tt.allow, Deny: tt.deny}
		got, err := boxed.AccessOf(s)
		if err != nil || got.String() != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
		for _, p := range paths {
			rel := "."
			if p != "" {
				rel = p[1:]
			}
			if got.ReadOnly(rel) == s.IsWritable(sandbox.WorkspacePath+p) {
				t.Errorf("%s: %s is read-only by the wall: %t", tt.name, p, got.ReadOnly(rel))
			}
		}
	}
	for _, bad := range []scope.Scope{
		{Allow: []scope.Rule{{Target: "/workspace", Permission: scope.Write}}},
		{Allow: []scope.Rule{w("/workspace")}, Deny: []scope.Rule{{Target: "/workspace/src", Permission: scope.Write}}},
	} {
		if got, err := boxed.AccessOf(bad); sandbox.KindOf(err) != sandbox.Unsupported {
			t.Errorf("%v: %q, %v", bad, got, err)
		}
	}
}
