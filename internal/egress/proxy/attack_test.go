package proxy_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// refusal is the body of a refusal.
type refusal struct{ Code, Message, Rule, Host, Hint string }

// wantRefused checks an answer that refuses.
func wantRefused(t *testing.T, what string, resp *http.Response, body string, status int, code string) refusal {
	t.Helper()
	var r refusal
	if resp.StatusCode != status || resp.Header.Get("X-Carboy-Refused") != code {
		t.Errorf("%s: answered %d %s %q, want %d %s", what, resp.StatusCode, resp.Header.Get("X-Carboy-Refused"), body, status, code)
		return r
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.Code != code || r.Message == "" || !strings.HasSuffix(body, "}\n") {
		t.Errorf("%s: body %q, %v", what, body, err)
	}
	return r
}

// canary counts the requests that reach it.
type canary struct{ hits atomic.Int64 }

func (c *canary) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.hits.Add(1)
	_, _ = io.WriteString(w, "reached")
}

// shared is a world where a.example is allowed, and evil.example, on the same
// address and by the same server, is not: what a CDN is to a fronting client.
func shared(t *testing.T) (*world, *canary) {
	w := newWorld(t, allow("a.example", "b.example"), worldOptions{})
	c := &canary{}
	w.at("a.example", "45.0.0.1")
	w.at("b.example", "45.0.0.1")
	cert := w.ca.issue(t, nil, "a.example", "b.example", "evil.example")
	server := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "evil") || strings.HasPrefix(r.Host, "b.") {
			c.ServeHTTP(rw, r)
		}
	})
	w.start("45.0.0.1:443", server, &tls.Config{Certificates: []tls.Certificate{cert}})
	w.start("45.0.0.1:80", server, nil)
	return w, c
}

func requestFor(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }

// TestDomainFronting asks under one name for another, on a server of both.
func TestDomainFronting(t *testing.T) {
	w, evil := shared(t)
	for _, host := range []string{"evil.example", "b.example", "45.0.0.1", "a.example.", "a.example:8443", "a.example@evil.example"} {
		resp, body := speak(t, w.tls("45.0.0.1:443", "a.example"), requestFor(host))
		switch host {
		case "a.example.": // another spelling of the same
			if resp.StatusCode != 200 {
				t.Errorf("%s: %d", host, resp.StatusCode)
			}
		case "a.example@evil.example":
			wantRefused(t, host, resp, body, 400, proxy.CodeBadRequest)
		default:
			wantRefused(t, host, resp, body, 421, proxy.CodeNameMismatch)
		}
	}
	if n := evil.hits.Load(); n != 0 {
		t.Errorf("%d requests got through", n)
	}
	w.recorded(func(r netlog.Record) bool {
		return r.Code == proxy.CodeNameMismatch && r.Verdict == netlog.Deny && r.Host == "evil.example" && r.Status == 421
	})
	// Control: under its own name it gets through.
	if resp, body := speak(t, w.tls("45.0.0.1:443", "b.example"), requestFor("b.example")); resp.StatusCode != 200 || body != "reached" {
		t.Errorf("under its own name: %d %q", resp.StatusCode, body)
	}
}

// TestSwapOnKeepAlive changes the host on a connection that was good so far.
func TestSwapOnKeepAlive(t *testing.T) {
	w, evil := shared(t)
	c := w.tls("45.0.0.1:443", "a.example")
	r := bufio.NewReader(c)
	for range 2 {
		if resp, _ := talk(t, c, r, requestFor("a.example")); resp.StatusCode != 200 {
			t.Fatalf("the good request: %d", resp.StatusCode)
		}
	}
	resp, body := talk(t, c, r, requestFor("evil.example"))
	wantRefused(t, "swapped", resp, body, 421, proxy.CodeNameMismatch)

	// In the clear each request may have a host of its own, but only one that
	// the gate has resolved to the address, and the policy allows.
	clear := w.dial("45.0.0.1:80")
	r = bufio.NewReader(clear)
	for _, host := range []string{"a.example", "b.example"} {
		if resp, _ := talk(t, clear, r, requestFor(host)); resp.StatusCode != 200 {
			t.Errorf("%s in the clear: %d", host, resp.StatusCode)
		}
	}
	before := evil.hits.Load()
	resp, body = talk(t, clear, r, requestFor("evil.example"))
	wantRefused(t, "swapped in the clear", resp, body, 421, proxy.CodeNameMismatch)
	if evil.hits.Load() != before {
		t.Error("the swapped request got through")
	}
}

// TestAuthoritySwap does so in HTTP/2, and by a Host field beside :authority.
func TestAuthoritySwap(t *testing.T) {
	w, evil := shared(t)
	c := w.tls("45.0.0.1:443", "a.example", "h2")
	h := newH2(t, c)
	if status, _ := h.do(pseudo("a.example", "/")...); status != "200" {
		t.Fatalf("the good request: %s", status)
	}
	for _, tt := range []struct {
		name   string
		fields []string
		want   string
	}{
		{"authority", pseudo("evil.example", "/"), "421"},
		{"coalesced", pseudo("b.example", "/"), "421"},
		{"host-beside", append(pseudo("a.example", "/"), "host", "evil.example"), "421"},
		{"host-twice", append(pseudo("a.example", "/"), "host", "a.example", "host", "evil.example"), "421"},
		{"host-alone", append(pseudo("", "/")[:6], "host", "evil.example"), "421"},
		{"url-path", pseudo("a.example", "https://evil.example/"), "400"},
		{"port", pseudo("a.example:8443", "/"), "421"},
		{"underscored-length", append(pseudo("a.example", "/"), "content_length", "5"), "400"},
		{"underscored-coding", append(pseudo("a.example", "/"), "content_encoding", "gzip"), "400"},
		{"dotted-hop", append(pseudo("a.example", "/"), "proxy.connection", "close"), "400"},
	} {
		if status, code := h.do(tt.fields...); status != tt.want {
			t.Errorf("%s: answered %s %s, want %s", tt.name, status, code, tt.want)
		}
	}
	if n := evil.hits.Load(); n != 0 {
		t.Errorf("%d requests got through", n)
	}
	if status, _ := h.do(pseudo("a.example", "/")...); status != "200" {
		t.Errorf("a good request afterwards: %s", status)
	}
}

// TestExtendedConnect asks for WebSocket over HTTP/2: refused, and the
// connection goes on.
func TestExtendedConnect(t *testing.T) {
	w, _ := shared(t)
	h := newH2(t, w.tls("45.0.0.1:443", "a.example", "h2"))
	for _, fields := range [][]string{
		{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":path", "/", ":authority", "a.example"},
	} {
		if status, _ := h.do(fields...); status != "reset" {
			t.Errorf("%v: %s", fields, status)
		}
	}
	if status, code := h.do(":method", "CONNECT", ":authority", "a.example"); status != "reset" && status != "403" {
		t.Errorf("CONNECT: %s %s", status, code)
	}
	if status, _ := h.do(pseudo("a.example", "/")...); status != "200" {
		t.Errorf("a good request afterwards: %s", status)
	}
}

func TestUnsoundRequests(t *testing.T) {
	w, evil := shared(t)
	tests := []struct {
		name, text, code string
		status           int
	}{
		{"te-cl", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + requestFor("evil.example"), proxy.CodeBadRequest, 400},
		{"te-space", "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", proxy.CodeBadRequest, 400},
		{"obs-fold", "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\r\n evil: b\r\n\r\n", proxy.CodeBadRequest, 400},
		{"bare-cr", "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\rEvil: b\r\n\r\n", proxy.CodeBadRequest, 400},
		{"nul", "GET / HTTP/1.1\r\nHost: a.example\r\nX: a\x00\r\n\r\n", proxy.CodeBadRequest, 400},
		{"absolute", "GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", proxy.CodeNameMismatch, 421},
		{"absolute-both", "GET https://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", proxy.CodeNameMismatch, 421},
		{"absolute-scheme", "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", proxy.CodeBadRequest, 400},
		{"connect", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "protocol_closed", 403},
		{"long", "GET /" + strings.Repeat("x", 70<<10) + " HTTP/1.1\r\nHost: a.example\r\n\r\n", proxy.CodeBadRequest, 431},
		{"no-http", "HELO there\r\n\r\n", proxy.CodeBadRequest, 400},
	}
	for _, tt := range tests {
		resp, body := speak(t, w.tls("45.0.0.1:443", "a.example"), tt.text)
		wantRefused(t, tt.name, resp, body, tt.status, tt.code)
	}
	if n := evil.hits.Load(); n != 0 {
		t.Errorf("%d requests got through", n)
	}
	// Control: the same request in absolute form, for the connection's host.
	if resp, _ := speak(t, w.tls("45.0.0.1:443", "a.example"), "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("absolute form of the same host: %d", resp.StatusCode)
	}
}

// TestSmuggling sends a request within a request's body: the upstream sees one
// request, whose body it is.
func TestSmuggling(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	var seen atomic.Int64
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		seen.Add(1)
		echoServer(rw, r)
	}))
	inner := requestFor("a.example")
	text := fmt.Sprintf("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: %d\r\n\r\n%s", len(inner), inner)
	_, body := speak(t, w.dial("45.0.0.1:80"), text)
	var got echo
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Body != inner || seen.Load() != 1 {
		t.Errorf("the upstream saw %d requests, the first with %q, %v", seen.Load(), got.Body, err)
	}
}

func TestCertificates(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.at("a.example", "45.0.0.1")
	other := newIssuer(t)
	day := 24 * time.Hour
	tests := []struct {
		name string
		cert tls.Certificate
		ok   bool
	}{
		{name: "good", cert: w.ca.issue(t, nil, "a.example"), ok: true},
		{name: "wildcard", cert: w.ca.issue(t, nil, "*.example"), ok: true},
		{name: "wrong-name", cert: w.ca.issue(t, nil, "b.example")},
		{name: "expired", cert: w.ca.issue(t, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(-2*day), time.Now().Add(-day) }, "a.example")},
		{name: "not-yet", cert: w.ca.issue(t, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(day), time.Now().Add(2*day) }, "a.example")},
		{name: "unknown-authority", cert: other.issue(t, nil, "a.example")},
		{name: "nul", cert: w.ca.issue(t, nil, "a.example\x00.evil.example")},
		{name: "for-clients", cert: w.ca.issue(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, "a.example")},
	}
	for i, tt := range tests {
		for _, http2 := range []bool{false, true} {
			c := &canary{}
			port := 1443 + i
			addr := fmt.Sprintf("45.0.0.1:%d", port)
			p := policy.Policy{Rules: []policy.Rule{{ID: "r", Hosts: []string{"a.example"}, Ports: []string{"1-65535"}}}}
			w.set(p)
			w.start(addr, c, &tls.Config{Certificates: []tls.Certificate{tt.cert}})
			resp, err := w.client(http2).Get(fmt.Sprintf("https://a.example:%d/", port))
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if tt.ok {
				if resp.StatusCode != 200 || c.hits.Load() != 1 {
					t.Errorf("%s: %d %s", tt.name, resp.StatusCode, body)
				}
				continue
			}
			wantRefused(t, tt.name, resp, string(body), 502, proxy.CodeUntrusted)
			if c.hits.Load() != 0 {
				t.Errorf("%s: the request was sent", tt.name)
			}
		}
	}
}

// TestOwnRoots verifies an upstream by a rule's own roots, and by no others.
func TestOwnRoots(t *testing.T) {
	private := newIssuer(t)
	pemText := private.pem()
	p := policy.Policy{Rules: []policy.Rule{
		{ID: "private", Hosts: []string{"p.example"}, Roots: pemText},
		{ID: "public", Hosts: []string{"a.example"}},
	}}
	w := newWorld(t, p, worldOptions{})
	for i, name := range []string{"p.example", "a.example"} {
		addr := fmt.Sprintf("45.0.0.%d", i+1)
		w.at(name, addr)
		w.start(addr+":443", &canary{}, &tls.Config{Certificates: []tls.Certificate{private.issue(t, nil, name)}})
	}
	c := w.client(false)
	for name, want := range map[string]int{"p.example": 200, "a.example": 502} {
		resp, err := c.Get("https://" + name + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, want)
		}
	}
}

// TestUnresolvedName asks for an allowed name on an address that the gate has
// not given for it: the attacker's own, with a certificate for the name.
func TestUnresolvedName(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.at("a.example", "45.0.0.1")
	c := &canary{}
	cert := w.ca.issue(t, nil, "a.example")
	w.start("45.0.0.99:443", c, &tls.Config{Certificates: []tls.Certificate{cert}})
	w.start("45.0.0.1:443", c, &tls.Config{Certificates: []tls.Certificate{cert}})
	resp, body := speak(t, w.tls("45.0.0.99:443", "a.example"), requestFor("a.example"))
	wantRefused(t, "elsewhere", resp, body, 421, proxy.CodeNameMismatch)
	if n := c.hits.Load(); n != 0 {
		t.Errorf("%d requests got through", n)
	}
	if resp, _ := speak(t, w.tls("45.0.0.1:443", "a.example"), requestFor("a.example")); resp.StatusCode != 200 {
		t.Errorf("where it is: %d", resp.StatusCode)
	}
}

// TestConnectionsAreNotShared has two names on one address, whose server
// answers on each connection before it is asked: what is left over from one
// name's connection must never answer a request for the other.
func TestConnectionsAreNotShared(t *testing.T) {
	w := newWorld(t, allow("a.example", "b.example"), worldOptions{})
	w.at("a.example", "45.0.0.1")
	w.at("b.example", "45.0.0.1")
	l := w.listen()
	w.serve("45.0.0.1:80", l)
	var mixed atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				first := ""
				for r := bufio.NewReader(c); ; {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if first == "" {
						first = req.Host
						_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(first), first)
					}
					if req.Host != first {
						mixed.Add(1)
					}
					_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(first), first)
				}
			}()
		}
	}()
	c := w.dial("45.0.0.1:80")
	r := bufio.NewReader(c)
	for i := range 20 {
		host := []string{"a.example", "b.example"}[i%2]
		if resp, body := talk(t, c, r, requestFor(host)); resp.StatusCode == 200 && body != host {
			t.Errorf("a request for %s was answered by %s", host, body)
		}
	}
	if n := mixed.Load(); n != 0 {
		t.Errorf("%d requests went over another name's connection", n)
	}
}
