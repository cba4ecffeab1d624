package beneath_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

// TestParent goes along paths of a user's: no link in a directory that a
// sandbox may have been given is followed, and the first is named.
func TestParent(t *testing.T) {
	_, guests, hosts := newPlanted(t)
	t.Chdir(guests)
	abs := func(rel string) string { return filepath.Join(guests, rel) }
	tests := []struct {
		name, path string
		in, at     string // the directory, and the name in it
		link       string // or the link that is named
	}{
		{name: "file", path: "own", in: guests, at: "own"},
		{name: "file-by-its-whole-path", path: abs("own"), in: guests, at: "own"},
		{name: "new", path: "dir/new", in: abs("dir"), at: "new"},
		{name: "directory", path: "dir/", in: abs("dir"), at: "."},
		{name: "directory-and-dot", path: "dir/.", in: abs("dir"), at: "."},
		{name: "here", path: ".", in: guests, at: "."},
		{name: "above", path: "..", in: filepath.Dir(guests), at: "."},
		{name: "beside", path: "../host/canary", in: hosts, at: "canary"},
		{name: "taken-back-by-its-text", path: "abs/../own", in: guests, at: "own"},
		{name: "root", path: "/", in: "/", at: "."},
		{name: "link-itself", path: "abs", in: guests, at: "abs"},

		{name: "through-link", path: "abs/canary", link: "abs"},
		{name: "through-relative-link", path: "up/canary", link: "up"},
		{name: "through-link-by-its-whole-path", path: abs("abs/canary"), link: abs("abs")},
		{name: "through-link-that-stays-inside", path: "in/x", link: "in"},
		{name: "through-deep-link", path: "dir/up/x", link: "dir/up"},
		{name: "link-and-slash", path: "abs/", link: "abs"},
		{name: "link-and-dot", path: abs("abs") + "/.", link: abs("abs")},
		{name: "through-nowhere", path: "none/x", link: "none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, at, err := beneath.Parent(tt.path)
			if tt.link != "" {
				link, ok := errors.AsType[*beneath.LinkError](err)
				if !ok || link.Path != tt.link || !errors.Is(err, unix.ELOOP) {
					t.Fatalf("got %v, want the link %q named", err, tt.link)
				}
				return
			}
			must(t, err)
			defer d.Close()
			if in, err := os.Readlink(d.Path()); in != tt.in || at != tt.at || err != nil {
				t.Errorf("got %q in %q, %v; want %q in %q", at, in, err, tt.at, tt.in)
			}
		})
	}
	for _, path := range []string{"own/x", "nothing/x", abs("own/x")} {
		if d, _, err := beneath.Parent(path); !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: got %v, %v", path, d, err)
		}
	}
	unharmed(t, hosts)
}

// TestOpenPath opens what links lead to: by path, it is the host's.
func TestOpenPath(t *testing.T) {
	_, guests, _ := newPlanted(t)
	for _, rel := range []string{"abs/canary", "up/canary", "file", "in/up/canary"} {
		path := filepath.Join(guests, rel)
		if f, err := beneath.OpenPath(path, os.O_RDONLY); !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: got %v, %v", rel, f, err)
		}
		if text, err := os.ReadFile(path); string(text) != canaryText {
			t.Errorf("the control reads %q, %v", text, err)
		}
	}
	f, err := beneath.OpenPath(filepath.Join(guests, "own"), os.O_RDONLY)
	must(t, err)
	f.Close()
}

// TestMachinesLinks follows the links of the machine's own directories: those
// of the kernel's among them, by which a shell hands over what it has open.
func TestMachinesLinks(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	_, err = w.WriteString("text")
	must(t, errors.Join(err, w.Close()))
	f, err := beneath.OpenPath(strings.Replace(beneath.Path(r), "/proc/self/fd", "/dev/fd", 1), os.O_RDONLY)
	must(t, err)
	defer f.Close()
	if text, err := io.ReadAll(f); string(text) != "text" {
		t.Errorf("read %q, %v", text, err)
	}
	for _, path := range []string{"/proc/self/", "/proc/self/cwd/", "/dev/fd/", "/var/run/"} {
		want, err := os.Stat(path)
		if err != nil {
			t.Logf("this machine has no %s", path)
			continue
		}
		d, _, err := beneath.Parent(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got, err := os.Stat(d.Path()); err != nil || !os.SameFile(got, want) {
			t.Errorf("%s leads to %v, %v", path, got, err)
		}
		d.Close()
	}
}

// FuzzParent: a path ends where its text does, or at a link.
func FuzzParent(f *testing.F) {
	f.Add("dir/../own")
	f.Add("in/up/canary")
	f.Add("./abs/../../guest/file/")
	base, err := os.MkdirTemp("", "beneath-*")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(base) })
	guests := filepath.Join(base, "guest")
	if err := errors.Join(os.MkdirAll(filepath.Join(guests, "dir"), 0o755), os.Symlink("/etc", filepath.Join(guests, "abs")), os.Symlink("dir", filepath.Join(guests, "in"))); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, rel string) {
		path := filepath.Join(guests, rel)
		if !strings.HasPrefix(path, guests) {
			return // as the user wants it
		}
		d, name, err := beneath.Parent(path)
		if err != nil {
			return
		}
		defer d.Close()
		if in, err := os.Readlink(d.Path()); err != nil || filepath.Join(in, name) != path {
			t.Errorf("%q leads to %q in %q, %v", rel, name, in, err)
		}
	})
}

// TestOpenInput: what a user names for reading is opened without a wait, and
// through no link that a sandbox could have made.
func TestOpenInput(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, errors.Join(os.WriteFile(at("file"), []byte("x"), 0o600), unix.Mkfifo(at("fifo"), 0o600),
		os.Symlink("file", at("link")), os.Symlink("fifo", at("to-fifo"))))
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	_, err = w.WriteString("x")
	must(t, errors.Join(err, w.Close()))
	for name, want := range map[string]struct {
		path string
		err  error
	}{
		"file":         {at("file"), nil},
		"own-pipe":     {strings.Replace(beneath.Path(r), "/proc/self/fd", "/dev/fd", 1), nil},
		"device":       {"/dev/null", nil},
		"fifo":         {at("fifo"), beneath.ErrNotRegular},
		"directory":    {dir, beneath.ErrNotRegular},
		"link":         {at("link"), unix.ELOOP},
		"to-fifo":      {at("to-fifo"), unix.ELOOP},
		"nothing":      {at("none"), unix.ENOENT},
		"below-a-pipe": {at("fifo/x"), unix.ENOTDIR},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := beneath.OpenInput(want.path)
			if !errors.Is(err, want.err) {
				t.Fatalf("OpenInput = %v, want %v", err, want.err)
			}
			if err == nil {
				_, err = io.ReadAll(f)
				must(t, errors.Join(err, f.Close()))
			}
		})
	}
}
