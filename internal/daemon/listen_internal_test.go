package daemon

import (
	"net"
	"testing"
)

// An address of IPv4 is served by IPv4 alone, 0.0.0.0 too; :: and a port alone by both.
func TestListenTCPFamily(t *testing.T) {
	if l, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skipf("can't be had here: IPv6: %v", err)
	} else {
		_ = l.Close()
	}
	for addr, both := range map[string]bool{"0.0.0.0:0": false, "127.0.0.1:0": false, "[::]:0": true, ":0": true} {
		l, err := listenTCP(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		for host, want := range map[string]bool{"127.0.0.1": true, "::1": both} {
			c, err := net.Dial("tcp", net.JoinHostPort(host, port))
			if err == nil {
				_ = c.Close()
			}
			if got := err == nil; got != want {
				t.Errorf("--listen %s serves %s: %v, want %v", addr, host, got, want)
			}
		}
		_ = l.Close()
	}
}
