package quarantine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// TestNoFileIsWaitedFor: a pipe where the repository has a file is an error at once, and so
// are links and what is larger than any such file.
func TestNoFileIsWaitedFor(t *testing.T) {
	for _, name := range []string{"objects/info/alternates", "shallow"} {
		for kind, put := range map[string]func(string) error{
			"pipe":  func(p string) error { return unix.Mkfifo(p, 0o600) },
			"link":  func(p string) error { return os.Symlink("/dev/zero", p) },
			"large": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<30)) },
		} {
			t.Run(kind+"-"+filepath.Base(name), func(t *testing.T) {
				mine := newRepo(t)
				view := mine.view()
				view.commit("a", "1", "one")
				at := filepath.Join(mine.dir, ".git", name)
				if err := put(at); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() {
					_, err := mine.fetch(view)
					ended <- err
				}()
				select {
				case err := <-ended:
					if err == nil || !strings.Contains(err.Error(), filepath.Base(name)) {
						t.Errorf("%v", err)
					}
				case <-time.After(patience.For(30 * time.Second)):
					t.Fatal("it waits")
				}
			})
		}
	}
}

// TestPlaceByLinks: no part of a ref's path may be a link, nor of its reflog's, and nothing is
// written where one leads.
func TestPlaceByLinks(t *testing.T) {
	for _, link := range []string{"refs", "refs/carboy", "refs/carboy/otter", "refs/carboy/otter/deep", "logs/refs/carboy", "logs/refs/carboy/otter/deep/er/fix"} {
		t.Run(strings.ReplaceAll(link, "/", "-"), func(t *testing.T) {
			mine := newRepo(t)
			view := mine.view()
			view.git("switch", "-q", "-c", "deep/er/fix")
			view.commit("a", "1", "one")
			out := t.TempDir()
			at := filepath.Join(mine.dir, ".git", link)
			if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
				t.Fatal(err)
			}
			if link == "refs" { // git needs it
				if err := os.Rename(at, filepath.Join(out, "refs")); err != nil {
					t.Fatal(err)
				}
				out = filepath.Join(out, "refs")
			}
			before := mine.state()
			if err := os.Symlink(out, at); err != nil {
				t.Fatal(err)
			}
			_, err := mine.fetch(view)
			if err == nil || !strings.Contains(err.Error(), at+" is a link") {
				t.Errorf("%v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(out, "*", "*", "fix")); len(left) > 0 {
				t.Errorf("written: %v", left)
			}
			if err := os.Remove(at); err != nil {
				t.Fatal(err)
			}
			for p := range mine.state() {
				if _, ok := before[p]; !ok {
					t.Errorf("%s was made", p)
				}
			}
		})
	}
}
