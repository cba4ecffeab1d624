package cli_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

func TestParseWorkspace(t *testing.T) {
	tests := []struct {
		in   string
		want cli.WorkspaceArg // zero: an error
	}{
		{".", cli.WorkspaceArg{Dir: ".", Mode: "cow"}},
		{"dir:rw", cli.WorkspaceArg{Dir: "dir", Mode: "rw"}},
		{"dir:ro", cli.WorkspaceArg{Dir: "dir", Mode: "ro"}},
		{"a:b", cli.WorkspaceArg{Dir: "a:b", Mode: "cow"}},
		{"a:b:ro", cli.WorkspaceArg{Dir: "a:b", Mode: "ro"}},
		{"dir:ro:rw", cli.WorkspaceArg{Dir: "dir:ro", Mode: "rw"}},
		{"dir:ro/", cli.WorkspaceArg{Dir: "dir:ro/", Mode: "cow"}},
		{"", cli.WorkspaceArg{}},
		{":rw", cli.WorkspaceArg{}},
		{"a\x00b", cli.WorkspaceArg{}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := cli.ParseWorkspace(tt.in)
			if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.want.Dir != "") {
				t.Errorf("ParseWorkspace(%q): %v\n%s", tt.in, err, diff)
			}
		})
	}
}

func TestParseMount(t *testing.T) {
	tests := []struct {
		in   string
		want cli.MountArg // zero: an error
	}{
		{"/a:/b", cli.MountArg{Host: "/a", Guest: "/b"}},
		{"a:/b:ro", cli.MountArg{Host: "a", Guest: "/b", ReadOnly: true}},
		{"/a:b:/c/", cli.MountArg{Host: "/a:b", Guest: "/c"}},
		{"/a:/b:/c", cli.MountArg{Host: "/a:/b", Guest: "/c"}},
		{"/a:/b:/c:ro", cli.MountArg{Host: "/a:/b", Guest: "/c", ReadOnly: true}},
		{"a://b", cli.MountArg{Host: "a", Guest: "/b"}},
		{"/a:/b:rw", cli.MountArg{}},
		{"/a:/b:ro:ro", cli.MountArg{}},
		{"/a", cli.MountArg{}},
		{"/a:b", cli.MountArg{}},
		{":/b", cli.MountArg{}},
		{"/a:/", cli.MountArg{}},
		{"/a:/b/../..", cli.MountArg{}},
		{"/a:/b\x00", cli.MountArg{}},
		{"", cli.MountArg{}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := cli.ParseMount(tt.in)
			if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.want.Host != "") {
				t.Errorf("ParseMount(%q): %v\n%s", tt.in, err, diff)
			}
		})
	}
}

func FuzzParseMount(f *testing.F) {
	for _, s := range []string{"/a:/b", "a:b:/c:ro", ":/", "/a:/b/../c", "::/::ro"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := cli.ParseMount(s)
		if err != nil {
			return
		}
		if m.Host == "" || !strings.HasPrefix(m.Guest, "/") || m.Guest == "/" || strings.Contains(m.Guest, "..") && strings.Contains(m.Guest+"/", "/../") {
			t.Errorf("ParseMount(%q) = %+v", s, m)
		}
		if !strings.HasPrefix(s, m.Host+":") {
			t.Errorf("ParseMount(%q) = %+v, which is another host path", s, m)
		}
	})
}

func TestParseEnvFile(t *testing.T) {
	tests := []struct {
		name, in string
		want     map[string]string // nil: an error
	}{
		{"empty", "", map[string]string{}},
		{"plain", "A=1\nB=two words \n", map[string]string{"A": "1", "B": "two words "}},
		{"no-last-newline", "A=1", map[string]string{"A": "1"}},
		{"empty-value", "A=\n", map[string]string{"A": ""}},
		{"quotes-stay", `A="x"`, map[string]string{"A": `"x"`}},
		{"equals-in-value", "A=b=c", map[string]string{"A": "b=c"}},
		{"comment", "# A=1\n\nB=#2\n", map[string]string{"B": "#2"}},
		{"utf-8", "A=ü\n", map[string]string{"A": "ü"}},
		{"no-equals", "A\n", nil},
		{"no-name", "=1\n", nil},
		{"leading-space", " A=1\n", nil},
		{"space-before-equals", "A =1\n", nil},
		{"export", "export A=1\n", nil},
		{"twice", "A=1\nA=2\n", nil},
		{"carriage-return", "A=1\r\n", nil},
		{"nul", "A=\x00\n", nil},
		{"bad-utf-8", "A=\xff\n", nil},
		{"control-in-name", "A\x1b=1\n", nil},
		{"long-line", "A=" + strings.Repeat("x", 200<<10), nil},
		{"long-file", strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 1100), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := map[string]string{}
			err := cli.ParseEnvFile(strings.NewReader(tt.in), got)
			if (err == nil) != (tt.want != nil) {
				t.Fatalf("error %v, want one: %t", err, tt.want == nil)
			}
			if err == nil {
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// TestEnvErrorsKeepSecrets holds that no error repeats what may be a secret.
func TestEnvErrorsKeepSecrets(t *testing.T) {
	for _, in := range []string{"hunter2\n", "A=hunter2\x00\n", "hunter2 x=1\n", "A=1\nA=hunter2\n", "A=hunter2\r\n", "A=hunter2\xff\n"} {
		err := cli.ParseEnvFile(strings.NewReader(in), map[string]string{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: error %v", in, err)
		}
	}
}

func FuzzParseEnvFile(f *testing.F) {
	f.Add("A=1\n# c\n\nB=2")
	f.Add("A=1\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		env := map[string]string{}
		if cli.ParseEnvFile(strings.NewReader(s), env) != nil {
			return
		}
		for k, v := range env {
			if k == "" || strings.ContainsAny(k, "= \n\x00") || strings.ContainsAny(v, "\n\x00") || !strings.Contains(s, k+"="+v) {
				t.Errorf("%q gave %q=%q", s, k, v)
			}
		}
	})
}

func TestParseEnvArg(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"SET": "here", "EMPTY": "", "BAD": "\xff"}[name]
		return v, ok
	}
	tests := []struct {
		in, name, value string
		fails           bool
	}{
		{in: "A=1", name: "A", value: "1"},
		{in: "A=", name: "A"},
		{in: "SET", name: "SET", value: "here"},
		{in: "EMPTY", name: "EMPTY"},
		{in: "UNSET", fails: true},
		{in: "BAD", fails: true},
		{in: "", fails: true},
		{in: "=", fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			name, value, err := cli.ParseEnvArg(tt.in, lookup)
			if (err != nil) != tt.fails {
				t.Fatalf("error %v, want one: %t", err, tt.fails)
			}
			if !tt.fails && (name != tt.name || value != tt.value) {
				t.Errorf("got %q, %q; want %q, %q", name, value, tt.name, tt.value)
			}
		})
	}
}

func TestPlace(t *testing.T) {
	tests := []struct {
		in, name, path string
		tree, dir      bool
	}{
		{in: "web:/x", name: "web", path: "/x"},
		{in: "web:", name: "web", path: ".", tree: true, dir: true},
		{in: "web:a:b", name: "web", path: "a:b"},
		{in: "./web:x", path: "./web:x"},
		{in: "/web:x", path: "/web:x"},
		{in: "Web:x", path: "Web:x"},
		{in: "a/b:c", path: "a/b:c"},
		{in: "dir/", path: "dir/", dir: true},
		{in: "dir/.", path: "dir/.", tree: true, dir: true},
		{in: ".", path: ".", tree: true, dir: true},
		{in: "..", path: ".."},
		{in: "-", path: "-"},
		{in: "sb_abcdefghij234567abcd:x", name: "sb_abcdefghij234567abcd", path: "x"},
		{in: "sb_short:x", path: "sb_short:x"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			name, path, tree, dir := cli.Place(tt.in)
			if name != tt.name || path != tt.path || tree != tt.tree || dir != tt.dir {
				t.Errorf("got %q, %q, %t, %t; want %q, %q, %t, %t", name, path, tree, dir, tt.name, tt.path, tt.tree, tt.dir)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	names := []string{"memory", "mount", "name", "network", "env", "env-file"}
	for in, want := range map[string]string{
		"memry": "memory", "mem": "memory", "naem": "name", "net": "network", "env-fle": "env-file", "wholly-other": "", "x": "",
	} {
		if got := cli.Nearest(in, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", in, got, want)
		}
	}
	if got := cli.EditDistance("abcd", "abdc"); got != 1 {
		t.Errorf("a swap is %d steps, want 1", got)
	}
	cli.EditDistance(strings.Repeat("a", 1<<20), strings.Repeat("b", 1<<20)) // returns soon
}
