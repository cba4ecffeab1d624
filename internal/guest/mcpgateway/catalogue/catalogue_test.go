package catalogue_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/guest/mcpgateway/catalogue"
)

const text = `{"servers": {
	"files": {"run": ["node", "files.js", "{paths}"], "install": "npm ci"},
	"search": {"run": ["search", "--level={level?}"], "env": {"KEY": "{apiKey}", "URL": "http://{host?}/"}}
}}`

func TestParseConfig(t *testing.T) {
	c, err := catalogue.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, config string
		want         []catalogue.Server
		fail         string
	}{
		{
			name: "repository", config: `{"github/a/b.c": {"runCmd": "npm start", "installCmd": "npm ci", "envs": {"A": "x"}}}`,
			want: []catalogue.Server{{Name: "github/a/b.c", Repo: "a/b.c", Install: "npm ci", Run: "npm start", Env: map[string]string{"A": "x"}}},
		},
		{
			name: "list-of-arguments", config: `{"files": {"paths": ["/a b", "/c"]}}`,
			want: []catalogue.Server{{Name: "files", Install: "npm ci", Argv: []string{"node", "files.js", "/a b", "/c"}, Env: map[string]string{}}},
		},
		{
			name: "left-out", config: `{"search": {"apiKey": "k; rm -rf /"}}`,
			want: []catalogue.Server{{Name: "search", Argv: []string{"search"}, Env: map[string]string{"KEY": "k; rm -rf /"}}},
		},
		{
			name: "given", config: `{"search": {"apiKey": "k", "level": 3, "host": "h"}}`,
			want: []catalogue.Server{{Name: "search", Argv: []string{"search", "--level=3"}, Env: map[string]string{"KEY": "k", "URL": "http://h/"}}},
		},
		{name: "unknown-server", config: `{"exa": {"apiKey": "k"}}`, fail: "there are files, search"},
		{name: "missing-field", config: `{"search": {}}`, fail: "apiKey: it is missing"},
		{name: "unknown-field", config: `{"files": {"paths": [], "sudo": true}}`, fail: "sudo"},
		{name: "object-for-text", config: `{"search": {"apiKey": {}}}`, fail: "apiKey"},
		{name: "list-for-text", config: `{"search": {"apiKey": "k", "level": ["a", "b"]}}`, fail: "level"},
		{name: "zero-byte", config: `{"search": {"apiKey": "a\u0000b"}}`, fail: "apiKey"},
		{name: "no-run", config: `{"github/a/b": {}}`, fail: "runCmd"},
		{name: "more-than-a-repository", config: `{"github/a/b/../../c": {"runCmd": "x"}}`, fail: "github/OWNER"},
		{name: "dots", config: `{"github/a/..": {"runCmd": "x"}}`, fail: "github/OWNER"},
		{name: "option", config: `{"github/-a/b": {"runCmd": "x"}}`, fail: "github/OWNER"},
		{name: "repository-field", config: `{"github/a/b": {"runCmd": "x", "user": "root"}}`, fail: "user"},
		{name: "variable", config: `{"github/a/b": {"runCmd": "x", "envs": {"A=B": "x"}}}`, fail: "A=B"},
		{name: "empty", config: `{}`, fail: "no server"},
		{name: "not-json", config: `--help`, fail: "config"},
		{name: "two", config: `{"files":{"paths":"/"}} {}`, fail: "more than one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := catalogue.ParseConfig([]byte(tt.config), c)
			if tt.fail != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fail) {
					t.Errorf("error = %v, want %q", err, tt.fail)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for name, bad := range map[string]string{
		"no-program":      `{"servers": {"a": {"run": []}}}`,
		"field-for-it":    `{"servers": {"a": {"run": ["{program}"]}}}`,
		"github-is-taken": `{"servers": {"github/a/b": {"run": ["x"]}}}`,
		"unknown":         `{"servers": {"a": {"run": ["x"], "image": "y"}}}`,
	} {
		if _, err := catalogue.Parse([]byte(bad)); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	c, err := catalogue.Parse([]byte(text))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"github/a/b.c": {"runCmd": "npm start", "envs": {"A": "x"}}}`))
	f.Add([]byte(`{"files": {"paths": ["/a b", "/c"]}, "search": {"apiKey": "k", "level": 3}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		servers, err := catalogue.ParseConfig(data, c)
		if err != nil {
			return
		}
		for _, s := range servers {
			if s.Run == "" && len(s.Argv) == 0 || strings.Contains(s.Repo, "..") && !strings.Contains(s.Repo, "/") {
				t.Errorf("%+v", s)
			}
			for _, a := range s.Argv {
				if strings.ContainsRune(a, 0) {
					t.Errorf("%q", a)
				}
			}
		}
	})
}
