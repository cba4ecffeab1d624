package project_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/session/quota/project"
)

// helperEnv makes this binary what a user runs.
const helperEnv = "CARBOY_PROJECT_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	n, err := help(os.Args[1], os.Args[2], os.Args[3])
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(n, int(errno))
}

func help(what, path, arg string) (n int, err error) {
	most, _ := strconv.Atoi(arg)
	switch what {
	case "fill":
		f, err := os.CreateTemp(path, "fill-*")
		if err != nil {
			return 0, err
		}
		defer f.Close()
		for block := make([]byte, 64<<10); n < most && err == nil; {
			var w int
			w, err = f.Write(block)
			n += w
		}
		return n, err
	case "files":
		for ; n < most && err == nil; n++ {
			err = os.Mkdir(filepath.Join(path, "new"+strconv.Itoa(n)), 0o700)
		}
		if err != nil {
			n--
		}
		return n, err
	}
	return 0, leave(what, path)
}

// ways are those out of a project, by name.
var ways = []string{"project", "inherit", "flags", "note", "forge", "link", "rename"}

// leave tries one on a directory of one's own.
func leave(way, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	is, inherits, err := project.ProjectOf(f)
	if err != nil {
		return err
	}
	switch way {
	case "project":
		return project.Move(f, 0, inherits)
	case "inherit":
		return project.Move(f, is, false)
	case "flags": // as chattr -P does
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^projectInherit)
	case "note":
		return unix.Removexattr(path, project.NoteName)
	case "forge":
		return unix.Setxattr(path, project.NoteName, []byte("1 1543503872 1 done"), 0)
	case "link":
		return unix.Link(filepath.Join(filepath.Dir(path), "outside"), filepath.Join(path, "linked"))
	case "rename":
		return unix.Rename(filepath.Join(filepath.Dir(path), "outside"), filepath.Join(path, "moved"))
	}
	return fmt.Errorf("no way %q", way)
}

const projectInherit = 0x20000000 // FS_PROJINHERIT_FL

// TestProjectsBehindWalls tries to leave a project as whoever owns its files: in
// a user namespace, which all that a wall runs is in, and as the control, out of
// one.
func TestProjectsBehindWalls(t *testing.T) {
	onEach(t, func(t *testing.T, c *project.Control, dir string) {
		for _, walled := range []bool{true, false} {
			at := filepath.Join(dir, fmt.Sprint(walled))
			if err := errors.Join(os.Mkdir(at, 0o777), os.Chmod(at, 0o777)); err != nil {
				t.Fatal(err)
			}
			root := tree(t, at)
			if err := errors.Join(os.WriteFile(at+"/outside", nil, 0o644), os.Chown(at+"/outside", 1000, 1000)); err != nil {
				t.Fatal(err)
			}
			f := openDir(t, root)
			id, err := c.Take(t.Context(), f, 100)
			if err == nil {
				_, err = c.Hold(f, id, project.Limits{Bytes: 2 * mib})
			}
			if err != nil {
				t.Fatal(err)
			}
			left := map[string]bool{}
			for _, way := range ways {
				_, err := helped(t, behind(walled), way, root, "")
				t.Logf("walled %v: %s: %v", walled, way, err)
				left[way] = err == nil
				if is, inherits, err := project.ProjectOf(f); err != nil || walled && (is != id || !inherits) {
					t.Errorf("%s: it is of project %x, %v, %v", way, is, inherits, err)
				}
				if !walled { // the next one has it to leave, too
					if err := project.Move(f, id, true); err != nil {
						t.Fatal(err)
					}
				}
			}
			for way, done := range left {
				// Who owns files out of a wall may take them where they like, but can't
				// bring what is not of it.
				if want := !walled && strings.Contains("project inherit flags", way); done != want {
					t.Errorf("walled %v: %s was done: %v", walled, way, done)
				}
			}
			if !walled {
				continue
			}
			// Nor has a wall's root what of the machine's goes past a quota.
			if n, err := helped(t, behind(true), "fill", root, fmt.Sprint(4*mib)); n > 2*mib || !full(err) {
				t.Errorf("wrote %d, %v", n, err)
			}
		}
	})
}

// behind is a user, who in a namespace of its own is root.
func behind(wall bool) *syscall.SysProcAttr {
	if !wall {
		return nil
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 1000, Size: 1}}
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{NoSetGroups: true}}
}
