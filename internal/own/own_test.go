package own_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/own"
)

// TestFile has a file that is the user's reached by its name and by links, and none that others
// could have written, or put there.
func TestFile(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(dir, elsewhere string) error // dir/d/f is a good file, and elsewhere/f is one
		want  error                             // nil: it is read
		at    string                            // the end of the path at fault
	}{
		"as it is":   {func(string, string) error { return nil }, nil, ""},
		"read-only":  {func(dir, _ string) error { return os.Chmod(dir+"/d/f", 0o444) }, nil, ""},
		"group":      {func(dir, _ string) error { return errors.Join(os.Chmod(dir+"/d/f", 0o664), os.Chmod(dir+"/d", 0o775)) }, nil, ""},
		"file":       {func(dir, _ string) error { return os.Chmod(dir+"/d/f", 0o646) }, own.ErrOthers, "/d/f"},
		"directory":  {func(dir, _ string) error { return os.Chmod(dir+"/d", 0o777) }, own.ErrOthers, "/d"},
		"sticky":     {func(dir, _ string) error { return os.Chmod(dir+"/d", 0o777|fs.ModeSticky) }, own.ErrOthers, "/d"},
		"above":      {func(dir, _ string) error { return os.Chmod(dir, 0o777) }, own.ErrOthers, ""},
		"no file":    {func(dir, _ string) error { return os.Remove(dir + "/d/f") }, fs.ErrNotExist, "/d/f"},
		"pipe":       {func(dir, _ string) error { return errors.Join(os.Remove(dir+"/d/f"), unix.Mkfifo(dir+"/d/f", 0o600)) }, beneath.ErrNotRegular, "/d/f"},
		"link":       {func(dir, out string) error { return link(out+"/f", dir+"/d/f") }, nil, ""},
		"relative":   {func(dir, out string) error { return link("../../"+filepath.Base(out)+"/f", dir+"/d/f") }, nil, ""},
		"two links":  {func(dir, out string) error { return errors.Join(link("f", out+"/l"), link(out+"/l", dir+"/d/f")) }, nil, ""},
		"link of d":  {func(dir, out string) error { return link(out, dir+"/d") }, nil, ""},
		"link of d/": {func(dir, out string) error { return link(out+"/", dir+"/d") }, nil, ""},
		"link's file": {func(dir, out string) error {
			return errors.Join(os.Chmod(out+"/f", 0o646), link(out+"/f", dir+"/d/f"))
		}, own.ErrOthers, "/f"},
		"link's directory": {func(dir, out string) error {
			return errors.Join(os.Chmod(out, 0o777), link(out+"/f", dir+"/d/f"))
		}, own.ErrOthers, ""},
		"second link's directory": {func(dir, out string) error {
			return errors.Join(os.Mkdir(out+"/open", 0o700), os.Chmod(out+"/open", 0o777), link("../f", out+"/open/l"), link(out+"/open/l", dir+"/d/f"))
		}, own.ErrOthers, "/open"},
		"link of d to an open one": {func(dir, out string) error { return errors.Join(os.Chmod(out, 0o777), link(out, dir+"/d")) }, own.ErrOthers, ""},
		"link of d above an open one": {func(dir, out string) error {
			return errors.Join(os.Mkdir(out+"/in", 0o700), os.Chmod(out, 0o777), link(out+"/in", dir+"/d"))
		}, own.ErrOthers, ""},
		"nowhere": {func(dir, out string) error { return link(out+"/gone", dir+"/d/f") }, own.ErrNowhere, ""},
		"no d":    {func(dir, out string) error { return link(out+"/gone", dir+"/d") }, own.ErrNowhere, ""},
		"circle":  {func(dir, _ string) error { return link("f", dir+"/d/f") }, unix.ELOOP, "/d/f"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := world(t)
			if err := c.plant(dir, elsewhere); err != nil {
				t.Fatal(err)
			}
			got, err := read(dir)
			if !errors.Is(err, c.want) || c.want == nil && got != "text" {
				t.Fatalf("got %q, %v; want %v", got, err, c.want)
			}
			e, ok := errors.AsType[*own.Error](err)
			if c.want != nil && (!ok || !strings.HasSuffix(e.Path, c.at)) {
				t.Errorf("it is said of %v, want one that ends with %s", err, c.at)
			}
			if c.want == own.ErrNowhere && errors.Is(err, fs.ErrNotExist) { //nolint:errorlint // the table has it as it is
				t.Error("a link to nothing is taken for nothing")
			}
		})
	}
}

// TestOwner has what belongs to another be refused: files, directories and links.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to others")
	}
	for _, name := range []string{"", "/d", "/d/f", "/d/l"} {
		dir, elsewhere := world(t)
		if name == "/d/l" {
			if err := errors.Join(link(elsewhere+"/f", dir+"/d/f"), os.Lchown(dir+"/d/f", 1234, 1234)); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Lchown(dir+name, 1234, 1234); err != nil {
			t.Fatal(err)
		}
		if _, err := read(dir); !errors.Is(err, own.ErrOthers) {
			t.Errorf("another's %q: %v", name, err)
		}
	}
}

func TestNoDirectory(t *testing.T) {
	if _, err := own.Open(filepath.Join(t.TempDir(), "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := own.Open(filepath.Join(t.TempDir(), "x", "y")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func world(t *testing.T) (dir, elsewhere string) {
	t.Helper()
	top := t.TempDir()
	dir, elsewhere = filepath.Join(top, "config"), filepath.Join(top, "elsewhere")
	for _, d := range []string{dir + "/d", elsewhere} {
		if err := errors.Join(os.MkdirAll(d, 0o700), os.WriteFile(d+"/f", []byte("text"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, elsewhere
}

func link(target, at string) error { return errors.Join(os.RemoveAll(at), os.Symlink(target, at)) }

func read(dir string) (string, error) {
	top, err := own.Open(dir)
	if err != nil {
		return "", err
	}
	defer top.Close()
	d, err := top.Dir("d")
	if err != nil {
		return "", err
	}
	defer d.Close()
	f, err := d.File("f")
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}
