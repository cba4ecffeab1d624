package project_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/project"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const body = "caches = [\"go\"]\n"

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFind: the nearest file counts, up to the repository's root and no further.
func TestFind(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Chmod(top, 0o755))
	find := func(dir string) string {
		t.Helper()
		got, err := project.Find(filepath.Join(top, dir))
		must(t, err)
		if got == nil {
			return ""
		}
		rel, err := filepath.Rel(top, got.Path)
		must(t, err)
		return rel
	}
	write(t, top+"/.carboy.toml")
	must(t, os.MkdirAll(top+"/repo/.git", 0o755))
	must(t, os.MkdirAll(top+"/repo/a/b", 0o755))
	must(t, os.MkdirAll(top+"/loose/a", 0o755))
	must(t, os.Symlink("repo/a", top+"/link"))
	for dir, want := range map[string]string{
		"": ".carboy.toml", "repo": "", "repo/a/b": "", "loose": "", "loose/a": "", "missing": "",
	} {
		if got := find(dir); got != want {
			t.Errorf("without one in the repository, %q finds %q, want %q", dir, got, want)
		}
	}
	write(t, top+"/repo/.carboy.toml")
	write(t, top+"/repo/a/b/.carboy.toml")
	for dir, want := range map[string]string{
		"repo": "repo/.carboy.toml", "repo/a": "repo/.carboy.toml", "repo/a/b": "repo/a/b/.carboy.toml", "link": "repo/.carboy.toml",
	} {
		if got := find(dir); got != want {
			t.Errorf("%q finds %q, want %q", dir, got, want)
		}
	}
	must(t, os.Chmod(top+"/repo", 0o777))
	if got := find("repo/a"); got != "" {
		t.Errorf("above a directory that others may write to it finds %q", got)
	}
}

// TestFindRefuses: what may be somebody else's wish is not read as the user's own.
func TestFindRefuses(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"link":              func(p string) error { return os.Symlink(p+".real", p) },
		"pipe":              func(p string) error { return unix.Mkfifo(p, 0o644) },
		"directory":         func(p string) error { return os.Mkdir(p, 0o755) },
		"large":             func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("# x\n", 1<<15)), 0o644) },
		"writable-by-all":   func(p string) error { return os.Chmod(p, 0o646) },
		"writable-by-group": func(p string) error { return chmodGroup(p) },
		"another-user's": func(p string) error {
			if os.Geteuid() != 0 {
				return os.Symlink("x", p)
			}
			return os.Chown(p, 4321, 4321)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := dir + "/.carboy.toml"
			write(t, path)
			if got, err := project.Find(dir); got == nil || err != nil {
				t.Fatalf("as it should be: %v, %v", got, err)
			}
			must(t, os.Rename(path, path+".real"))
			if strings.HasPrefix(name, "writable") || name == "another-user's" && os.Geteuid() == 0 {
				must(t, os.Rename(path+".real", path))
			}
			must(t, make(path))
			got, err := project.Find(dir)
			if got != nil || sandbox.KindOf(err) != sandbox.Denied || !strings.Contains(err.(*sandbox.Error).Hint, "--no-project") {
				t.Errorf("Find = %v, %v, want Denied", got, err)
			}
		})
	}
}

func chmodGroup(p string) error {
	if os.Geteuid() == 0 {
		if err := os.Chown(p, 0, 4321); err != nil {
			return err
		}
	} else if os.Getgid() == os.Getuid() {
		return os.Chmod(p, 0o646)
	}
	return os.Chmod(p, 0o664)
}

// TestApprovals: one text is allowed for one directory, until another is.
func TestApprovals(t *testing.T) {
	store := project.Approvals{State: filepath.Join(t.TempDir(), "state")}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	first, other := text("caches = [\"go\"]"), text("caches = [\"go\", \"npm\"]")
	covers := func(what string, of *project.Text, want bool) {
		t.Helper()
		a, err := store.Get(of.Dir)
		must(t, err)
		if got := a.Covers(of); got != want {
			t.Errorf("%s: covered %t, want %t", what, got, want)
		}
	}
	covers("nothing", first, false)
	must(t, store.Put(first, []string{"a cache for go"}, now))
	covers("allowed", first, true)
	covers("another text", other, false)
	anew := *first
	anew.Dir.Ino, anew.Dir.Born = 9, 9
	covers("the same text in a directory made anew at its path", &anew, false)
	moved := *first
	moved.Dir.Path = "/srv/elsewhere"
	covers("moved", &moved, false)
	must(t, store.Put(other, nil, now))
	covers("the text of before", first, false)
	covers("the new text", other, true)
	if had, err := store.Delete(first.Dir); !had || err != nil {
		t.Errorf("Delete = %t, %v", had, err)
	}
	if had, err := store.Delete(first.Dir); had || err != nil {
		t.Errorf("Delete again = %t, %v", had, err)
	}
	covers("taken back", other, false)
}

// TestApprovalsAtOnce: whoever writes at once, or is killed in the middle, leaves one
// whole record; a hostile one is none.
func TestApprovalsAtOnce(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	store := project.Approvals{State: state}
	var wg sync.WaitGroup
	texts := make([]*project.Text, 8)
	for i := range texts {
		texts[i] = text(fmt.Sprintf("ttl = \"%dm\"", i+1))
		wg.Go(func() {
			if err := store.Put(texts[i], nil, time.Time{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	a, err := store.Get(texts[0].Dir)
	must(t, err)
	covered := 0
	for _, x := range texts {
		if a.Covers(x) {
			covered++
		}
	}
	if covered != 1 {
		t.Errorf("%d texts are allowed, want 1", covered)
	}
	files, err := filepath.Glob(state + "/projects/*")
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("files: %q", files)
	}
	whole, err := os.ReadFile(files[0])
	must(t, err)
	must(t, os.WriteFile(state+"/projects/.new-HALF", whole[:len(whole)/2], 0o600)) // of one that was killed
	for name, b := range map[string][]byte{"cut": whole[:len(whole)-2], "empty": nil, "more": append(whole, '{'), "unknown": []byte(`{"digest":"x","sudo":true}`)} {
		must(t, os.WriteFile(files[0], b, 0o600))
		if a, err := store.Get(texts[0].Dir); a != nil || err != nil {
			t.Errorf("%s record = %+v, %v", name, a, err)
		}
	}
	must(t, os.WriteFile(files[0], whole, 0o600))
	must(t, os.Chmod(files[0], 0o622))
	if a, err := store.Get(texts[0].Dir); a != nil || err == nil {
		t.Errorf("one that others may write = %+v, %v", a, err)
	}
	if os.Geteuid() == 0 {
		must(t, os.Chmod(files[0], 0o600))
		must(t, os.Chown(files[0], 4321, 4321))
		if a, err := store.Get(texts[0].Dir); a != nil || err == nil {
			t.Errorf("another user's = %+v, %v", a, err)
		}
	}
	must(t, os.RemoveAll(state+"/projects"))
	must(t, os.Symlink(t.TempDir(), state+"/projects"))
	if err := store.Put(texts[0], nil, time.Time{}); err == nil {
		t.Error("it writes through a link")
	}
}
