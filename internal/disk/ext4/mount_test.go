package ext4_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mounted is an image that is mounted nowhere: its root is reached by a descriptor, so that no other
// process can hold the mount in a namespace of its own.
type mounted struct {
	fd   int
	root string
}

// mount mounts an image, or says why not and returns nil. The device can be written: a
// journal is replayed even where the mount is read-only.
func mount(t testing.TB, image, options string) *mounted {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	device, err := attach(image)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	fd, err := mountDevice(device.Name(), options)
	if err != nil {
		t.Logf("mount: %v", err)
		return nil
	}
	return &mounted{fd, fmt.Sprintf("/proc/self/fd/%d", fd)}
}

// Close unmounts it.
func (m *mounted) Close() { _ = unix.Close(m.fd) }

// attach gives an image a loop device, which is freed once nobody uses it.
func attach(image string) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for range 50 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(f.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		if err = unix.IoctlLoopConfigure(int(device.Fd()), &config); err == nil {
			return device, nil
		}
		_ = device.Close() // another has it
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, errors.New("each free loop device is taken by another")
}

func mountDevice(device, options string) (fd int, err error) {
	fs, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	err = unix.FsconfigSetString(fs, "source", device)
	for _, o := range strings.FieldsFunc(options, func(r rune) bool { return r == ',' }) {
		if key, value, ok := strings.Cut(o, "="); ok {
			err = errors.Join(err, unix.FsconfigSetString(fs, key, value))
		} else {
			err = errors.Join(err, unix.FsconfigSetFlag(fs, o))
		}
	}
	if err := errors.Join(err, unix.FsconfigCreate(fs)); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOATIME)
}
