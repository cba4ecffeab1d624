package tool_test

import (
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/guest/tool"
)

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		ok         bool
	}{
		{"good", ` {"path":"x","offset":3} ` + "\n", true},
		{"unknown-field", `{"path":"x","offsets":3}`, false},
		{"another-case", `{"Path":"x"}`, false},
		{"twice", `{"path":"x","path":"y"}`, false},
		{"two", `{"path":"x"}{"path":"y"}`, false},
		{"cut", `{"path":"x"`, false},
		{"null", `null`, false},
		{"list", `[]`, false},
		{"empty", ``, false},
		{"wrong-type", `{"path":3}`, false},
		{"fraction", `{"path":"x","offset":1.5}`, false},
		{"no-utf-8", "{\"path\":\"\xff\"}", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var q tools.ReadRequest
			if err := tool.Decode([]byte(tt.body), &q); (err == nil) != tt.ok {
				t.Errorf("decode = %v", err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"path":"/workspace/x","content":"y","encoding":"base64","mode":"append"}`))
	f.Add([]byte(`{"path":"\ud800"}`))
	f.Add([]byte(`{}{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q tools.WriteRequest
		if tool.Decode(b, &q) == nil && !strings.Contains(string(b), "{") {
			t.Errorf("%q was read", b)
		}
		_ = tool.Decode(b, &tools.ReadRequest{})
		_ = tool.Decode(b, &tools.GrepRequest{})
	})
}

// FuzzGlob reads any pattern, and matches with those that it could read.
func FuzzGlob(f *testing.F) {
	for _, p := range []string{"*", "**/*.go", "a/**", "[!a-z]?", "{a,b{c,d}}", `\[`, "[]a]", "[a", "{", "a,}", "***", "/", "./x", "[[:alpha:]]", "[^/]", "é?"} {
		f.Add(p, "a/b/c.go")
	}
	f.Fuzz(func(t *testing.T, p, rel string) {
		match, err := tool.Pattern(p)
		if err != nil {
			return
		}
		match(rel)
		plain := !strings.ContainsAny(p, `*?[]{}\,`) && strings.Trim(p, "./") == p
		if plain && !match(p) {
			t.Errorf("%q does not match itself", p)
		}
		if plain && !match("x/"+p) {
			t.Errorf("%q is not found in a directory", p)
		}
	})
}

// FuzzPlace looks where a path leads: below the root, or nowhere.
func FuzzPlace(f *testing.F) {
	for _, p := range []string{"", "x", "/workspace", "/workspace/x", "/workspacefoo", "/workspace/../etc", "../x", "x/../../y", "//x", "/", "a\x00"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		rel, abs, err := tool.Place("/workspace", p)
		if err != nil {
			return
		}
		for part := range strings.SplitSeq(rel, "/") {
			if part == ".." || part == "" {
				t.Errorf("%q is %q below the root", p, rel)
			}
		}
		if abs != "/workspace" && !strings.HasPrefix(abs, "/workspace/") {
			t.Errorf("%q is %q", p, abs)
		}
	})
}

func FuzzDirents(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x18\x00\x08name\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range tool.Dirents(b) {
			if name == "" || name == "." || name == ".." || strings.IndexByte(name, 0) >= 0 {
				t.Errorf("a name %q", name)
			}
		}
	})
}
