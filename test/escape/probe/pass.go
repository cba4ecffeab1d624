package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// pass has a socket at each place where one can be made, and gives whoever dials
// it an open file, its directory and a socket of the network, until stdin ends.
func pass(file string, places []string, stdin io.Reader, stdout io.Writer) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer dir.Close()
	inet, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(inet)
	rights := unix.UnixRights(int(f.Fd()), int(dir.Fd()), inet)
	for _, place := range places {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: place, Net: "unix"})
		if err != nil {
			continue
		}
		_ = os.Chmod(place, 0o777)
		fmt.Fprintln(stdout, "bound", place)
		go func() {
			for {
				c, err := l.AcceptUnix()
				if err != nil {
					return
				}
				_, _, _ = c.WriteMsgUnix([]byte("x"), rights, nil)
				_, _, _, _, _ = c.ReadMsgUnix(make([]byte, 1), make([]byte, 256)) // what it is given it keeps
				_ = c.Close()
			}
		}()
	}
	fmt.Fprintln(stdout, "ready")
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// collect dials each place, gives what listens there an open file, says what it is
// given, and keeps that until stdin ends.
func collect(places []string, stdin io.Reader, stdout io.Writer) error {
	for _, place := range places {
		fds, err := exchanged(place, stdout)
		if err != nil {
			fmt.Fprintln(stdout, "refused", place, err)
		}
		for _, fd := range fds {
			name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			fmt.Fprintln(stdout, "got", place, name, err)
		}
	}
	fmt.Fprintln(stdout, "ready")
	_, err := io.Copy(io.Discard, stdin)
	return err
}

// exchanged gives a socket an open file, and says so, and returns the descriptors that it
// gives. The kernel of gVisor gives none, and takes.
func exchanged(place string, stdout io.Writer) (fds []int, err error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: place, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	f, err := os.CreateTemp("", "given")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, _, err := c.WriteMsgUnix([]byte("x"), unix.UnixRights(int(f.Fd())), nil); err != nil {
		return nil, err
	}
	fmt.Fprintln(stdout, "gave", place)
	data, oob := make([]byte, 1), make([]byte, 256)
	_, n, _, _, err := c.ReadMsgUnix(data, oob)
	if err != nil {
		return nil, err
	}
	list, err := unix.ParseSocketControlMessage(oob[:n])
	for _, m := range list {
		got, rerr := unix.ParseUnixRights(&m)
		fds, err = append(fds, got...), errors.Join(err, rerr)
	}
	return fds, err
}
