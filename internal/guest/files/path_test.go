package files_test

import (
	"path"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/files"
)

func TestResolve(t *testing.T) {
	tests := []struct {
		name, path, dir string
		want            string // "" is an error
	}{
		{name: "empty", want: "/home/user"},
		{name: "empty-with-directory", dir: "/workspace", want: "/workspace"},
		{name: "relative", path: "a/b", want: "/home/user/a/b"},
		{name: "relative-with-directory", path: "a", dir: "/workspace", want: "/workspace/a"},
		{name: "dot", path: ".", dir: "/workspace", want: "/workspace"},
		{name: "absolute", path: "/etc/passwd", dir: "/workspace", want: "/etc/passwd"},
		{name: "home", path: "~", dir: "/workspace", want: "/home/user"},
		{name: "below-home", path: "~/x/", dir: "/workspace", want: "/home/user/x"},
		{name: "up", path: "../../../x", want: "/x"},
		{name: "up-in-text", path: "/a/../b", want: "/b"},
		{name: "slashes", path: "//a//./b/", want: "/a/b"},
		{name: "tilde-later", path: "a/~", want: "/home/user/a/~"},
		{name: "newline-and-bytes", path: "a\n\xff", want: "/home/user/a\n\xff"},
		{name: "other-home", path: "~root/x"},
		{name: "nul", path: "a\x00b"},
		{name: "long", path: strings.Repeat("a/", 2100)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := files.Resolve(tt.path, "/home/user", tt.dir)
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("Resolve(%q) = %q, %v, want %q", tt.path, got, err, tt.want)
			}
		})
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("~/a/../b", "/workspace")
	f.Add("../x", "")
	f.Add("0", "/\x00")
	f.Fuzz(func(t *testing.T, p, dir string) {
		if dir != "" && !path.IsAbs(dir) {
			t.Skip("start directories are absolute")
		}
		got, err := files.Resolve(p, "/home/user", dir)
		if err != nil {
			return
		}
		if !path.IsAbs(got) || path.Clean(got) != got || len(got) > 4095 {
			t.Errorf("Resolve(%q, %q) = %q", p, dir, got)
		}
		if again, err := files.Resolve(got, "/other", "/other"); err != nil || again != got {
			t.Errorf("Resolve(%q) = %q, %v: not stable", got, again, err)
		}
	})
}
