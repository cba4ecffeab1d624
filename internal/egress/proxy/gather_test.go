package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
)

// TestBursts sends an answer in bursts, each once the one before has arrived
// whole: however much of it there is, and wherever records end, nothing that
// came is kept back for what has not.
func TestBursts(t *testing.T) {
	bursts := []int{1, 2 << 10, 100, 16 << 10, 16<<10 + 1, 3, 48 << 10, 62 << 10, 62<<10 + 1, 70_000, 16 << 10, 1 << 20, 5, 300_001}
	total := 0
	for _, n := range bursts {
		total += n
	}
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("chunked=%v", chunked), func(t *testing.T) {
				w := newWorld(t, allow("a.example"), worldOptions{})
				next := make(chan int)
				w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					if !chunked {
						rw.Header().Set("Content-Length", strconv.Itoa(total))
					}
					for n := range next {
						_, _ = rw.Write(pattern(n))
						_ = http.NewResponseController(rw).Flush()
					}
				}))
				answered := make(chan *http.Response, 1)
				go func() {
					resp, err := w.client(http2).Get(scheme + "://a.example/")
					if err != nil {
						t.Error(err)
					}
					answered <- resp
				}()
				next <- bursts[0]
				resp := <-answered
				if resp == nil {
					return
				}
				defer resp.Body.Close()
				for i, n := range bursts {
					if i > 0 {
						next <- n
					}
					got := make([]byte, n)
					if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != string(pattern(n)) {
						t.Fatalf("burst %d of %d bytes: %v", i, n, err)
					}
				}
				close(next)
				if n, err := io.Copy(io.Discard, resp.Body); n != 0 || err != nil {
					t.Errorf("%d bytes more, %v", n, err)
				}
			})
		}
	})
}

// pattern is of n bytes, no two parts of which look alike at once.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}
