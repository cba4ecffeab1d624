package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/test/escape/facts"
)

// forge has a socket of that name until stdin ends, and behaves on it as a
// guest agent does that has no key: it proves itself by any bytes, and answers.
func forge(name string, stdin io.Reader, out io.Writer) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return err
	}
	defer os.Remove(name)
	if err := unix.Chmod(name, 0o666); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	go func() {
		for {
			if err := deceive(fd, out); err != nil {
				fmt.Fprintln(out, err)
			}
		}
	}()
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// deceive waits for one connection, and says whether it was believed.
func deceive(fd int, out io.Writer) error {
	msg, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fd, msg, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return fmt.Errorf("a message without a connection: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return fmt.Errorf("no connection: %w", err)
	}
	f := os.NewFile(uintptr(fds[0]), "conn")
	conn, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 32)); err != nil {
		return err
	}
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return fmt.Errorf("not believed: %w", err)
	}
	fmt.Fprintln(out, "believed:", req.Method, req.URL)
	// The end of a stream of Connect's, which holds an error for the caller.
	end := `{"error":{"code":"aborted","message":"` + facts.Forged + `"}}`
	body := append(binary.BigEndian.AppendUint32([]byte{2}, uint32(len(end))), end...)
	_, err = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		req.Header.Get("Content-Type"), len(body), body)
	return err
}
