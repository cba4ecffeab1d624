package backendtest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// connects says whether something can be connected to: a kind and its
// address. With "send" it is enough that a datagram is taken.
const connects = `
import socket, sys
kind, addr = sys.argv[1:]
fam, typ, to = {
    "tcp4": (socket.AF_INET, socket.SOCK_STREAM, lambda: (addr.rsplit(":", 1)[0], int(addr.rsplit(":", 1)[1]))),
    "tcp6": (socket.AF_INET6, socket.SOCK_STREAM, lambda: (addr.rsplit(":", 1)[0].strip("[]"), int(addr.rsplit(":", 1)[1]))),
    "udp4": (socket.AF_INET, socket.SOCK_DGRAM, lambda: (addr.rsplit(":", 1)[0], int(addr.rsplit(":", 1)[1]))),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM, lambda: addr),
    "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, lambda: "\0" + addr),
}[kind]
try:
    s = socket.socket(fam, typ)
    s.settimeout(5)
    s.connect(to())
    print("connected")
except OSError as e:
    print("refused")
`

// hostListener is something of the host's that an instance must not reach.
type hostListener struct{ kind, addr string }

// listeners listens on the host in every way there is.
func listeners(t *testing.T) []hostListener {
	t.Helper()
	name := "carboy-conformance-" + newID()
	dir := tempDir(t)
	var all []hostListener
	for _, l := range []struct{ kind, network, addr string }{
		{"tcp4", "tcp4", "127.0.0.1:0"},
		{"tcp6", "tcp6", "[::1]:0"},
		{"unix", "unix", filepath.Join(dir, "sock")},
		{"abstract", "unix", "@" + name},
	} {
		ln, err := net.Listen(l.network, l.addr)
		if err != nil {
			if l.kind == "tcp6" {
				continue // a host without IPv6
			}
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		t.Cleanup(func() { ln.Close() })
		all = append(all, hostListener{l.kind, strings.TrimPrefix(ln.Addr().String(), "@")})
	}
	must(t, os.Chmod(filepath.Join(dir, "sock"), 0o777))
	return all
}

func testNoNetwork(t *testing.T, s *suite) {
	b := s.open(t).begin(t)
	probe := func(t *testing.T, user string, l hostListener) string {
		cmd := argv("python3", "-c", connects, l.kind, l.addr)
		cmd.User = user
		return b.run(t, cmd).stdout
	}
	for _, l := range listeners(t) {
		t.Run("host-"+l.kind, func(t *testing.T) {
			if got := native(t, "python3", "-c", connects, l.kind, l.addr); got != "connected\n" {
				t.Fatalf("on the host itself: %q", got)
			}
			for _, user := range s.users() {
				if got := probe(t, user, l); got != "refused\n" {
					t.Errorf("as %s: %q", user, got)
				}
			}
		})
	}
	for _, l := range []hostListener{
		{"tcp4", "1.1.1.1:443"},
		{"tcp4", "169.254.169.254:80"},
		{"tcp6", "[2606:4700::1111]:443"},
		{"udp4", "1.1.1.1:53"},
		{"tcp4", "10.0.0.1:80"},
	} {
		t.Run("no-route-"+l.kind+"-"+strings.NewReplacer(":", "-", "[", "", "]", "").Replace(l.addr), func(t *testing.T) {
			if got := probe(t, "", l); got != "refused\n" {
				t.Errorf("got %q", got)
			}
		})
	}
	t.Run("interfaces", func(t *testing.T) {
		for _, user := range s.users() {
			cmd := argv("python3", "-c", "import socket; print([n for _, n in socket.if_nameindex()])")
			cmd.User = user
			if got := b.run(t, cmd).stdout; got != "['lo']\n" {
				t.Errorf("as %s: %q", user, got)
			}
		}
	})
	// The same probe connects inside, where it may.
	t.Run("loopback", func(t *testing.T) {
		server := b.begin(t, argv("python3", "-c", echoServer, "8125"))
		server.awaits("ready\n")
		if got := probe(t, "", hostListener{"tcp4", "127.0.0.1:8125"}); got != "connected\n" {
			t.Errorf("got %q", got)
		}
		own := b.begin(t, argv("python3", "-c", fmt.Sprintf("import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0%s')\ns.listen()\nprint('ready', flush=True)\ns.accept()", "own-name")))
		own.awaits("ready\n")
		if got := probe(t, "", hostListener{"abstract", "own-name"}); got != "connected\n" {
			t.Errorf("an abstract name of its own: %q", got)
		}
	})
}
