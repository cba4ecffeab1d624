package secret

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/user"
	"runtime"
	"strconv"

	"github.com/carboy-sandbox/carboy/internal/beneath"
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
func openAs(uid int, path string) (f *os.File, err error) {
	err = as(uid, func() error {
		f, err = beneath.OpenNamed(path)
		return err
	})
	return f, err
}

// as runs f with the rights of the user uid over files.
func as(uid int, f func() error) error {
	if err := foreignUser(uid); err != nil {
		return err
	}
	if os.Geteuid() == uid {
		return f()
	}
	id, err := lookUp(uid)
	if err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and its identity
		// with it.
		runtime.LockOSThread()
		if err := (rights.Identity{UID: id.uid, GID: id.gid, Groups: id.groups}).OverFiles(); err != nil {
			done <- fmt.Errorf("become user %d: %w", id.uid, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// ReadFile reads a file of at most MaxValue bytes with the rights of an owner, who must be a user
// of this machine. It is of a file that a record names as a secret is named.
func ReadFile(owner, file string) (Value, error) {
	o, err := userOf(owner, file)
	if err != nil {
		return Value{}, err
	}
	text, _, err := readAs(o.uid, file)
	if err != nil {
		return Value{}, err
	}
	defer clear(text)
	if len(text) > MaxValue {
		return Value{}, sandbox.Errorf(sandbox.Invalid, "the secret's file %q is longer than %d bytes", file, MaxValue)
	}
	return NewValue(text), nil
}

// Dial connects to a unix socket with the rights of an owner, who must be a user of this machine.
func Dial(ctx context.Context, owner, socket string) (c net.Conn, err error) {
	o, err := userOf(owner, socket)
	if err != nil {
		return nil, err
	}
	err = as(o.uid, func() error {
		c, err = (&net.Dialer{}).DialContext(ctx, "unix", socket)
		return err
	})
	if err != nil {
		return nil, unreachable("the socket", socket, err)
	}
	return c, nil
}

// userOf is an owner who may name files of this machine.
func userOf(text, path string) (owner, error) {
	o, err := parseOwner(text)
	if err == nil && o.uid < 0 {
		err = sandbox.Errorf(sandbox.Denied, "files are for users of this machine").WithHint("keep the key by carboy secret add")
	}
	if err == nil {
		err = checkPath(path)
	}
	return o, err
}
