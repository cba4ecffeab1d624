package daemon

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// A connection that announces a body and never sends it is closed. The control
// is a server that waits for it.
func TestUnsentBody(t *testing.T) {
	for _, patient := range []bool{false, true} {
		srv := (&sessionRuntime{log: slog.New(slog.DiscardHandler)}).boxServer(t.Context())
		if srv.ReadTimeout <= 0 || srv.WriteTimeout <= 0 || srv.ReadHeaderTimeout <= 0 {
			t.Fatalf("a connection may take for ever: %+v", srv)
		}
		srv.ReadTimeout = 50 * time.Millisecond // as long as it is, but shorter
		if patient {
			srv.ReadTimeout = 0
		}
		srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = srv.Serve(l) }()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		wait := patience.For(10 * time.Second)
		if patient {
			wait = 300 * time.Millisecond
		}
		if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, c)
		if held := errors.Is(err, os.ErrDeadlineExceeded); held != patient {
			t.Errorf("patient %v: the connection was held: %v (%v)", patient, held, err)
		}
		_ = c.Close()
		_ = srv.Close()
	}
}
