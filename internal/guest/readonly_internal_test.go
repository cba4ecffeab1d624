package guest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/google/go-cmp/cmp"
)

func TestWritable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a home away")
	}
	tests := []struct {
		name   string
		cfg    control.Config
		passwd string
		links  map[string]string
		dirs   []string
		want   []string // nil: an error
	}{
		{name: "plain", cfg: control.Config{Writable: []string{"/workspace"}}, want: []string{"/workspace", "/tmp", "/dev/shm", "/var/tmp", "/home/user"}},
		{name: "mounts-in-the-workspace", cfg: control.Config{Writable: []string{"/workspace", "/workspace/x", "/mnt/y"}}, dirs: []string{"workspace/x", "mnt/y"}, want: []string{"/workspace", "/mnt/y", "/tmp", "/dev/shm", "/var/tmp", "/home/user"}},
		{name: "missing", cfg: control.Config{Writable: []string{"/mnt/none"}}},
		{name: "tmp-is-a-link", cfg: control.Config{}, links: map[string]string{"tmp": "/usr"}},
		{name: "workspace-is-a-link", cfg: control.Config{Writable: []string{"/workspace"}}, links: map[string]string{"workspace": "/etc"}},
		{name: "var-tmp-is-a-link", cfg: control.Config{}, links: map[string]string{"var/tmp": "/etc"}, want: []string{"/tmp", "/dev/shm", "/home/user"}},
		{name: "home-is-a-link", cfg: control.Config{}, links: map[string]string{"home/user": "/etc"}, want: []string{"/tmp", "/dev/shm", "/var/tmp"}},
		{name: "home-is-the-root", cfg: control.Config{}, passwd: "user:x:1000:1000::/:/bin/sh\n", want: []string{"/tmp", "/dev/shm", "/var/tmp"}},
		{name: "home-is-the-systems", cfg: control.Config{User: "daemon"}, passwd: "daemon:x:1:1::/usr/sbin:/bin/sh\n", want: []string{"/tmp", "/dev/shm", "/var/tmp"}},
		{name: "home-elsewhere", cfg: control.Config{User: "app"}, passwd: "app:x:7:7::/srv/app:/bin/sh\n", dirs: []string{"srv/app"}, want: []string{"/tmp", "/dev/shm", "/var/tmp", "/srv/app"}},
		{name: "home-missing", cfg: control.Config{User: "app"}, passwd: "app:x:7:7::/srv/app:/bin/sh\n", want: []string{"/tmp", "/dev/shm", "/var/tmp"}},
		{name: "home-in-tmp", cfg: control.Config{User: "app"}, passwd: "app:x:7:7::/tmp/app:/bin/sh\n", dirs: []string{"tmp/app"}, want: []string{"/tmp", "/dev/shm", "/var/tmp"}},
		{name: "nobody-of-the-sort", cfg: control.Config{User: "ghost"}, want: []string{"/tmp", "/dev/shm", "/var/tmp"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for _, d := range append([]string{"etc", "usr", "var", "home", "tmp", "dev/shm", "workspace"}, tt.dirs...) {
				if _, ok := tt.links[d]; ok {
					continue
				}
				if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for name, to := range tt.links {
				if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(tt.passwd), 0o644); err != nil {
				t.Fatal(err)
			}
			tt.cfg.ReadOnlyRoot = true
			if tt.cfg.User == "" {
				tt.cfg.User = "user"
			}
			for range 2 { // and once more, with what the first start made
				got, err := writable(tt.cfg, root)
				if d := cmp.Diff(tt.want, got); d != "" || (err != nil) != (tt.want == nil) {
					t.Errorf("%v (-want +got):\n%s", err, d)
				}
			}
		})
	}
	if got, err := writable(control.Config{Writable: []string{"/x"}}, "/"); got != nil || err != nil {
		t.Errorf("where the root is writable: %q, %v", got, err)
	}
}
