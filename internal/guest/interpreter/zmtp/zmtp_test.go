package zmtp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter/zmtp"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// hello is a greeting as libzmq sends it.
func hello() []byte {
	b := make([]byte, 64)
	b[0], b[9], b[10], b[11] = 0xff, 0x7f, 3, 1
	copy(b[12:], "NULL")
	return b
}

const ready = "\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"

// peer dials a server that says what it is given, and returns what it heard.
func peer(t testing.TB, says []byte, limit int64) (*zmtp.Conn, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write(says)
		_ = c.(*net.UnixConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience.For(10*time.Second))
	defer cancel()
	c, err := zmtp.Dial(ctx, "unix", path, zmtp.Dealer, limit)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func TestReceive(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct {
		name, wire string
		want       string // parts with | between them
		fail       error
	}{
		{"one", "\x00\x02hi", "hi", nil},
		{"two", "\x01\x01a\x00\x01b", "a|b", nil},
		{"empty", "\x01\x00\x00\x00", "|", nil},
		{"long", "\x02\x00\x00\x00\x00\x00\x00\x01\x2c" + long, long, nil},
		{"command-before", "\x04\x04\x03SUB\x00\x01a", "a", nil},
		{"too-large", "\x01\x01a\x02\x00\x00\x00\x00\x00\x00\x03\xe8" + strings.Repeat("y", 1000), "a", zmtp.ErrTooLarge},
		{"cut", "\x00\x05hi", "", io.ErrUnexpectedEOF},
		{"end", "", "", io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := peer(t, append(hello(), ready+tt.wire...), 500)
			if err != nil {
				t.Fatal(err)
			}
			parts, err := c.Receive()
			if got := string(bytes.Join(parts, []byte("|"))); got != tt.want || !errors.Is(err, tt.fail) {
				t.Errorf("Receive = %.40q, %v, want %.40q, %v", got, err, tt.want, tt.fail)
			}
		})
	}
}

func TestGreetingRefuses(t *testing.T) {
	old, secure := hello(), hello()
	old[10] = 2
	copy(secure[12:], "CURVE")
	for name, says := range map[string][]byte{
		"http":       []byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat(" ", 64)),
		"old":        append(old, ready...),
		"curve":      append(secure, ready...),
		"error":      append(hello(), "\x04\x09\x05ERROR\x02no"...),
		"no-ready":   append(hello(), "\x00\x02hi"...),
		"huge-ready": append(hello(), "\x06\x7f\xff\xff\xff\xff\xff\xff\xff"...),
		"cut":        hello()[:20],
	} {
		if _, err := peer(t, says, 500); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x01\x01a\x00\x01b"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x01\x2cxx"))
	f.Add([]byte("\x06\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		const limit = 200
		c, err := peer(t, append(hello(), ready+string(wire)...), limit)
		if err != nil {
			t.Fatal(err)
		}
		for {
			parts, err := c.Receive()
			n := 0
			for _, p := range parts {
				n += len(p)
			}
			if n > limit {
				t.Fatalf("%d bytes, more than %d", n, limit)
			}
			if err != nil && !errors.Is(err, zmtp.ErrTooLarge) {
				return
			}
		}
	})
}
