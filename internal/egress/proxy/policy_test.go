package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func TestRefusedRequest(t *testing.T) {
	p := policy.Policy{Rules: []policy.Rule{{ID: "read", Hosts: []string{"a.example"}, Matches: []policy.Match{{Methods: []string{"GET"}}}}}}
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, p, worldOptions{})
		c := &canary{}
		w.web("a.example", "45.0.0.1", c)
		client := w.client(http2)
		resp, err := client.Post(scheme+"://a.example/publish?token=hidden", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		r := wantRefused(t, "POST", resp, string(body), 403, "request_refused")
		if r.Rule != "read" || strings.Contains(string(body), "hidden") {
			t.Errorf("refused with %+v", r)
		}
		if rec := w.recorded(code("request_refused")); rec.Path != "/publish" || rec.Method != "POST" || rec.Rule != "read" || rec.Status != 403 {
			t.Errorf("recorded %+v", rec)
		}
		if c.hits.Load() != 0 {
			t.Error("it got through")
		}
		if resp, err := client.Get(scheme + "://a.example/"); err != nil || resp.StatusCode != 200 {
			t.Errorf("GET: %v, %v", resp, err)
		} else {
			resp.Body.Close()
		}
	})
}

func TestLimits(t *testing.T) {
	p := allow("a.example")
	p.Rules[0].Limits = policy.Limits{RequestBytes: 1000, RequestsPerMinute: 6, ResponseBytes: 2000}
	w := newWorld(t, p, worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(rw, strings.Repeat("x", len(r.URL.Path)))
	}))
	ask := func(path, fields, body string) (*http.Response, string) {
		return speak(t, w.dial("45.0.0.1:80"), "POST /"+path+" HTTP/1.1\r\nHost: a.example\r\n"+fields+"\r\n"+body)
	}
	if resp, _ := ask("", "Content-Length: 1000\r\n", strings.Repeat("x", 1000)); resp.StatusCode != 200 {
		t.Errorf("within: %d", resp.StatusCode)
	}
	resp, body := ask("", "Content-Length: 1001\r\n", strings.Repeat("x", 1001))
	wantRefused(t, "length", resp, body, 413, proxy.CodeLimit)
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 600, strings.Repeat("x", 600))
	resp, body = ask("", "Transfer-Encoding: chunked\r\n", chunk+chunk+"0\r\n\r\n")
	wantRefused(t, "chunked", resp, body, 413, proxy.CodeLimit)
	if resp, body := ask(strings.Repeat("y", 1999), "Content-Length: 0\r\n", ""); resp.StatusCode != 200 || len(body) != 2000 {
		t.Errorf("an answer within: %d, %d bytes", resp.StatusCode, len(body))
	}
	resp, body = ask(strings.Repeat("y", 2000), "Content-Length: 0\r\n", "")
	wantRefused(t, "answer", resp, body, 413, proxy.CodeLimit)
	ask("", "Content-Length: 0\r\n", "")
	resp, body = ask("", "Content-Length: 0\r\n", "")
	wantRefused(t, "rate", resp, body, 429, proxy.CodeLimit)
	if resp.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// TestBytesInAll uses a rule's bytes up over several requests.
func TestBytesInAll(t *testing.T) {
	p := allow("a.example")
	p.Rules[0].Limits = policy.Limits{Bytes: 100}
	w := newWorld(t, p, worldOptions{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, strings.Repeat("x", 50)) }))
	for i := range 3 {
		resp, body := speak(t, w.dial("45.0.0.1:80"), requestFor("a.example"))
		if i < 2 {
			if resp.StatusCode != 200 {
				t.Errorf("%d: %d", i, resp.StatusCode)
			}
			continue
		}
		wantRefused(t, "over", resp, body, 413, proxy.CodeLimit)
	}
}

// lateConn is closed only once something was read after what was written last, such as
// TLS's word that it is closed.
type lateConn struct {
	net.Conn
	read chan struct{}
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case c.read <- struct{}{}:
	default:
	}
	return n, err
}

func (c *lateConn) Write(p []byte) (int, error) {
	select {
	case <-c.read:
	default:
	}
	return c.Conn.Write(p)
}

func (c *lateConn) Close() error {
	select {
	case <-c.read:
	case <-time.After(patience.For(5 * time.Second)):
	}
	return c.Conn.Close()
}

// TestCutAsTheAnswerEnds: an answer that its server ends well because it was hung up on
// was cut, for the record and for the sandbox.
func TestCutAsTheAnswerEnds(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{change: func(o *proxy.Options) {
		dial := o.Dial
		o.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			c, err := dial(ctx, to)
			return &lateConn{Conn: c, read: make(chan struct{}, 1)}, err
		}
	}})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "begun\n")
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}))
	resp, err := w.client(false).Get("https://a.example/long")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	w.set(allow("b.example"))
	if n := w.proxy.Recheck(); n != 1 {
		t.Errorf("%d were cut, want 1", n)
	}
	if _, err := body.ReadByte(); err == nil || err == io.EOF || isTimeout(err) {
		t.Errorf("the answer's end: %v, want that it broke off", err)
	}
	w.recorded(func(r netlog.Record) bool { return r.Code == proxy.CodeCut && r.Host == "a.example" })
}

// TestRecheck changes the policy under what is open: what it no longer allows
// is cut, the rest goes on.
func TestRecheck(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool, scheme string) {
		w := newWorld(t, allow("a.example", "b.example"), worldOptions{})
		end := make(chan struct{})
		for i, name := range []string{"a.example", "b.example"} {
			w.web(name, fmt.Sprintf("45.0.0.%d", i+1), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(rw, "begun\n")
				_ = http.NewResponseController(rw).Flush()
				if name == "a.example" {
					<-r.Context().Done()
				} else {
					<-end
				}
			}))
		}
		c := w.client(http2)
		open := func(name string) *bufio.Reader {
			resp, err := c.Get(scheme + "://" + name + "/long")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { resp.Body.Close() })
			r := bufio.NewReader(resp.Body)
			if line, err := r.ReadString('\n'); err != nil {
				t.Fatal(line, err)
			}
			return r
		}
		a, b := open("a.example"), open("b.example")
		if n := w.proxy.Recheck(); n != 0 {
			t.Errorf("%d were cut by the same policy", n)
		}
		w.set(allow("b.example"))
		if n := w.proxy.Recheck(); n == 0 {
			t.Fatal("nothing was cut")
		}
		if _, err := a.ReadByte(); err == nil || isTimeout(err) {
			t.Errorf("what is no longer allowed: %v", err)
		}
		w.recorded(func(r netlog.Record) bool { return r.Code == proxy.CodeCut && r.Host == "a.example" })
		close(end)
		if _, err := b.ReadByte(); err != io.EOF {
			t.Errorf("what is allowed still: %v", err)
		}
	})
}

// TestRecheckRequest closes a path of a host that stays allowed, under a
// request that is waiting for its answer.
func TestRecheckRequest(t *testing.T) {
	paths := func(all ...string) policy.Policy {
		p := allow("a.example")
		m := policy.Match{}
		for _, path := range all {
			m.Paths = append(m.Paths, policy.Value{Value: path})
		}
		p.Rules[0].Matches = []policy.Match{m}
		return p
	}
	w := newWorld(t, paths("/long", "/other"), worldOptions{})
	reached := make(chan struct{})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			close(reached)
			<-r.Context().Done()
		}
	}))
	go func() {
		<-reached
		w.set(paths("/other"))
		w.proxy.Recheck()
	}()
	c := w.tls("45.0.0.1:443", "a.example")
	r := bufio.NewReader(c)
	resp, body := talk(t, c, r, "GET /long HTTP/1.1\r\nHost: a.example\r\n\r\n")
	wantRefused(t, "the waiting one", resp, body, 403, proxy.CodeCut)
	if resp, _ := talk(t, c, r, "GET /other HTTP/1.1\r\nHost: a.example\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("the next on the connection: %d", resp.StatusCode)
	}
}

// TestRecheckRelay turns what was passed on unread into what is to be read.
func TestRecheckRelay(t *testing.T) {
	pass := policy.Policy{Rules: []policy.Rule{{ID: "r", Hosts: []string{"a.example"}, Protocol: policy.ProtocolTLS}}}
	w := newWorld(t, pass, worldOptions{})
	w.web("a.example", "45.0.0.1", &canary{})
	c := w.dial("45.0.0.1:443")
	tc := tlsTo(t, w, c)
	if _, body := speak(t, tc, requestFor("a.example")); body != "reached" {
		t.Fatal(body)
	}
	w.set(allow("a.example"))
	if n := w.proxy.Recheck(); n != 1 {
		t.Errorf("%d were cut", n)
	}
	if _, err := tc.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("it is open: %v", err)
	}
	w.recorded(code(proxy.CodeCut))
}

// TestStall has an upstream that takes a request and says nothing.
func TestStall(t *testing.T) {
	w := newWorld(t, allow("a.example"), worldOptions{change: func(o *proxy.Options) { o.Timeouts.Stall = 100 * time.Millisecond }})
	w.web("a.example", "45.0.0.1", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	resp, body := speak(t, w.dial("45.0.0.1:80"), requestFor("a.example"))
	wantRefused(t, "stalled", resp, body, 504, proxy.CodeStalled)
}

func TestUpstreamGone(t *testing.T) {
	w := newWorld(t, allow("a.example", "b.example"), worldOptions{})
	w.at("a.example", "45.0.0.1")
	resp, body := speak(t, w.dial("45.0.0.1:80"), requestFor("a.example"))
	wantRefused(t, "nobody there", resp, body, 502, proxy.CodeUpstream)
	w.at("b.example", "45.0.0.2")
	w.start("45.0.0.2:80", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(rw, "half")
	}), nil)
	c := w.dial("45.0.0.2:80")
	_ = c.SetDeadline(time.Now().Add(patience.For(5 * time.Second)))
	_, _ = io.WriteString(c, requestFor("b.example"))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("half an answer looked whole")
	}
}

// TestSecret puts a secret in where its rule says so, and refuses its
// placeholder elsewhere and its value in an answer.
func TestSecret(t *testing.T) {
	const value = "s3cr3t-value-of-the-token"
	p := allow("a.example", "b.example")
	p.Rules = []policy.Rule{
		{ID: "a", Hosts: []string{"a.example"}, Secrets: []policy.Secret{{Name: "TOKEN", Header: "Authorization"}}},
		{ID: "b", Hosts: []string{"b.example"}},
	}
	w := newWorld(t, p, worldOptions{secrets: map[string]string{"TOKEN": value}})
	h := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/echo" {
			_, _ = io.WriteString(rw, "you sent "+r.Header.Get("Authorization"))
			return
		}
		rw.Header().Set("X-Right", fmt.Sprint(r.Header.Get("Authorization") == "Bearer "+value))
	})
	w.web("a.example", "45.0.0.1", h)
	w.web("b.example", "45.0.0.2", h)
	for _, http2 := range []bool{false, true} {
		c := w.client(http2)
		ask := func(host, path string, fields ...string) (*http.Response, string) {
			t.Helper()
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+host+path, strings.NewReader("body"))
			for i := 0; i < len(fields); i += 2 {
				req.Header.Set(fields[i], fields[i+1])
			}
			resp, err := c.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			return resp, string(body)
		}
		bearer := "Bearer " + placeholder("TOKEN")
		if resp, body := ask("a.example", "/", "Authorization", bearer); resp.Header.Get("X-Right") != "true" {
			t.Errorf("the secret did not arrive: %d %s", resp.StatusCode, body)
		}
		rec := w.recorded(func(r netlog.Record) bool { return r.Status == 200 && len(r.Secrets) == 1 })
		if rec.Secrets[0] != "TOKEN" {
			t.Errorf("recorded %+v", rec)
		}
		resp, body := ask("b.example", "/", "Authorization", bearer)
		wantRefused(t, "another host", resp, body, 403, "placeholder_misplaced")
		resp, body = ask("a.example", "/", "X-Other", placeholder("TOKEN"))
		wantRefused(t, "another field", resp, body, 403, "placeholder_misplaced")
		resp, body = ask("a.example", "/", "Authorization", "Bearer of-my-own")
		wantRefused(t, "a foreign one", resp, body, 403, "foreign_credential")
		resp, body = ask("a.example", "/echo", "Authorization", bearer)
		if strings.Contains(body, value) {
			t.Error("the value came back")
		}
		wantRefused(t, "echoed", resp, body, 502, "secret_echoed")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := fmt.Sprintf("%+v", w.records); strings.Contains(text, value) || strings.Contains(text, placeholder("TOKEN")) {
		t.Error("a record holds a secret")
	}
}

// TestAnyBytes sends HTTP where a rule lets any bytes through, to an address of
// two names: each is treated as its own rule says.
func TestAnyBytes(t *testing.T) {
	w := newWorld(t, policy.Policy{Rules: []policy.Rule{
		{ID: "any", Hosts: []string{"a.example"}, Ports: []string{"80"}, Protocol: policy.ProtocolTCP},
		{ID: "read", Hosts: []string{"b.example"}, Matches: []policy.Match{{Methods: []string{"GET"}}}},
	}}, worldOptions{})
	w.at("a.example", "45.0.0.1")
	w.web("b.example", "45.0.0.1", http.HandlerFunc(echoServer))
	c := w.dial("45.0.0.1:80")
	r := bufio.NewReader(c)
	post := func(host string) string {
		return "POST / HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 0\r\n\r\n"
	}
	if resp, body := talk(t, c, r, post("a.example")); resp.StatusCode != 200 {
		t.Errorf("any bytes: %d %s", resp.StatusCode, body)
	}
	resp, body := talk(t, c, r, post("b.example"))
	wantRefused(t, "what is read", resp, body, 403, string(policy.CodeRequest))
}
