package sudo

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/sudo/wire"
)

// receive reads a request and the files that came with its first byte.
func receive(c *net.UnixConn) (req wire.Request, files []*os.File, err error) {
	errAsked := errors.New("what was asked can't be read: call the program sudo")
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4*standardFDs))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err == nil {
		files, err = received(oob[:oobn])
	}
	if err != nil || flags&unix.MSG_CTRUNC != 0 || len(files) != standardFDs {
		return req, files, errAsked
	}
	head, body, found := strings.Cut(string(buf[:n]), "\n")
	size, err := strconv.Atoi(head)
	if !found || err != nil || size < 0 || len(body) > size {
		return req, files, errAsked
	}
	if size > wire.MaxRequest {
		return req, files, fmt.Errorf("arguments and environment are %d bytes together: at most %d", size, wire.MaxRequest)
	}
	rest := make([]byte, size-len(body))
	if _, err := io.ReadFull(c, rest); err != nil {
		return req, files, errAsked
	}
	req, ok := wire.ParseRequest(body + string(rest))
	if !ok {
		return req, files, errAsked
	}
	return req, files, nil
}

// received returns the files in control messages; after an error too, to be
// closed.
func received(oob []byte) (files []*os.File, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	for _, m := range msgs {
		fds, merr := unix.ParseUnixRights(&m)
		err = errors.Join(err, merr)
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "standard file "+strconv.Itoa(len(files))))
		}
	}
	return files, err
}
