package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// TestTooManyConnections opens more than there is room for: the excess is
// reset, the others go on.
func TestTooManyConnections(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{change: func(o *proxy.Options) { o.MaxConns = 3 }})
	w.web("a.example", "45.0.0.1", &canary{})
	var open []net.Conn
	for range 3 {
		c := w.dial("45.0.0.1:80")
		if resp, _ := speak(t, c, requestFor("a.example")); resp.StatusCode != 200 {
			t.Fatalf("within the bound: %d", resp.StatusCode)
		}
		open = append(open, c)
	}
	c := w.dial("45.0.0.1:80")
	_ = c.SetDeadline(time.Now().Add(patience.For(5 * time.Second)))
	if n, err := c.Read(make([]byte, 1)); err == nil || n != 0 || isTimeout(err) {
		t.Errorf("over the bound: read %d, %v", n, err)
	}
	w.recorded(code(proxy.CodeTooMany))
	for _, c := range open {
		if resp, _ := speak(t, c, requestFor("a.example")); resp.StatusCode != 200 {
			t.Errorf("another: %d", resp.StatusCode)
		}
	}
	open[0].Close()
	if !patience.Until(10*time.Second, func() bool { return w.proxy.Conns() < 3 }) {
		t.Fatal("one that has left is counted")
	}
	if resp, _ := speak(t, w.dial("45.0.0.1:80"), requestFor("a.example")); resp.StatusCode != 200 {
		t.Errorf("after one has left: %d", resp.StatusCode)
	}
}

func isTimeout(err error) bool {
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}

// TestSlowloris sends heads and bodies that never end, of each version, all at
// the same time: they are cut, and others are served meanwhile.
func TestSlowloris(t *testing.T) {
	limit := patience.For(1500 * time.Millisecond) // a good request on a busy machine is well within it
	w := newWorld(t, allow("a.example"), worldOptions{change: func(o *proxy.Options) {
		o.Timeouts = proxy.Timeouts{Sniff: limit, Head: limit, Body: limit, Idle: time.Minute, Handshake: limit}
	}})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(echoServer))
	begun := map[string]string{
		"nothing": "", "half-method": "GE", "half-line": "GET / HT", "half-head": "GET / HTTP/1.1\r\nHost: a.example\r\nX: ",
		"half-hello": "\x16\x03\x01\x02\x00\x01", "half-preface": "PRI * HTTP/2.0\r\n",
		"half-body": "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 10\r\n\r\nabc",
	}
	slow := map[string]net.Conn{}
	for name, text := range begun {
		slow[name] = w.dial("45.0.0.1:80")
		if _, err := io.WriteString(slow[name], text); err != nil {
			t.Fatal(err)
		}
	}
	// Control: a kept connection that is merely quiet stays.
	quiet := w.dial("45.0.0.1:80")
	r := bufio.NewReader(quiet)
	talk(t, quiet, r, requestFor("a.example"))
	since := time.Now()
	// A head after a good request, on a kept connection.
	second := w.dial("45.0.0.1:80")
	if resp, _ := speak(t, second, requestFor("a.example")+"GET "); resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode)
	}
	slow["second-head"] = second
	for name, c := range slow {
		_ = c.SetDeadline(time.Now().Add(patience.For(10 * time.Second)))
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			t.Errorf("%s: the connection is still open", name)
		}
	}
	<-time.After(time.Until(since.Add(limit + limit/4)))
	if resp, _ := talk(t, quiet, r, requestFor("a.example")); resp.StatusCode != 200 {
		t.Errorf("after a pause: %d", resp.StatusCode)
	}
}

// TestManyStreams opens more streams than the bound on one connection.
func TestManyStreams(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	release := make(chan struct{})
	var most, now atomic.Int64
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		for {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		<-release
		now.Add(-1)
	}))
	h := newH2(t, w.tls("45.0.0.1:443", "a.example", "h2"))
	refused := 0
	for range proxy.MaxStreams + 20 {
		h.send(pseudo("a.example", "/")...)
	}
	for refused < 20 {
		if status, _ := h.read(); status == "reset" {
			refused++
		} else {
			t.Fatalf("answered %s", status)
		}
	}
	close(release)
	if m := most.Load(); m > proxy.MaxStreams {
		t.Errorf("%d at once", m)
	}
}

// TestEndlessUpstream never ends its answer: the guest can leave, and the rule
// bounds it.
func TestEndlessUpstream(t *testing.T) {
	p := allow("a.example")
	p.Rules[0].Limits.ResponseBytes = 1 << 20
	w := newWorld(t, p, worldOptions{})
	left := make(chan struct{}, 8)
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 32<<10)
		for r.Context().Err() == nil {
			if _, err := rw.Write(buf); err != nil {
				break
			}
		}
		left <- struct{}{}
	}))
	for _, http2 := range []bool{false, true} {
		resp, err := w.client(http2).Get("https://a.example/")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err == nil || n > 1<<20 {
			t.Errorf("received %d bytes, %v; want no more than %d and an error", n, err, 1<<20)
		}
		<-left
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.example/", nil)
		if resp, err = w.client(http2).Do(req); err != nil {
			t.Fatal(err)
		}
		_, _ = resp.Body.Read(make([]byte, 1))
		cancel()
		resp.Body.Close()
		<-left // the upstream notices
	}
	w.recorded(code(proxy.CodeLimit))
}
