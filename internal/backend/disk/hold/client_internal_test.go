package hold

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that is killed before it has read an order resets the connection.
func TestReceiveReset(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("an order\n")); err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	peer.Close() // what was sent is not read
	if b, files, err := receive(c, maxAnswer); !errors.Is(err, unix.ECONNRESET) || b != nil || files != nil {
		t.Errorf("got %q, %v, %v", b, files, err)
	}
}
