package backendtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// echoServer answers each connection with what it was sent, and "end" after
// the other side's end.
const echoServer = `
import socket, sys, threading
s = socket.socket(socket.AF_INET)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen(128)
print("ready", flush=True)
def serve(c):
    while True:
        b = c.recv(65536)
        if not b: break
        c.sendall(b)
    c.sendall(b"end")
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
`

// testPorts holds Dial to what listens inside.
func testPorts(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	server := b.begin(t, argv("python3", "-c", echoServer, "8123"))
	server.awaits("ready\n")

	t.Run("both-ways", func(t *testing.T) {
		for _, text := range []string{"", "hello", string(make([]byte, 4<<20))} {
			if got := exchange(t, w, b.id, 8123, text); got != text {
				t.Errorf("%d bytes came back of %d", len(got), len(text))
			}
		}
	})
	t.Run("half-closed", func(t *testing.T) { halfClosed(t, w, b.id) })
	t.Run("many", func(t *testing.T) { manyConnections(t, w, b.id) })
	t.Run("http", func(t *testing.T) { pageOverDial(t, w, b) })
	t.Run("nothing-listens", func(t *testing.T) {
		_, err := w.Dial(t.Context(), b.id, 8999)
		wantKind(t, "Dial", err, sandbox.Unavailable)
	})
	t.Run("no-such-port", func(t *testing.T) {
		for _, port := range []int{0, -1, 65536, 1 << 30} {
			_, err := w.Dial(t.Context(), b.id, port)
			wantKind(t, fmt.Sprintf("Dial of %d", port), err, sandbox.Invalid)
		}
	})
	t.Run("called-off", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Dial(ctx, b.id, 8123); err == nil {
			t.Error("no error")
		}
	})
	// The context bounds the dialling, not the connection.
	t.Run("outlives-its-dialling", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := w.Dial(ctx, b.id, 8123)
		cancel()
		must(t, err)
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
	t.Run("box-stops", func(t *testing.T) {
		c, err := w.Dial(t.Context(), b.id, 8123)
		must(t, err)
		defer c.Close()
		w.mustStop(t, b.id)
		must(t, c.SetReadDeadline(time.Now().Add(patience.For(30*time.Second))))
		if n, err := c.Read(make([]byte, 1)); err == nil || n > 0 {
			t.Errorf("Read = %d, %v after the instance's end", n, err)
		}
	})
}

func manyConnections(t *testing.T, w *world, id string) {
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			text := fmt.Sprintln("connection", i)
			if got := exchange(t, w, id, 8123, text); got != text {
				t.Errorf("got %q, want %q", got, text)
			}
		})
	}
	all.Wait()
}

func pageOverDial(t *testing.T, w *world, b *instance) {
	web := b.begin(t, argv("sh", "-c", "mkdir /tmp/web; cd /tmp/web; echo page > index.html; python3 -um http.server --bind 127.0.0.1 8124 2>&1"))
	web.awaits("Serving")
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return w.Dial(ctx, b.id, 8124) },
	}}
	res, err := c.Get("http://box/")
	must(t, err)
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "page\n" {
		t.Errorf("got %q, %v", body, err)
	}
	web.signal(9, true)
	web.end()
}

// exchange sends text and returns as much of what comes back.
func exchange(t *testing.T, w *world, id string, port int, text string) string {
	t.Helper()
	c, err := w.Dial(t.Context(), id, port)
	if err != nil {
		t.Errorf("Dial: %v", err)
		return ""
	}
	defer c.Close()
	var sent sync.WaitGroup
	sent.Go(func() {
		if _, err := io.WriteString(c, text); err != nil {
			t.Errorf("send: %v", err)
		}
	})
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Errorf("receive: %v", err)
	}
	sent.Wait()
	return string(got)
}

// halfClosed ends one direction: the other goes on.
func halfClosed(t *testing.T, w *world, id string) {
	c, err := w.Dial(t.Context(), id, 8123)
	must(t, err)
	defer c.Close()
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("a %T can't end one direction: protocols that end requests so hang", c)
	}
	if _, err := io.WriteString(c, "text"); err != nil {
		t.Fatal(err)
	}
	must(t, half.CloseWrite())
	must(t, c.SetReadDeadline(time.Now().Add(patience.For(30*time.Second))))
	if got, err := io.ReadAll(c); err != nil || string(got) != "textend" {
		t.Errorf("after the end of one direction: %q, %v, want %q", got, err, "textend")
	}
}
