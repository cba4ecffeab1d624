package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// dialProxy is a connection to the gate's HTTP proxy.
func (w *world) dialProxy() net.Conn {
	guest, gate := pair(w.t)
	go w.proxy.ServeProxy(context.WithoutCancel(w.t.Context()), gate)
	_ = guest.SetDeadline(time.Now().Add(patience.For(10 * time.Second)))
	return guest
}

// tunnel asks for one.
func (w *world) tunnel(hostPort string) (net.Conn, *http.Response, string) {
	w.t.Helper()
	c := w.dialProxy()
	resp, body := connectVia(w.t, c, hostPort)
	return c, resp, body
}

func connectVia(t testing.TB, c net.Conn, hostPort string) (*http.Response, string) {
	t.Helper()
	if _, err := io.WriteString(c, "CONNECT "+hostPort+" HTTP/1.1\r\nHost: "+hostPort+"\r\nProxy-Authorization: Basic eDp5\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, ""
	}
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

// TestExplicitProxy uses the proxy as stock clients do.
func TestExplicitProxy(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(echoServer))
	tr := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: "gate:3128", User: url.UserPassword("x", "y")}),
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return w.dialProxy(), nil },
		TLSClientConfig: &tls.Config{RootCAs: w.trusted}, ForceAttemptHTTP2: true,
	}
	t.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr}
	for _, scheme := range []string{"http", "https"} {
		for range 2 {
			resp, err := c.Post(scheme+"://a.example/x?y=z", "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			var got echo
			err = json.NewDecoder(resp.Body).Decode(&got)
			resp.Body.Close()
			if err != nil || got.URI != "/x?y=z" || got.Host != "a.example" || got.Body != "hello" || got.Header["Proxy-Authorization"] != nil || got.Header["Proxy-Connection"] != nil {
				t.Errorf("%s: the upstream received %+v, %v", scheme, got, err)
			}
			resp, err = c.Get(scheme + "://evil.example/")
			if scheme == "http" {
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				r := wantRefused(t, scheme, resp, string(body), 403, string(policy.CodeNotAllowed))
				if r.Host != "evil.example" || !strings.Contains(r.Hint, "--allow evil.example") {
					t.Errorf("refused with %+v", r)
				}
			} else if err == nil {
				t.Errorf("a tunnel to evil.example: %d", resp.StatusCode)
			}
		}
	}
	w.recorded(func(r netlog.Record) bool {
		return r.Method == "CONNECT" && r.Host == "evil.example" && strings.HasSuffix(r.Address, ":443")
	})
}

// TestConnectRelay tries to get elsewhere from within a tunnel.
func TestConnectRelay(t *testing.T) {
	w, evil := shared(t)
	inner := func(sni string) (*tls.Conn, error) {
		c, resp, body := w.tunnel("a.example:443")
		if resp.StatusCode != 200 {
			t.Fatal(resp.StatusCode, body)
		}
		tc := tls.Client(c, &tls.Config{ServerName: sni, RootCAs: w.trusted})
		return tc, tc.HandshakeContext(t.Context())
	}
	tc, err := inner("b.example") // allowed by itself, and at the same address
	if err != nil {
		t.Fatal(err)
	}
	resp, body := speak(t, tc, requestFor("b.example"))
	wantRefused(t, "another SNI", resp, body, 421, proxy.CodeNameMismatch)
	for _, tt := range []struct {
		name, text, code string
		status           int
	}{
		{"another Host", requestFor("evil.example"), proxy.CodeNameMismatch, 421},
		{"absolute form", "GET https://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n", proxy.CodeNameMismatch, 421},
		{"CONNECT", "CONNECT b.example:443 HTTP/1.1\r\nHost: b.example:443\r\n\r\n", "protocol_closed", 403},
	} {
		tc, err := inner("a.example")
		if err != nil {
			t.Fatal(err)
		}
		resp, body := speak(t, tc, tt.text)
		wantRefused(t, tt.name, resp, body, tt.status, tt.code)
	}
	c, resp, _ := w.tunnel("a.example:80")
	if resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode)
	}
	resp, body = speak(t, c, requestFor("b.example"))
	wantRefused(t, "another Host in the clear", resp, body, 421, proxy.CodeNameMismatch)
	if n := evil.hits.Load(); n != 0 {
		t.Errorf("%d requests got through", n)
	}
	// Control.
	tc, err = inner("a.example")
	if err != nil {
		t.Fatal(err)
	}
	if resp, body := speak(t, tc, requestFor("a.example")); resp.StatusCode != 200 {
		t.Errorf("what the tunnel is for: %d %s", resp.StatusCode, body)
	}
}

func TestConnectRefused(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{})
	w.web("a.example", "45.0.0.1", &canary{})
	for _, tt := range []struct {
		target, code string
		status       int
	}{
		{"evil.example:443", "not_allowed", 403},
		{"a.example:22", "not_allowed", 403},
		{"169.254.169.254:80", "closed_address", 403},
		{"[::1]:443", "closed_address", 403},
		{"45.0.0.9:443", "", 403},
		{"2130706433:80", "bad_request", 400},
		{"0x7f.1:80", "bad_request", 400},
		{"a.example", "bad_request", 400},
		{"a.example:0443", "bad_request", 400},
		{"a.example:99999", "bad_request", 400},
	} {
		_, resp, body := w.tunnel(tt.target)
		if tt.code == "" {
			tt.code = resp.Header.Get("X-Carboy-Refused")
		}
		wantRefused(t, tt.target, resp, body, tt.status, tt.code)
	}
	for _, text := range []string{requestFor("a.example"), "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "GET / HTTP/1.1\r\nHost: gate.carboy.internal\r\n\r\n"} {
		resp, body := speak(t, w.dialProxy(), text)
		wantRefused(t, text, resp, body, 400, proxy.CodeBadRequest)
	}
	resp, body := speak(t, w.dialProxy(), "GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n")
	wantRefused(t, "two hosts", resp, body, 421, proxy.CodeNameMismatch)
}

// TestConnectTCP is a tunnel to what a rule lets any bytes through to.
func TestConnectTCP(t *testing.T) {
	w := newWorld(t, policy.Policy{Rules: []policy.Rule{{ID: "db", Hosts: []string{"db.example"}, Ports: []string{"5432"}, Protocol: policy.ProtocolTCP}}}, worldOptions{})
	w.at("db.example", "45.0.0.1")
	w.parrot("45.0.0.1:5432")
	c, resp, body := w.tunnel("db.example:5432")
	if resp.StatusCode != 200 {
		t.Fatal(resp.StatusCode, body)
	}
	if got := w.parroted(c, "\x00any bytes"); got != "\x00any bytes" {
		t.Errorf("%q came back", got)
	}
	c.Close()
	w.recorded(func(r netlog.Record) bool {
		return r.Rule == "db" && r.Sent == 10 && r.Received == 10 && r.Host == "db.example"
	})
}

// parrot answers with whatever it receives.
func (w *world) parrot(addr string) {
	l := w.listen()
	w.serve(addr, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

func (w *world) parroted(c net.Conn, text string) string {
	w.t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience.For(10 * time.Second)))
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	buf := make([]byte, len(text))
	n, _ := io.ReadFull(c, buf)
	return string(buf[:n])
}

// TestPassThrough has TLS that the gate does not read: the guest sees the
// upstream's own certificate.
func TestPassThrough(t *testing.T) {
	w := newWorld(t, policy.Policy{Rules: []policy.Rule{{ID: "pass", Hosts: []string{"a.example"}, Protocol: policy.ProtocolTLS}}}, worldOptions{})
	w.web("a.example", "45.0.0.1", &canary{})
	c := tls.Client(w.dial("45.0.0.1:443"), &tls.Config{ServerName: "a.example", RootCAs: w.roots})
	if resp, body := speak(t, c, requestFor("a.example")); body != "reached" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	c.Close()
	r := w.recorded(func(r netlog.Record) bool { return r.Rule == "pass" })
	if r.Protocol != "tls" || r.Host != "a.example" || r.Sent == 0 || r.Verdict != netlog.Allow {
		t.Errorf("recorded %+v", r)
	}
	// A hello that may hide another name.
	guest := w.dial("45.0.0.1:443")
	ech := tls.Client(guest, &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "secret.example", RootCAs: w.roots, EncryptedClientHelloConfigList: echConfig("a.example")})
	if err := ech.HandshakeContext(t.Context()); err == nil {
		t.Error("a hello with a hidden name was passed on")
	}
	w.recorded(code(proxy.CodeECH))
}

// TestSink asks for refused names at the address that stands for them.
func TestSink(t *testing.T) {
	p := allow("a.example")
	p.Rules = append(p.Rules, policy.Rule{ID: "no", Hosts: []string{"denied.example"}, Action: policy.ActionDeny})
	w := newWorld(t, p, worldOptions{})
	w.at("a.example", "45.0.0.1")
	dial := func(port string) net.Conn {
		guest, gate := pair(t)
		go w.proxy.ServeSink(context.WithoutCancel(t.Context()), gate, netip.MustParseAddrPort("192.0.0.3:"+port))
		_ = guest.SetDeadline(time.Now().Add(patience.For(10 * time.Second)))
		return guest
	}
	for _, tt := range []struct {
		host, code, hint string
		status           int
	}{
		{"evil.example", "not_allowed", "--allow evil.example", 403},
		{"denied.example", "denied", "", 403},
		{"a.example", "not_resolved", "resolve it again", 503},
	} {
		resp, body := speak(t, dial("80"), requestFor(tt.host))
		r := wantRefused(t, tt.host, resp, body, tt.status, tt.code)
		if !strings.Contains(r.Hint, tt.hint) || r.Host != tt.host {
			t.Errorf("refused with %+v", r)
		}
		for _, proto := range []string{"http/1.1", "h2"} {
			begun := time.Now()
			c := tls.Client(dial("443"), &tls.Config{ServerName: tt.host, RootCAs: w.trusted, NextProtos: []string{proto}})
			if err := c.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			if proto == "h2" {
				if status, code := newH2(t, c).do(pseudo(tt.host, "/")...); code != tt.code {
					t.Errorf("%s in HTTP/2: %s %s", tt.host, status, code)
				}
			} else {
				resp, body := speak(t, c, requestFor(tt.host))
				wantRefused(t, tt.host, resp, body, tt.status, tt.code)
			}
			if took := time.Since(begun); took > 50*time.Millisecond {
				t.Logf("%s took %v", tt.host, took)
			}
		}
	}
	resp, body := speak(t, dial("8443"), requestFor("evil.example:8443"))
	if r := wantRefused(t, "a port", resp, body, 403, "not_allowed"); !strings.Contains(r.Message+r.Hint, "evil.example") {
		t.Errorf("refused with %+v", r)
	}
	c := dial("22")
	_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
	if n, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("SSH to the sink: %d, %v", n, err)
	}
}

func TestPages(t *testing.T) {
	p := allow("a.example")
	p.Rules[0].Secrets = []policy.Secret{{Name: "TOKEN", Header: "Authorization"}}
	w := newWorld(t, p, worldOptions{secrets: map[string]string{"TOKEN": "the-real-value"}})
	ask := func(text string) (*http.Response, string) {
		guest, gate := pair(t)
		go w.proxy.ServeInfo(context.WithoutCancel(t.Context()), gate)
		return speak(t, guest, text)
	}
	resp, body := ask(requestFor("gate.carboy.internal"))
	var got struct {
		Default        string
		Rules, Secrets []string
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != 200 || got.Default != "deny" ||
		len(got.Rules) != 1 || !strings.Contains(got.Rules[0], "a.example") || len(got.Secrets) != 1 || got.Secrets[0] != "TOKEN" {
		t.Errorf("%d %s, %v", resp.StatusCode, body, err)
	}
	if strings.Contains(body, "real-value") || strings.Contains(body, placeholder("TOKEN")) {
		t.Errorf("the page holds what it must not: %s", body)
	}
	if resp, body := ask("GET /healthz HTTP/1.1\r\nHost: 192.0.0.1\r\n\r\n"); resp.StatusCode != 200 || body != "ok\n" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	resp, body = ask("GET /x.html HTTP/1.1\r\nHost: 192.0.0.1\r\n\r\n")
	wantRefused(t, "another page", resp, body, 404, proxy.CodeNotHere)
	resp, body = ask("POST / HTTP/1.1\r\nHost: 192.0.0.1\r\nContent-Length: 0\r\n\r\n")
	wantRefused(t, "another method", resp, body, 405, proxy.CodeNotHere)
	resp, body = ask(requestFor("evil.example"))
	wantRefused(t, "another host", resp, body, 421, proxy.CodeNameMismatch)
}
