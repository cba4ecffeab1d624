package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A Device is the sandbox's end of a link: its network namespace, and the
// descriptor that carries the frames of the one interface there.
type Device struct {
	// NetNS keeps the namespace while it is open, as every process in it does.
	NetNS *os.File
	// TAP reads and writes frames, each with a header of vnetHeaderLen bytes
	// in front. It does not block, and is closed on exec.
	TAP *os.File
	// IPv6 is false where this kernel has no IPv6: the guest has no address of
	// that kind, and no route.
	IPv6 bool
}

// Close closes both descriptors. The namespace and the interface go when
// nobody else is in there or holds them.
func (d *Device) Close() error { return errors.Join(d.TAP.Close(), d.NetNS.Close()) }

// Create makes a network namespace with a loopback and one TAP, eth0: up,
// persistent, with the guest's addresses, a default route to the gate and the
// gate as a permanent neighbour. The namespace has no name and no mount: it
// lives as long as a process is in it or a descriptor of it is open.
//
// It needs CAP_SYS_ADMIN and CAP_NET_ADMIN, and /dev/net/tun. The namespace
// belongs to the user namespace of the caller, so that root of a sandbox that
// has its own can't change it. No thread of this process enters it but one
// that ends here.
func Create(ctx context.Context) (*Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := &Device{}
	if err := elsewhere(d.make); err != nil {
		return nil, fmt.Errorf("create network link: %w", err)
	}
	return d, nil
}

// make fills d, on a thread that it may move to another namespace.
func (d *Device) make() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer closeOnError(ns, &err)
	if d.IPv6, err = writeSysctls(); err != nil {
		return err
	}
	tap, err := openTAP()
	if err != nil {
		return err
	}
	defer closeOnError(tap, &err)
	if err := configure(d.IPv6); err != nil {
		return err
	}
	d.NetNS, d.TAP = ns, tap
	return nil
}

// Attach opens the TAP of a namespace again, after the last who held it has
// died. While someone holds it the error is EBUSY; it is ENODEV where the
// namespace has no TAP of Create's.
func Attach(netns *os.File) (tap *os.File, err error) {
	err = elsewhere(func() error {
		if err := enter(netns); err != nil {
			return err
		}
		// Without this look, opening would make what is not there.
		if known, err := hasInterface(); err != nil || !known {
			return errors.Join(unix.ENODEV, err)
		}
		tap, err = openTAP()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attach to network link: %w", err)
	}
	return tap, nil
}

func enter(netns *os.File) error {
	conn, err := netns.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = unix.Setns(int(fd), unix.CLONE_NEWNET) }); err != nil {
		return err
	}
	if inner != nil {
		return fmt.Errorf("enter the network namespace: %w", inner)
	}
	return nil
}

func closeOnError(f *os.File, err *error) {
	if *err != nil {
		f.Close()
	}
}

// elsewhere calls f on a thread of its own, which ends with the call: what f
// does to it (join a namespace) is seen by nobody else. It is never the
// process's first thread, for that one would outlive the call.
func elsewhere(f func() error) error {
	done := make(chan error, 1)
	go thrownAway(f, done)
	return <-done
}

func thrownAway(f func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// While this goroutine waits, locked, no other runs on its thread.
		over := make(chan error, 1)
		go thrownAway(f, over)
		done <- <-over
		runtime.UnlockOSThread()
		return
	}
	done <- f() // never unlocked: the thread ends with the goroutine
}
