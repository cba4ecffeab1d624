package daemon

import (
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Other users of the machine are told from its own, at a real socket. The
// control is the same socket while it is ours.
func TestOwnUsers(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Logf("no %s here: %v", addr, err)
			continue
		}
		defer l.Close()
		theirs, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		ours, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		r, err := http.NewRequestWithContext(withConn(t.Context(), ours), "GET", "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := ownUsers(r); err != nil {
			t.Errorf("our own: %v", err)
		}
		if os.Geteuid() != 0 {
			t.Skip("needs root, to have a socket of another user's")
		}
		file, err := theirs.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := unix.Fchown(int(file.Fd()), 4242, -1); err != nil {
			t.Fatal(err)
		}
		if err := ownUsers(r); err == nil || !strings.Contains(err.Error(), "user 4242") {
			t.Errorf("another's: %v", err)
		}
		_ = file.Close()
		_ = theirs.Close()
		if err := ownUsers(r); err == nil {
			t.Error("one that was closed is taken for root's")
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ownUsers(r); err == nil {
		t.Error("one of nowhere is taken")
	}
}
