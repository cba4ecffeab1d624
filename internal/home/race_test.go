package home_test

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
)

// asStranger calls do again and again as another user, until the test ends. It
// is this thread alone that is another's.
func asStranger(t *testing.T, do func()) {
	t.Helper()
	stop := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setfsuid(stranger); err != nil {
			t.Error(err)
			return
		}
		for {
			select {
			case <-stop:
				return
			default:
				do()
			}
		}
	})
	t.Cleanup(func() { close(stop); loop.Wait() })
}

// A link that comes and goes where a directory is to be made leads nowhere.
func TestMakeWhileAnotherSwaps(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to act as another user")
	}
	for name, create := range map[string]func(dir string) error{
		"create": func(dir string) error {
			return home.Dirs{State: dir + "/a/b", Run: dir + "/a/b", Cache: dir + "/a/b"}.Create()
		},
		"make": func(dir string) error { return home.Make(dir+"/a/b", 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			sticky, victim := top+"/tmp", top+"/victim"
			must(t, os.Chmod(top, 0o755), os.Mkdir(sticky, 0o700), os.Chmod(sticky, 0o777|os.ModeSticky), os.Mkdir(victim, 0o700))
			if up, err := os.Stat(top + "/.."); err != nil || up.Mode().Perm()&0o001 == 0 {
				must(t, err, os.Chmod(top+"/..", 0o755))
			}
			link := sticky + "/new"
			asStranger(t, func() {
				_ = unix.Symlink(victim, link)
				_ = unix.Unlink(link)
			})
			made, refused := 0, 0
			for range 3000 {
				if err := create(link); err == nil {
					made++
					must(t, os.RemoveAll(link))
				} else {
					refused++
				}
				if left, err := os.ReadDir(victim); err != nil || len(left) > 0 {
					t.Fatalf("after %d that were made and %d that were not: in the other directory are %v, %v", made, refused, left, err)
				}
			}
			if made == 0 || refused == 0 { // the control
				t.Errorf("made %s and refused %s: there was no race", strconv.Itoa(made), strconv.Itoa(refused))
			}
		})
	}
}
