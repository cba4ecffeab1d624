package home_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const stranger = 4242

// A way that somebody else could change leads nowhere, and nothing is written.
func TestCreateByTheWaysOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make what is another user's")
	}
	tests := []struct {
		name string
		make func(t *testing.T, top string) (dir, outside string)
		want sandbox.Kind
	}{
		{"own", func(_ *testing.T, top string) (string, string) { return top + "/a/b", "" }, ""},
		{"own-link", func(t *testing.T, top string) (string, string) {
			must(t, os.Mkdir(top+"/real", 0o700), os.Symlink("real", top+"/link"))
			return top + "/link/b", ""
		}, ""},
		{"sticky", func(t *testing.T, top string) (string, string) {
			must(t, os.Mkdir(top+"/tmp", 0o700), os.Chmod(top+"/tmp", 0o1777|os.ModeSticky))
			return top + "/tmp/b", ""
		}, ""},
		{"users-directory", func(t *testing.T, top string) (string, string) {
			must(t, os.Mkdir(top+"/user", 0o755), os.Chown(top+"/user", stranger, stranger))
			return top + "/user/state", top + "/user"
		}, sandbox.Denied},
		{"users-link", func(t *testing.T, top string) (string, string) {
			must(t, os.Mkdir(top+"/root", 0o700), os.Symlink(top+"/root", top+"/link"), os.Lchown(top+"/link", stranger, stranger))
			return top + "/link/state", top + "/root"
		}, sandbox.Denied},
		{"writable-by-others", func(t *testing.T, top string) (string, string) {
			must(t, os.Mkdir(top+"/open", 0o700), os.Chmod(top+"/open", 0o777))
			return top + "/open/state", top + "/open"
		}, sandbox.Denied},
		{"link-to-a-users", func(t *testing.T, top string) (string, string) {
			must(t, os.Mkdir(top+"/user", 0o755), os.Chown(top+"/user", stranger, stranger), os.Symlink(top+"/user", top+"/link"))
			return top + "/link/state", top + "/user"
		}, sandbox.Denied},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			dir, outside := tt.make(t, top)
			err := home.Dirs{State: dir, Run: dir + "/run", Cache: dir + "/cache"}.Create()
			if sandbox.KindOf(err) != tt.want {
				t.Errorf("Create = %v, want kind %q", err, tt.want)
			}
			if outside == "" {
				return
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("there are %v, %v, in %s", left, err, outside)
			}
		})
	}
}

// What another could have written is not taken, and nobody is waited for.
func TestOpenTrusted(t *testing.T) {
	dir := t.TempDir()
	path := func(name string, mode os.FileMode, uid int) string {
		p := filepath.Join(dir, name)
		must(t, os.WriteFile(p, []byte("x"), 0o600), os.Chmod(p, mode))
		if uid > 0 && os.Geteuid() == 0 {
			must(t, os.Chown(p, uid, uid))
		}
		if uid < 0 && os.Geteuid() == 0 {
			must(t, os.Chown(p, 0, stranger))
		}
		return p
	}
	fifo, nowhere, link := filepath.Join(dir, "fifo"), filepath.Join(dir, "nowhere"), filepath.Join(dir, "link")
	must(t, unix.Mkfifo(fifo, 0o600), os.Symlink("none", nowhere), os.Symlink("own", link))
	for p, want := range map[string]string{
		path("own", 0o600, 0): "", path("readable", 0o644, 0): "", path("own-group", 0o620, 0): "", path("group", 0o620, -1): "chmod", path("others", 0o602, 0): "chmod",
		fifo: "regular", dir: "regular", filepath.Join(dir, "none"): "no such file", link: "", nowhere: "leads nowhere",
	} {
		f, err := home.OpenTrusted(p)
		if err == nil {
			f.Close()
		}
		if said(err) == "" != (want == "") || !strings.Contains(said(err), want) {
			t.Errorf("OpenTrusted(%s) = %q, want %q", p, said(err), want)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make what is another user's")
	}
	if _, err := home.OpenTrusted(path("theirs", 0o600, stranger)); sandbox.KindOf(err) != sandbox.Denied {
		t.Errorf("OpenTrusted of another's = %v, want denied", err)
	}
}

// A directory is listed where nobody else can put anything into it.
func TestOpenTrustedDir(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		must(t, os.Mkdir(p, 0o700), os.WriteFile(p+"/f", nil, 0o600), os.Chmod(p, mode))
		return p
	}
	link, nowhere := filepath.Join(dir, "link"), filepath.Join(dir, "nowhere")
	must(t, os.Symlink("open", link), os.Symlink("none/d", nowhere))
	for p, want := range map[string]string{
		make("own", 0o755): "", make("open", 0o777): "chmod", make("sticky", 0o777|os.ModeSticky): "chmod",
		link: "chmod", nowhere: "leads nowhere", filepath.Join(dir, "none"): "no such file", dir + "/own/f": "not a directory",
	} {
		f, err := home.OpenTrustedDir(p)
		if err == nil {
			names, lerr := f.Readdirnames(-1)
			if must(t, lerr, f.Close()); len(names) != 1 {
				t.Errorf("%s has %q", p, names)
			}
		}
		if said(err) == "" != (want == "") || !strings.Contains(said(err), want) {
			t.Errorf("OpenTrustedDir(%s) = %q, want %q", p, said(err), want)
		}
	}
}

func said(err error) string {
	if e, ok := err.(*sandbox.Error); ok { //nolint:errorlint // as it is returned
		return e.Msg + " " + e.Hint
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
