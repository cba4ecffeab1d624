package home_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const nobody = 3_999_999_999 // no /run/user of that uid

func getenv(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

func TestFind(t *testing.T) {
	all := map[string]string{
		"XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r/", "XDG_CACHE_HOME": "/a/../c", "XDG_CONFIG_HOME": "/f",
	}
	xdg := home.Dirs{State: "/s/carboy", Run: "/r/carboy", Cache: "/c/carboy", Config: "/f/carboy"}
	tests := []struct {
		name string
		env  map[string]string
		uid  int
		want home.Dirs
	}{
		{name: "all-set", env: all, uid: 1000, want: xdg},
		{name: "all-set-for-root", env: all, uid: 0, want: xdg},
		{name: "root", env: map[string]string{"HOME": "/root"}, uid: 0, want: home.Dirs{
			State: "/var/lib/carboy", Run: "/run/carboy", Cache: "/var/cache/carboy", Config: "/etc/carboy",
		}},
		{name: "root-without-home", uid: 0, want: home.Dirs{
			State: "/var/lib/carboy", Run: "/run/carboy", Cache: "/var/cache/carboy", Config: "/etc/carboy",
		}},
		{
			name: "root-with-one-set", env: map[string]string{"HOME": "/root", "XDG_RUNTIME_DIR": "/r"}, uid: 0,
			want: home.Dirs{
				State: "/root/.local/state/carboy", Run: "/r/carboy",
				Cache: "/root/.cache/carboy", Config: "/root/.config/carboy",
			},
		},
		{name: "none-set", env: map[string]string{"HOME": "/home/ann"}, uid: nobody, want: home.Dirs{
			State: "/home/ann/.local/state/carboy", Run: "/home/ann/.cache/carboy/run",
			Cache: "/home/ann/.cache/carboy", Config: "/home/ann/.config/carboy",
		}},
		{
			name: "empty-is-unset", uid: nobody,
			env: map[string]string{"HOME": "/home/ann", "XDG_STATE_HOME": "", "XDG_CACHE_HOME": "/c"},
			want: home.Dirs{
				State: "/home/ann/.local/state/carboy", Run: "/c/carboy/run",
				Cache: "/c/carboy", Config: "/home/ann/.config/carboy",
			},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := home.Find(getenv(tc.env), tc.uid)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("Find (-want +got):\n%s", d)
			}
		})
	}
}

func TestFindRunUser(t *testing.T) {
	const uid = 3_999_999_998
	dir := fmt.Sprintf("/run/user/%d", uid)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Skip(err)
	}
	defer os.Remove(dir)
	tests := []struct {
		name  string
		mode  os.FileMode
		owner int
		want  string
	}{
		{"ours", 0o700, uid, dir + "/carboy"},
		{"of-another", 0o700, uid - 1, "/h/.cache/carboy/run"},
		{"open", 0o755, uid, "/h/.cache/carboy/run"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.Chown(dir, tc.owner, tc.owner); err != nil {
				t.Skip(err)
			}
			if err := os.Chmod(dir, tc.mode); err != nil {
				t.Fatal(err)
			}
			got, err := home.Find(getenv(map[string]string{"HOME": "/h"}), uid)
			if err != nil || got.Run != tc.want {
				t.Errorf("Find = %+v, %v; want Run %s", got, err, tc.want)
			}
		})
	}
}

func TestFindRefuses(t *testing.T) {
	tests := []struct {
		name string
		env  map[string]string
		want string // in the error
	}{
		{"no-home", nil, "HOME is not set"},
		{"relative-home", map[string]string{"HOME": "ann"}, "HOME"},
		{"relative-state", map[string]string{"HOME": "/h", "XDG_STATE_HOME": "s"}, "XDG_STATE_HOME"},
		{"relative-run", map[string]string{"HOME": "/h", "XDG_RUNTIME_DIR": "./r"}, "XDG_RUNTIME_DIR"},
		{"relative-cache", map[string]string{"HOME": "/h", "XDG_CACHE_HOME": "~/c"}, "XDG_CACHE_HOME"},
		{"relative-config", map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "../f"}, "XDG_CONFIG_HOME"},
		{"nul", map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "/f\x00"}, "XDG_CONFIG_HOME"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			d, err := home.Find(getenv(tc.env), nobody)
			if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Find = %+v, %v; want Invalid and %q", d, err, tc.want)
			}
		})
	}
}

func TestCreate(t *testing.T) {
	base := longDir(t, 300)
	d := home.Dirs{State: base + "/a/b/s", Run: base + "/a/r", Cache: base + "/c", Config: base + "/f"}
	for range 2 {
		if err := d.Create(); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{base + "/a", base + "/a/b", d.State, d.Run, d.Cache} {
		st, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Mode().Perm(); got != 0o700 {
			t.Errorf("%s has mode %o, want 700", dir, got)
		}
	}
	if _, err := os.Stat(d.Config); err == nil {
		t.Error("Config was created, and nobody writes to it")
	}
}

func TestCreateRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  sandbox.Kind
	}{
		{"writable-by-others", func(t *testing.T, dir string) { os.Chmod(dir, 0o777) }, sandbox.Denied},
		{"writable-by-group", func(t *testing.T, dir string) { os.Chmod(dir, 0o770) }, sandbox.Denied},
		{"sticky", func(t *testing.T, dir string) { os.Chmod(dir, 0o777|os.ModeSticky) }, sandbox.Denied},
		{"of-another-user", func(t *testing.T, dir string) {
			if err := os.Chown(dir, 1234, 1234); err != nil {
				t.Skip(err)
			}
		}, sandbox.Denied},
		{"a-file", func(t *testing.T, dir string) {
			os.Remove(dir)
			os.WriteFile(dir, nil, 0o600)
		}, sandbox.Internal},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			base := t.TempDir()
			d := home.Dirs{State: base + "/s", Run: base + "/r", Cache: base + "/c"}
			if err := os.Mkdir(d.Run, 0o700); err != nil {
				t.Fatal(err)
			}
			tc.spoil(t, d.Run)
			if err := d.Create(); sandbox.KindOf(err) != tc.want {
				t.Errorf("Create = %v, want kind %q", err, tc.want)
			}
		})
	}
}

// longDir returns a new private directory whose path has at least n bytes.
func longDir(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for len(dir) < n {
		dir = filepath.Join(dir, strings.Repeat("d", min(200, max(1, n-len(dir)-1))))
	}
	if err := (home.Dirs{State: dir, Run: dir, Cache: dir}).Create(); err != nil {
		t.Fatal(err)
	}
	return dir
}
