package daemon

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFindUser(t *testing.T) {
	const list = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1522 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 21 1 x
   1: 0100007F:8001 0100007F:1522 04 00000000:00000000 00:00000000 00000000     0        0 0 1 x
   2: 0100007F:8002 0100007F:1522 01 00000000:00000000 00:00000000 00000000     0        0 0 1 x
   3: 0100007F:8003 0100007F:1522 01 00000000:00000000 00:00000000 00000000  1000        0 22 1 x
   4: 0100007F:1522 0100007F:8003 01 00000000:00000000 00:00000000 00000000     0        0 23 1 x
   5: 0000000000000000FFFF00000100007F:8005 0000000000000000FFFF00000100007F:1522 01 0:0 00:0 0  1001        0 24 1 x
   6: 00000000000000000000000001000000:8006 00000000000000000000000001000000:1522 01 0:0 00:0 0  1002        0 25 1 x
   7: zz:8007 0100007F:1522 01 00000000:00000000 00:00000000 00000000  0        0 22 1 x
   8: 0100007F:8008`
	for _, tt := range []struct {
		name, from, to string
		uid            uint32
		ok             bool
	}{
		{"open", "127.0.0.1:32771", "127.0.0.1:5410", 1000, true},
		{"our-end-of-it", "127.0.0.1:5410", "127.0.0.1:32771", 0, true},
		{"mapped", "127.0.0.1:32773", "127.0.0.1:5410", 1001, true},
		{"mapped-here", "[::ffff:127.0.0.1]:32773", "[::ffff:127.0.0.1]:5410", 1001, true},
		{"ipv6", "[::1]:32774", "[::1]:5410", 1002, true},
		{"closed", "127.0.0.1:32769", "127.0.0.1:5410", 0, false},
		{"nobody's", "127.0.0.1:32770", "127.0.0.1:5410", 0, false},
		{"not-there", "127.0.0.1:1", "127.0.0.1:5410", 0, false},
		{"to-another", "127.0.0.1:32771", "127.0.0.1:5411", 0, false},
		{"broken", "127.0.0.1:32775", "127.0.0.1:5410", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			uid, ok := findUser(strings.NewReader(list), netip.MustParseAddrPort(tt.from), netip.MustParseAddrPort(tt.to))
			if uid != tt.uid || ok != tt.ok {
				t.Errorf("findUser = %d, %v, want %d, %v", uid, ok, tt.uid, tt.ok)
			}
		})
	}
}

func FuzzFindUser(f *testing.F) {
	f.Add("0: 0100007F:8003 0100007F:1522 01 0:0 00:0 0  1000        0 22 1 x")
	a, b := netip.MustParseAddrPort("127.0.0.1:32771"), netip.MustParseAddrPort("127.0.0.1:5410")
	f.Fuzz(func(t *testing.T, list string) {
		if _, ok := findUser(strings.NewReader(list), a, b); ok && !strings.Contains(list, ":8003") {
			t.Errorf("found in %q", list)
		}
	})
}

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
