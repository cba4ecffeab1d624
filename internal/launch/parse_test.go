package launch_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/launch"
)

// What stands in a mode's place behind a directory that is there is no part of its name.
func TestParseWorkspaceMode(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"d", "d:x"} {
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := launch.ParseWorkspace("d:x"); err != nil || got.Dir != "d:x" {
		t.Errorf("a directory with a colon: %v, %v", got, err)
	}
	if _, err := launch.ParseWorkspace("d:rx"); err == nil || !strings.Contains(err.Error(), "there is no mode rx: use DIR") {
		t.Errorf("a mode that is none: %v", err)
	}
}

func TestParseWorkspace(t *testing.T) {
	tests := []struct {
		in   string
		want launch.WorkspaceArg // zero: an error
	}{
		{".", launch.WorkspaceArg{Dir: ".", Mode: "cow"}},
		{"dir:rw", launch.WorkspaceArg{Dir: "dir", Mode: "rw"}},
		{"dir:ro", launch.WorkspaceArg{Dir: "dir", Mode: "ro"}},
		{"a:b", launch.WorkspaceArg{Dir: "a:b", Mode: "cow"}},
		{"a:b:ro", launch.WorkspaceArg{Dir: "a:b", Mode: "ro"}},
		{"dir:ro:rw", launch.WorkspaceArg{Dir: "dir:ro", Mode: "rw"}},
		{"dir:ro/", launch.WorkspaceArg{Dir: "dir:ro/", Mode: "cow"}},
		{"", launch.WorkspaceArg{}},
		{":rw", launch.WorkspaceArg{}},
		{"a\x00b", launch.WorkspaceArg{}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := launch.ParseWorkspace(tt.in)
			if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.want.Dir != "") {
				t.Errorf("ParseWorkspace(%q): %v\n%s", tt.in, err, diff)
			}
		})
	}
}

func TestParseMount(t *testing.T) {
	tests := []struct {
		in   string
		want launch.MountArg // zero: an error
	}{
		{"/a:/b", launch.MountArg{Host: "/a", Guest: "/b"}},
		{"a:/b:ro", launch.MountArg{Host: "a", Guest: "/b", ReadOnly: true}},
		{"/a:b:/c/", launch.MountArg{Host: "/a:b", Guest: "/c"}},
		{"/a:/b:/c", launch.MountArg{Host: "/a:/b", Guest: "/c"}},
		{"/a:/b:/c:ro", launch.MountArg{Host: "/a:/b", Guest: "/c", ReadOnly: true}},
		{"a://b", launch.MountArg{Host: "a", Guest: "/b"}},
		{"/a:/b:rw", launch.MountArg{}},
		{"/a:/b:ro:ro", launch.MountArg{}},
		{"/a", launch.MountArg{}},
		{"/a:b", launch.MountArg{}},
		{":/b", launch.MountArg{}},
		{"/a:/", launch.MountArg{}},
		{"/a:/b/../..", launch.MountArg{}},
		{"/a:/b\x00", launch.MountArg{}},
		{"", launch.MountArg{}},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := launch.ParseMount(tt.in)
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
		m, err := launch.ParseMount(s)
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
			err := launch.ParseEnvFile(strings.NewReader(tt.in), got)
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
		err := launch.ParseEnvFile(strings.NewReader(in), map[string]string{})
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
		if launch.ParseEnvFile(strings.NewReader(s), env) != nil {
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
			name, value, err := launch.ParseEnvArg(tt.in, lookup)
			if (err != nil) != tt.fails {
				t.Fatalf("error %v, want one: %t", err, tt.fails)
			}
			if !tt.fails && (name != tt.name || value != tt.value) {
				t.Errorf("got %q, %q; want %q, %q", name, value, tt.name, tt.value)
			}
		})
	}
}

func TestParseSecret(t *testing.T) {
	tests := []struct {
		in, name, env, file string
		fails               bool
	}{
		{in: "A", name: "A"},
		{in: "_a1=env:B", name: "_a1", env: "B"},
		{in: "A=file:/x=y", name: "A", file: "/x=y"},
		{in: "A=env:", fails: true},
		{in: "A=file:", fails: true},
		{in: "A=", fails: true},
		{in: "A=value", fails: true},
		{in: "=env:B", fails: true},
		{in: "1A", fails: true},
		{in: "", fails: true},
		{in: strings.Repeat("A", 129), fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			name, env, file, err := launch.ParseSecret(tt.in)
			if (err != nil) != tt.fails {
				t.Fatalf("error %v, want one: %t", err, tt.fails)
			}
			if name != tt.name || env != tt.env || file != tt.file {
				t.Errorf("got %q, %q, %q; want %q, %q, %q", name, env, file, tt.name, tt.env, tt.file)
			}
		})
	}
}

// FuzzParseSecret holds that an error repeats nothing that may be a value.
func FuzzParseSecret(f *testing.F) {
	f.Add("TOKEN", "hunter2-hunter2")
	f.Add("not a name", "env=hunter2-hunter2")
	f.Fuzz(func(t *testing.T, name, value string) {
		if len(value) < 12 || strings.Contains(name, value) || strings.HasPrefix(value, "env:") || strings.HasPrefix(value, "file:") {
			return
		}
		if _, _, _, err := launch.ParseSecret(name + "=" + value); err != nil && strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	})
}

func TestHomes(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		homes     []string
		workspace string
		want      []api.Home // nil: an error
	}{
		{[]string{"claude=/home/user/.claude"}, dir, []api.Home{{Program: "claude", Paths: []string{"/home/user/.claude"}}}},
		{[]string{"a=/x,/y", "b=/z"}, dir, []api.Home{{Program: "a", Paths: []string{"/x", "/y"}}, {Program: "b", Paths: []string{"/z"}}}},
		{[]string{"claude=/home/user/.claude"}, "", nil},
		{[]string{"claude"}, dir, nil},
		{[]string{"=/x"}, dir, nil},
		{[]string{"claude="}, dir, nil},
		{[]string{"claude=.claude"}, dir, nil},
		{[]string{"claude=/x,"}, dir, nil},
	} {
		spec := launch.Spec{Workspace: tt.workspace, Homes: tt.homes}
		req, err := spec.Request(func(string) (string, bool) { return "", false }, func(string) {})
		if (err == nil) != (tt.want != nil) {
			t.Errorf("%q: %v", tt.homes, err)
		} else if err == nil {
			if diff := cmp.Diff(tt.want, req.Homes); diff != "" {
				t.Errorf("%q: %s", tt.homes, diff)
			}
		}
	}
}

// TestMeets: a place inside is met by what is shown in it or around it, and by nothing beside it.
func TestMeets(t *testing.T) {
	s := &launch.Spec{
		Mounts: []string{"/a:/home/ann/r/.git", "nonsense"}, Volumes: []string{"data:/srv/data:ro"}, Homes: []string{"notes=/home/user/.notes,/home/user/x/"},
	}
	for at, want := range map[string]struct {
		flag   string
		around bool
	}{
		"/home/ann/r/.git/worktrees/w": {"--mount /a:/home/ann/r/.git", true},
		"/home/ann/r/.git":             {"--mount /a:/home/ann/r/.git", true},
		"/home/ann/r":                  {"--mount /a:/home/ann/r/.git", false},
		"/home/ann/r/.github":          {},
		"/srv":                         {"--volume data:/srv/data:ro", false},
		"/home/user/x/.git":            {"--home notes=/home/user/.notes,/home/user/x/", true},
	} {
		if flag, around := s.Meets(at); flag != want.flag || around != want.around {
			t.Errorf("%s: %q, %t, want %+v", at, flag, around, want)
		}
	}
}
