package mcpgateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/patience"
)

// A client that does not read is cut off, and one that does gets all, however long it is.
func TestClientThatDoesNotRead(t *testing.T) {
	for name, reads := range map[string]bool{"stuck": false, "control": true} {
		t.Run(name, func(t *testing.T) {
			const n = 24_000_000
			wrote := make(chan error, 1)
			within := 100 * time.Millisecond
			if reads {
				within = patience.For(30 * time.Second)
			}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				p := &patient{w: w, c: http.NewResponseController(w), within: within}
				p.Flush()
				_, err := p.Write(make([]byte, n))
				wrote <- err
			}))
			defer srv.Close()
			defer srv.CloseClientConnections()
			res, err := http.Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if reads {
				if got, err := io.Copy(io.Discard, res.Body); got != n || err != nil {
					t.Errorf("it got %d bytes, %v", got, err)
				}
			}
			select {
			case err := <-wrote:
				if errors.Is(err, os.ErrDeadlineExceeded) == reads {
					t.Errorf("written: %v", err)
				}
			case <-time.After(patience.For(time.Minute)):
				t.Error("who writes to it is held up")
			}
		})
	}
}
