package content

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// A connection whose other end went away is noted as broken by the first that finds it:
// a write may, while the read still waits.
func TestWatchedNotesTheEnd(t *testing.T) {
	for name, use := range map[string]func(net.Conn) error{
		"read":  func(c net.Conn) error { _, err := io.ReadFull(c, make([]byte, 1)); return err },
		"write": func(c net.Conn) error { _, err := c.Write([]byte("x")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			var broken atomic.Bool
			conn := &watched{Conn: near, broken: &broken}
			if err := far.Close(); err != nil {
				t.Fatal(err)
			}
			if err := use(conn); err == nil {
				t.Fatal("no error of a connection that ended")
			}
			if !broken.Load() {
				t.Error("the end was not noted")
			}
		})
	}
}
