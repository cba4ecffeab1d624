package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

func TestFurnish(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a home away")
	}
	const mine = "user:x:1000:1000::/home/user:/bin/sh"
	tests := []struct {
		name          string
		passwd, group string // "-": not there
		want          string // of passwd
	}{
		{"empty-image", "-", "-", mine + "\n"},
		{"added", "root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n", "root:x:0:0:root:/root:/bin/sh\n" + mine + "\n"},
		{"no-newline", "root:x:0:0::/:/bin/sh", "-", "root:x:0:0::/:/bin/sh\n" + mine + "\n"},
		{"has-the-id", "node:x:1000:1000::/home/node:/bin/sh\n", "-", "node:x:1000:1000::/home/node:/bin/sh\n"},
		{"has-the-name", "user:x:1000:7::/srv:/bin/sh\n", "-", "user:x:1000:7::/srv:/bin/sh\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range map[string]string{"passwd": tt.passwd, "group": tt.group} {
				if text == "-" {
					continue
				}
				if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second start adds nothing
				if err := furnish(root, control.Config{Cwd: "/srv/app"}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
			if err != nil || string(got) != tt.want {
				t.Errorf("passwd = %q, %v; want %q", got, err, tt.want)
			}
			if st, err := os.Stat(filepath.Join(root, "srv/app")); err != nil || !st.IsDir() {
				t.Errorf("the working directory: %v", err)
			}
		})
	}
}

// What an image leads elsewhere by a link stays as it is.
func TestFurnishFollowsNoLink(t *testing.T) {
	for _, link := range []string{"etc", "etc/passwd", "home", "home/user"} {
		t.Run(strings.ReplaceAll(link, "/", "-"), func(t *testing.T) {
			root, outside := t.TempDir(), t.TempDir()
			target := filepath.Join(outside, "target")
			if err := os.WriteFile(target, []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			if link != "etc/passwd" {
				target = outside
			}
			at := filepath.Join(root, link)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, at); err != nil {
				t.Fatal(err)
			}
			if err := furnish(root, control.Config{}); err == nil {
				t.Error("no error")
			}
			entries, _ := os.ReadDir(outside)
			text, _ := os.ReadFile(filepath.Join(outside, "target"))
			if len(entries) != 1 || string(text) != "x" {
				t.Errorf("outside has %v, %q", entries, text)
			}
		})
	}
}
