package launch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/launch"
)

func TestIsImagePath(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("team/tool", 0o755); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]bool{
		"": false, "host": false, "debian": false, "debian:12": false, "team/other": false, "team/tool:1": false,
		"registry.example:5000/tool": false, "tool@sha256:00": false, "tarball": false,
		".": true, "..": true, "/": true, "./x": true, "../x": true, "/x": true, "team/tool": true,
		"x.tar": true, "x.tar.gz": true, "x.tgz": true, "none/x.tar": true,
	} {
		if got := launch.IsImagePath(arg); got != want {
			t.Errorf("IsImagePath(%q) = %v, want %v", arg, got, want)
		}
	}
}

func FuzzPathName(f *testing.F) {
	f.Add("/a/Root FS!.tar.gz")
	f.Add("\xff/-\x00")
	f.Fuzz(func(t *testing.T, path string) {
		if got := launch.PathName(path); !validPathName.MatchString(got) || len(got) > 200 {
			t.Errorf("PathName(%q) = %q", path, got)
		}
	})
}

func TestPathName(t *testing.T) {
	seen := map[string]string{}
	for _, path := range []string{
		"/a/rootfs", "/b/rootfs", "/a/Root FS!.tar.gz", "/", "/-", "/a/ä", "/a/..x..tgz", "/a/" + strings.Repeat("x-", 200),
	} {
		got := launch.PathName(path)
		if !validPathName.MatchString(got) || seen[got] != "" {
			t.Errorf("PathName(%q) = %q, which is no name, or that of %q", path, got, seen[got])
		}
		seen[got] = path
	}
	t.Chdir(t.TempDir())
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := launch.PathName("./x"), launch.PathName(filepath.Join(wd, "x")); a != b {
		t.Errorf("one path has two names, %q and %q", a, b)
	}
}

func TestArgvOf(t *testing.T) {
	prog, none := "prog", ""
	conf := &api.ImageConfig{Entrypoint: []string{"entry", "-x"}, Cmd: []string{"cmd"}}
	tests := []struct {
		name       string
		conf       *api.ImageConfig
		entrypoint *string
		given      []string
		want       []string
	}{
		{"both", conf, nil, nil, []string{"entry", "-x", "cmd"}},
		{"given", conf, nil, []string{"a"}, []string{"entry", "-x", "a"}},
		{"replaced", conf, &prog, nil, []string{"prog"}},
		{"replaced-given", conf, &prog, []string{"a"}, []string{"prog", "a"}},
		{"removed", conf, &none, nil, nil},
		{"removed-given", conf, &none, []string{"a"}, []string{"a"}},
		{"cmd-alone", &api.ImageConfig{Cmd: []string{"cmd"}}, nil, nil, []string{"cmd"}},
		{"cmd-alone-given", &api.ImageConfig{Cmd: []string{"cmd"}}, nil, []string{"a"}, []string{"a"}},
		{"entrypoint-alone", &api.ImageConfig{Entrypoint: []string{"e"}}, nil, nil, []string{"e"}},
		{"nothing", &api.ImageConfig{}, nil, nil, nil},
		{"host", nil, nil, []string{"a"}, []string{"a"}},
		{"host-entrypoint", nil, &prog, []string{"a"}, []string{"prog", "a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, launch.ArgvOf(tt.conf, tt.entrypoint, tt.given), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("ArgvOf (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff([]string{"entry", "-x"}, conf.Entrypoint); diff != "" {
		t.Errorf("the image's own was written over:\n%s", diff)
	}
}

func TestParseIsolation(t *testing.T) {
	for arg, want := range map[string][]string{
		"": {""}, "gvisor": {"gvisor"}, "process,gvisor": {"process", "gvisor"}, "a,b,c": {"a", "b", "c"},
	} {
		if got, err := launch.ParseIsolation(arg); err != nil || !cmp.Equal(got, want) {
			t.Errorf("ParseIsolation(%q) = %q, %v, want %q", arg, got, err, want)
		}
	}
	for _, arg := range []string{",", "a,", ",a", "a,,b", "a,a"} {
		if got, err := launch.ParseIsolation(arg); err == nil {
			t.Errorf("ParseIsolation(%q) = %q, want an error", arg, got)
		}
	}
}

// validPathName is a part of what the store takes for a name.
var validPathName = regexp.MustCompile(`^localhost/[a-z0-9]+(-[a-z0-9]+)*:path-[0-9a-f]{8}$`)
