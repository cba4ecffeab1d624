package loopback

import (
	"encoding/binary"
	"net"
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

// A socket's user is known from outside its process, by either of the kernel's
// ways, while it is open: also once it has ended its own direction.
func TestPeerUser(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(addr, func(t *testing.T) {
			theirs, ours := connect(t, addr)
			known := func(when string, want uint32, ok bool) {
				t.Helper()
				if uid, got := PeerUser(ours); got != ok || got && uid != want {
					t.Errorf("%s: user %d, %v, want %d, %v", when, uid, got, want, ok)
				}
			}
			me := uint32(os.Geteuid())
			known("open", me, true)
			from, to := netip.MustParseAddrPort(theirs.LocalAddr().String()), netip.MustParseAddrPort(ours.LocalAddr().String())
			if uid, err := readLists(from, to); err != nil || uid != me {
				t.Errorf("by the lists: user %d, %v", uid, err)
			}
			if err := theirs.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			known("half closed", me, true)
			_ = theirs.Close()
			known("closed", 0, false)
		})
	}
}

func connect(t *testing.T, addr string) (theirs *net.TCPConn, ours net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("needs the address %s: %v", addr, err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if ours, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	return c.(*net.TCPConn), ours
}

// One that was reset is nobody's, whoever may have its addresses next.
func TestPeerUserReset(t *testing.T) {
	theirs, ours := connect(t, "127.0.0.1:0")
	Reset(theirs)
	if uid, ok := PeerUser(ours); ok {
		t.Errorf("it is said to be user %d's", uid)
	}
}

func FuzzParseDiag(f *testing.F) {
	a, b := netip.MustParseAddrPort("127.0.0.1:32771"), netip.MustParseAddrPort("127.0.0.1:5410")
	answer := make([]byte, diagHead+diagAnswer)
	binary.NativeEndian.PutUint16(answer[4:], unix.SOCK_DIAG_BY_FAMILY)
	answer[diagHead+1] = stateEstablished
	binary.BigEndian.PutUint16(answer[diagHead+4:], a.Port())
	binary.BigEndian.PutUint16(answer[diagHead+6:], b.Port())
	binary.NativeEndian.PutUint32(answer[diagHead+64:], 1000)
	binary.NativeEndian.PutUint32(answer[diagHead+68:], 7)
	if uid, err := parseDiag(answer, a, b); uid != 1000 || err != nil {
		f.Fatalf("%d, %v", uid, err)
	}
	f.Add(answer)
	f.Add(diagQuestion(a, b))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if uid, err := parseDiag(raw, a, b); err == nil && (len(raw) < diagHead+diagAnswer || binary.NativeEndian.Uint32(raw[diagHead+64:]) != uid) {
			t.Errorf("user %d in %x", uid, raw)
		}
	})
}
