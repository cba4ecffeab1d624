// Package scope gives the calling process a part of the control group tree that is
// its own: a scope of its user's service manager, with Delegate=yes, as
// systemd-run --user --scope makes one.
//
// It asks systemd by its own socket, so that neither systemd-run nor a session bus
// is needed. It refuses to guess: a process that is not in the scope afterwards
// is told why, and is where it was.
package scope

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// ErrNone says that the user has no service manager that answers.
var ErrNone = errors.New("the user has no systemd service manager that runs")

const (
	manager = "org.freedesktop.systemd1.Manager"
	// leaf is where a process is put that comes to a scope with others in it: the
	// scope's own group has no processes once its children have limits.
	leaf = "/carboy.daemon"
	// patience is for the manager to answer, and to have done it.
	patience = 10 * time.Second
	// tries is how often a scope may come and go meanwhile.
	tries = 3
)

// Options say which scope.
type Options struct {
	// RuntimeDirs are where the manager's socket may be, the first one with a socket
	// counts: XDG_RUNTIME_DIR, and /run/user/UID.
	RuntimeDirs []string
	// Name is the scope's without ".scope", and Description what lists show of it.
	// A scope of the name that is there is joined.
	Name, Description string
	// Proc is /proc where empty.
	Proc string
}

// Enter moves the calling process into the scope, which systemd ends when no process
// is left in it. It fails with ErrNone where no manager answers.
func Enter(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dial(ctx, o.RuntimeDirs)
	if err != nil {
		return err
	}
	defer conn.Close()
	m := &service{conn: conn, object: conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1"), done: make(chan *dbus.Signal, 64)}
	conn.Signal(m.done)
	unit := o.Name + ".scope"
	for range tries {
		err = m.start(ctx, unit, o.Description)
		if named(err, "org.freedesktop.systemd1.UnitExists") {
			err = m.attach(ctx, unit)
		}
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("enter %s: %w", unit, err)
	}
	return within(o.Proc, unit)
}

// dial connects to the manager's own socket, where no bus and no greeting is.
func dial(ctx context.Context, dirs []string) (*dbus.Conn, error) {
	for _, dir := range dirs {
		at := filepath.Join(dir, "systemd", "private")
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", at)
		if err != nil {
			continue // not there, or nobody listens
		}
		if err := owned(c); err != nil {
			c.Close()
			return nil, err
		}
		conn, err := dbus.NewConn(c, dbus.WithContext(ctx))
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("ask systemd: %w", err)
		}
		if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
			conn.Close()
			return nil, fmt.Errorf("ask systemd: %w", err)
		}
		return conn, nil
	}
	return nil, ErrNone
}

// owned makes sure that the caller's own user, or root, is at the other end: it is
// about to decide where the caller lives.
func owned(c net.Conn) error {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return cerr
	}
	if err != nil {
		return err
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Getuid() {
		return fmt.Errorf("%w: its socket is user %d's", ErrNone, peer.Uid)
	}
	return nil
}

// service is a manager that is spoken to.
type service struct {
	conn   *dbus.Conn
	object dbus.BusObject
	done   chan *dbus.Signal
}

type property struct {
	Name  string
	Value dbus.Variant
}

type auxiliary struct {
	Name       string
	Properties []property
}

// start makes the scope, with the caller in it, and waits until it is.
func (m *service) start(ctx context.Context, unit, description string) error {
	var job dbus.ObjectPath
	err := m.object.CallWithContext(ctx, manager+".StartTransientUnit", 0, unit, "fail", []property{
		{"Description", dbus.MakeVariant(description)},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(os.Getpid())})},
	}, []auxiliary{}).Store(&job)
	if err != nil {
		return err
	}
	for {
		select {
		case s, ok := <-m.done:
			if !ok {
				return errors.New("systemd closed the connection")
			}
			var id uint32
			var of dbus.ObjectPath
			var what, result string
			if s.Name != manager+".JobRemoved" || dbus.Store(s.Body, &id, &of, &what, &result) != nil || of != job {
				continue
			}
			if result != "done" {
				return fmt.Errorf("systemd's job is %s", result)
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// attach joins a scope that is there, of a daemon before this one: where that one
// has made a leaf, in the leaf, and else in the scope's own group.
func (m *service) attach(ctx context.Context, unit string) (err error) {
	for _, at := range []string{leaf, ""} {
		err = m.object.CallWithContext(ctx, manager+".AttachProcessesToUnit", 0, unit, at, []uint32{uint32(os.Getpid())}).Err
		if err == nil {
			return nil
		}
	}
	return err
}

func named(err error, name string) bool {
	e, ok := errors.AsType[dbus.Error](err)
	return ok && e.Name == name
}

// within fails unless the caller is in the unit.
func within(proc, unit string) error {
	if proc == "" {
		proc = "/proc"
	}
	b, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return fmt.Errorf("look for %s: %w", unit, err)
	}
	for line := range strings.Lines(string(b)) {
		own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if ok && (path.Base(own) == unit || path.Base(path.Dir(own)) == unit) {
			return nil
		}
	}
	return fmt.Errorf("systemd made %s, but this process is not in it", unit)
}

// Lingers reports whether the manager of a user goes on without a login (loginctl
// enable-linger): where it does not, what is in its scopes ends with the last one.
func Lingers(root, login string) bool {
	_, err := os.Stat(filepath.Join(root, "var/lib/systemd/linger", filepath.Base(login)))
	return !errors.Is(err, fs.ErrNotExist)
}
