package secret

import (
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// identity is a user of this machine.
type identity struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

// lookUp finds the user uid.
func lookUp(uid int) (*identity, error) {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Denied, "this machine has no user %d", uid)
	}
	id := &identity{uid: uint32(uid), home: u.HomeDir}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("group of user %d: %w", uid, err)
	}
	id.gid = uint32(gid)
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of user %d: %w", uid, err)
	}
	for _, g := range groups {
		n, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("groups of user %d: %w", uid, err)
		}
		id.groups = append(id.groups, uint32(n))
	}
	return id, nil
}

// foreignUser refuses to act for another user than this process's, unless it
// is root's.
func foreignUser(uid int) error {
	if own := os.Geteuid(); uid < 0 || own != 0 && own != uid {
		return sandbox.Errorf(sandbox.Denied, "this daemon can't act for user %d", uid)
	}
	return nil
}

// openAs opens path for reading with the rights of the user uid.
func openAs(uid int, path string) (*os.File, error) {
	if err := foreignUser(uid); err != nil {
		return nil, err
	}
	if os.Geteuid() == uid {
		return os.OpenFile(path, readFlags, 0)
	}
	id, err := lookUp(uid)
	if err != nil {
		return nil, err
	}
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and its identity
		// with it.
		runtime.LockOSThread()
		if err := (rights.Identity{UID: id.uid, GID: id.gid, Groups: id.groups}).OverFiles(); err != nil {
			done <- opened{nil, fmt.Errorf("become user %d: %w", id.uid, err)}
			return
		}
		f, err := os.OpenFile(path, readFlags, 0)
		done <- opened{f, err}
	}()
	o := <-done
	return o.f, o.err
}
