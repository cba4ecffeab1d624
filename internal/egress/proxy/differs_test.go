package proxy_test

import (
	"bufio"
	"io"
	"net/http"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// TestNamedByConnection: a field that Connection names goes to the gate alone,
// so no rule may count on it for what is sent.
func TestNamedByConnection(t *testing.T) {
	p := policy.Policy{Rules: []policy.Rule{
		{ID: "safe", Hosts: []string{"a.example"}, Matches: []policy.Match{{Headers: []policy.Field{{Name: "X-Mode", Value: "safe"}}}}},
	}}
	w := newWorld(t, p, worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "mode="+r.Header.Get("X-Mode"))
	}))
	ask := func(connection string) (*http.Response, string) {
		return speak(t, w.dial("45.0.0.1:80"), "GET / HTTP/1.1\r\nHost: a.example\r\nX-Mode: safe\r\n"+connection+"\r\n")
	}
	for _, as := range []string{"Connection: X-Mode\r\n", "Connection: keep-alive\r\nConnection: close, x-mode\r\n"} {
		resp, body := ask(as)
		wantRefused(t, as, resp, body, 403, "request_refused")
	}
	if resp, body := ask("Connection: keep-alive, X-Other\r\n"); resp.StatusCode != 200 || body != "mode=safe" {
		t.Errorf("with the field: %d %q", resp.StatusCode, body)
	}
}

// TestEveryAddressIsAsked: a name may be at several addresses, of which one is
// open to some requests alone. Which of them answers must not decide.
func TestEveryAddressIsAsked(t *testing.T) {
	p := policy.Policy{Rules: []policy.Rule{
		{ID: "name", Hosts: []string{"a.example"}, Ports: []string{"80", "443"}},
		{ID: "inside", Addresses: []string{"10.0.0.0/8"}, Ports: []string{"80", "443"}, Matches: []policy.Match{{Methods: []string{"GET"}, Paths: []policy.Value{{Value: "/health"}}}}},
	}}
	w := newWorld(t, p, worldOptions{})
	w.at("a.example", "45.0.0.1") // where nobody is
	c := &canary{}
	w.web("a.example", "10.0.0.1", c)
	ask := func(method, path string) (*http.Response, string) {
		return speak(t, w.dialProxy(), method+" http://a.example"+path+" HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n")
	}
	if resp, body := ask("POST", "/admin"); resp.StatusCode != 502 || c.hits.Load() != 0 {
		t.Errorf("what is closed at the second address was answered: %d %q", resp.StatusCode, body)
	}
	if resp, body := ask("GET", "/health"); resp.StatusCode != 200 || c.hits.Load() != 1 {
		t.Errorf("what is open at both: %d %q", resp.StatusCode, body)
	}
}

// TestRecheckOfAnyBytes: what goes through the HTTP proxy to where a rule lets
// any bytes go is cut as well when the policy changes.
func TestRecheckOfAnyBytes(t *testing.T) {
	at := policy.Rule{Hosts: []string{"a.example"}, Ports: []string{"8080"}}
	tcp := at
	tcp.Protocol = policy.ProtocolTCP
	for _, tt := range []struct {
		name string
		next policy.Policy
		cut  int
	}{
		{"same", policy.Policy{Rules: []policy.Rule{tcp}}, 0},
		{"gone", policy.Policy{}, 1},
		{"to-be-read", policy.Policy{Rules: []policy.Rule{at}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, policy.Policy{Rules: []policy.Rule{tcp}}, worldOptions{})
			w.at("a.example", "45.0.0.1")
			w.start("45.0.0.1:8080", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(rw, "begun")
				_ = http.NewResponseController(rw).Flush()
				<-r.Context().Done()
			}), nil)
			c := w.dialProxy()
			defer c.Close()
			if _, err := io.WriteString(c, "GET http://a.example:8080/ HTTP/1.1\r\nHost: a.example:8080\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil || resp.StatusCode != 200 {
				t.Fatal(resp.StatusCode, err)
			}
			w.set(tt.next)
			if got := w.proxy.Recheck(); got != tt.cut {
				t.Errorf("%d were cut, want %d", got, tt.cut)
			}
			if tt.cut > 0 {
				if _, err := io.ReadAll(resp.Body); err == nil {
					t.Error("it ended as if it were whole")
				}
			}
		})
	}
}

// TestNamesInCapitals: SNI and Host agree whatever their case.
func TestNamesInCapitals(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(echoServer))
	c := w.tls("45.0.0.1:443", "A.Example", "http/1.1")
	if resp, body := speak(t, c, "GET / HTTP/1.1\r\nHost: a.EXAMPLE\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
