package server

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// Who sends a body byte by byte, or never, is answered and left.
func TestSlowBodies(t *testing.T) {
	secret, hash, err := key.New(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := key.Parse(strings.NewReader(fmt.Sprintf(`{"id":"k","hash":%q}`, hash)))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Tenants: auth.Tenants{Keys: keys}, Dialect: e2b.New(e2b.Options{}), Domain: "b.example"})
	t.Cleanup(s.Close)
	s.bodyTime, s.bodyRest = 50*time.Millisecond, 50*time.Millisecond
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = s.TCP(t.Context())
	srv.Start()
	t.Cleanup(srv.Close)
	id := "sb_" + strings.Repeat("a", 20)
	for _, tt := range []struct {
		name, head string
		status     int
	}{
		{"stranger", "POST /sandboxes HTTP/1.1\r\nHost: b.example\r\nContent-Length: 100000\r\n", 401},
		{"stranger-in-chunks", "POST /sandboxes HTTP/1.1\r\nHost: b.example\r\nTransfer-Encoding: chunked\r\n", 401},
		{"stranger-from-a-page", "POST /sandboxes HTTP/1.1\r\nHost: b.example\r\nOrigin: x\r\nContent-Length: 100000\r\n", 403},
		{"stranger-at-no-sandbox", "POST /x HTTP/1.1\r\nHost: 0-" + id + ".b.example\r\nContent-Length: 100000\r\n", 400},
		{"holder-of-a-key", "POST /sandboxes HTTP/1.1\r\nHost: b.example\r\nX-API-Key: " + secret + "\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n", 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(patience.For(20 * time.Second))); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, tt.head+"\r\n"); err != nil {
				t.Fatal(err)
			}
			br := bufio.NewReader(c)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != tt.status {
				t.Errorf("= %d, want %d", resp.StatusCode, tt.status)
			}
			if _, err := br.ReadByte(); err != io.EOF {
				t.Errorf("the connection is kept: %v", err)
			}
		})
	}
}

// Without an end to its time, such a connection is kept.
func TestSlowBodyKept(t *testing.T) {
	s := New(Options{Domain: "b.example"})
	t.Cleanup(s.Close)
	s.bodyRest = time.Hour
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = s.TCP(t.Context())
	srv.Start()
	t.Cleanup(srv.CloseClientConnections)
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /sandboxes HTTP/1.1\r\nHost: b.example\r\nContent-Length: 100000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection ended: %v: the test above shows nothing", err)
	}
}

// A body that came in time leaves no deadline behind. One that did not, on a machine that
// is busy just then, has more time at the next try.
func TestDeadlineEndsWithBody(t *testing.T) {
	var got string
	for d := 50 * time.Millisecond; d < 10*time.Second; d *= 5 {
		if got = afterBody(t, d); got == "all of it <nil>" {
			return
		}
	}
	t.Errorf("= %s", got)
}

// afterBody is what a handler says that has read a body for which there was so much time, and
// has waited for four times as long since.
func afterBody(t *testing.T, within time.Duration) string {
	t.Helper()
	s := &Server{bodyTime: within, bodyRest: time.Minute}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = s.hurried(w, r)
		b, err := io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			err = r.Context().Err()
		case <-time.After(4 * within):
		}
		fmt.Fprintf(w, "%s %v", b, err)
	}))
	defer srv.Close()
	resp, err := http.Post(srv.URL, "text/plain", strings.NewReader("all of it"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
