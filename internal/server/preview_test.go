package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// portOf is a request to a port of sb, by name.
func portOf(sb *sandbox.Sandbox, header map[string]string) request {
	return request{tcp: true, method: "GET", path: "/x", host: "3000-" + sb.ID + "." + domain, header: header}
}

// openWorld is a world whose sandboxes' ports are open unless they say.
func openWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.Kill()
	w.Options.PublicTraffic = true
	w.Start()
	return w
}

func TestTraffic(t *testing.T) {
	w := openWorld(t)
	open, closed := w.make(t, sandbox.Traffic{}), w.restricted(t)
	token := func(v string) map[string]string { return map[string]string{"E2b-Traffic-Access-Token": v} }
	tests := []struct {
		name   string
		sb     *sandbox.Sandbox
		header map[string]string
		want   int
	}{
		{"open", open, nil, 200},
		{"restricted", closed, token(closed.TrafficToken), 200},
		{"restricted-without", closed, nil, 403},
		{"restricted-wrong", closed, token(strings.Repeat("0", 64)), 403},
		{"restricted-empty", closed, token(""), 403},
		{"the-agents-token", closed, map[string]string{"X-Access-Token": closed.Token}, 403},
		{"the-agents-token-as-the-ports", closed, token(closed.Token), 403},
		{"a-key", closed, map[string]string{"X-API-KEY": w.full}, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, portOf(tt.sb, tt.header))
			if resp.StatusCode != tt.want {
				t.Errorf("= %d %s, want %d", resp.StatusCode, body, tt.want)
			}
			if tt.want == 403 && (!strings.Contains(body, `"sandboxId":"`+tt.sb.ID) || strings.Contains(body, tt.sb.TrafficToken)) {
				t.Errorf("body %s, want it to name the sandbox and no token", body)
			}
		})
	}
	t.Run("the-ports-token-at-the-agent", func(t *testing.T) {
		q := portOf(closed, map[string]string{"X-Access-Token": closed.TrafficToken, "E2b-Traffic-Access-Token": closed.TrafficToken})
		q.host, q.path = "49983-"+closed.ID+"."+domain, "/envs"
		if resp, body := w.do(t, q); resp.StatusCode != 401 {
			t.Errorf("= %d %s, want 401", resp.StatusCode, body)
		}
	})
	t.Run("made-by-v1", func(t *testing.T) {
		if sb := w.create(t, w.full); sb.TrafficToken == "" {
			t.Error("its ports are open, which nobody asked for")
		}
	})
	t.Run("not-public", func(t *testing.T) {
		w := newWorld(t)
		if resp, body := w.do(t, portOf(w.make(t, sandbox.Traffic{}), nil)); resp.StatusCode != 403 {
			t.Errorf("= %d %s, want 403 where the server opens no port to everybody", resp.StatusCode, body)
		}
	})
}

// What a server inside is told of a request, and what not.
func TestPortHeaders(t *testing.T) {
	w := openWorld(t)
	plain, masked := w.make(t, sandbox.Traffic{}), w.make(t, sandbox.Traffic{MaskHost: "localhost:${PORT}"})
	name := "3000-" + plain.ID + "." + domain
	w.do(t, portOf(plain, map[string]string{
		"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil",
		"Authorization": "Bearer its-own", "X-Api-Key": "its-own", "Cookie": "a=b", "Upgrade": "h2c", "Connection": "Upgrade, HTTP2-Settings", "Http2-Settings": "x",
		"Origin": "https://page.example",
	}))
	r := <-w.seen
	for h, want := range map[string]string{
		"X-Forwarded-For": "127.0.0.1", "Forwarded": "", "X-Forwarded-Proto": "", "X-Forwarded-Host": "",
		"Authorization": "Bearer its-own", "X-Api-Key": "its-own", "Cookie": "a=b", "Upgrade": "", "Http2-Settings": "",
		"Origin": "https://page.example",
	} {
		if got := strings.Join(r.Header.Values(h), "|"); got != want {
			t.Errorf("%s = %q, want %q", h, got, want)
		}
	}
	if r.Host != name {
		t.Errorf("Host = %q, want %q", r.Host, name)
	}
	w.do(t, portOf(masked, nil))
	r = <-w.seen
	if got := r.Header.Get("X-Forwarded-Host"); r.Host != "localhost:3000" || got != "3000-"+masked.ID+"."+domain {
		t.Errorf("masked: Host = %q, X-Forwarded-Host = %q", r.Host, got)
	}
}

// Pages reach sandboxes, by what they know, and not the API.
func TestPages(t *testing.T) {
	w := openWorld(t)
	sb := w.restricted(t)
	agent, port := "49983-"+sb.ID+"."+domain, "3000-"+sb.ID+"."+domain
	page := func(more ...string) map[string]string {
		h := map[string]string{"Origin": "https://page.example", "Sec-Fetch-Site": "cross-site", "Referer": "https://page.example/"}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	ask := func(method, headers string) map[string]string {
		return page("Access-Control-Request-Method", method, "Access-Control-Request-Headers", headers)
	}
	tests := []struct {
		name               string
		host, method, path string
		header             map[string]string
		want               int
		origin             string // Access-Control-Allow-Origin
	}{
		{"agent-preflight", agent, "OPTIONS", "/process.Process/List", ask("POST", "x-access-token,content-type"), 204, "*"},
		{"agent-preflight-odd-method", agent, "OPTIONS", "/envs", ask("TRACE", ""), 204, ""},
		{"agent-preflight-odd-headers", agent, "OPTIONS", "/envs", ask("GET", "a\tb"), 204, ""},
		{"agent", agent, "GET", "/envs", page("X-Access-Token", sb.Token), 200, "*"},
		{"agent-without-token", agent, "GET", "/envs", page(), 401, "*"},
		{"agent-with-its-cookie", agent, "GET", "/envs", page("Cookie", "token="+sb.Token), 401, "*"},
		{"by-header-preflight", "", "OPTIONS", "/envs", ask("GET", "e2b-sandbox-id, e2b-sandbox-port, x-access-token"), 204, "*"},
		{"by-header", "", "GET", "/envs", page("E2b-Sandbox-Id", sb.ID, "E2b-Sandbox-Port", "49983", "X-Access-Token", sb.Token), 200, "*"},
		{"port-preflight", port, "OPTIONS", "/x", ask("GET", "e2b-traffic-access-token"), 204, "*"},
		{"port-preflight-without-token", port, "OPTIONS", "/x", ask("GET", "x-a"), 403, "*"},
		{"port", port, "GET", "/x", page("E2b-Traffic-Access-Token", sb.TrafficToken), 200, ""},
		{"port-without-token", port, "GET", "/x", page(), 403, "*"},
		{"api", "", "GET", "/sandboxes", page("X-API-KEY", w.full), 403, ""},
		{"api-v1", "", "GET", "/v1/sandboxes", page("X-API-KEY", w.full), 403, ""},
		{"api-guest", "", "GET", "/v1/sandboxes/" + sb.ID + "/guest/envs", page("X-API-KEY", w.full), 403, ""},
		{"api-preflight", "", "OPTIONS", "/sandboxes", ask("GET", "x-api-key"), 403, ""},
		{"api-on-its-name", "api." + domain, "GET", "/sandboxes", page("X-API-KEY", w.full), 403, ""},
		{"api-after-a-preflight-by-header", "", "POST", "/sandboxes", page("X-API-KEY", w.full, "Content-Type", "application/json"), 403, ""},
		{"rebound", "evil.example", "GET", "/envs", page("E2b-Sandbox-Id", sb.ID, "X-Access-Token", sb.Token), 403, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, request{tcp: true, method: tt.method, path: tt.path, host: tt.host, header: tt.header})
			if got := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != tt.want || got != tt.origin {
				t.Errorf("= %d %s, may be read by %q; want %d, by %q", resp.StatusCode, body, got, tt.want, tt.origin)
			}
			if resp.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("credentials are allowed")
			}
		})
	}
}

// TestPagesKeepOutOfAPI is the two attempts that matter most: they must not work,
// and do where what holds them is taken away.
func TestPagesKeepOutOfAPI(t *testing.T) {
	w := newWorld(t)
	resp, _ := w.do(t, request{tcp: true, method: "GET", path: "/sandboxes", header: map[string]string{
		"Origin": "http://3000-sb_aaaaaaaaaaaaaaaaaaaa." + domain, "X-API-KEY": w.full,
	}})
	if resp.StatusCode != http.StatusForbidden || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a page read the API: %d", resp.StatusCode)
	}
}

func TestPagesKeepOutOfAgents(t *testing.T) {
	w := newWorld(t)
	sb := w.restricted(t)
	resp, body := w.do(t, request{tcp: true, method: "GET", path: "/envs", host: "49983-" + sb.ID + "." + domain, header: map[string]string{
		"Origin": "http://3000-sb_aaaaaaaaaaaaaaaaaaaa." + domain,
	}})
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a page reached another sandbox's agent: %d %s", resp.StatusCode, body)
	}
}

func TestErrorPages(t *testing.T) {
	w := openWorld(t)
	sb := w.make(t, sandbox.Traffic{})
	if _, err := w.Manager.Stop(t.Context(), sandbox.Caller{Admin: true}, sb.ID); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		header map[string]string
		page   bool
	}{
		{"curl", map[string]string{"Accept": "*/*"}, false},
		{"browser", map[string]string{"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}, true},
		{"old-browser", map[string]string{"Accept": "text/html"}, true},
		{"script", map[string]string{"Accept": "text/html", "Sec-Fetch-Mode": "cors"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, portOf(sb, tt.header))
			if isPage := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html"); resp.StatusCode != 502 || isPage != tt.page || !strings.Contains(body, sb.ID) {
				t.Errorf("= %d, page %v: %s", resp.StatusCode, isPage, body)
			}
		})
	}
	q := portOf(sb, map[string]string{"Accept": "text/html"})
	q.host = "3000-<script>." + domain
	if _, body := w.do(t, q); strings.Contains(body, "<script>") {
		t.Errorf("the page holds a name as it was given: %s", body)
	}
}

func TestCookiesStayWithTheirName(t *testing.T) {
	w := openWorld(t)
	w.Guest.Ports = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		for _, d := range []string{"", "; Domain=" + domain, "; Domain=" + domain + ".", "; Domain=.example. ", "; domain=.EXAMPLE; Secure", "; Domain=3000-x." + domain} {
			rw.Header().Add("Set-Cookie", "a=b; Path=/"+d)
		}
	})
	resp, _ := w.do(t, portOf(w.make(t, sandbox.Traffic{}), nil))
	want := "a=b; Path=/|a=b; Path=/|a=b; Path=/|a=b; Path=/|a=b; Path=/; Secure|a=b; Path=/; Domain=3000-x." + domain
	if got := strings.Join(resp.Header.Values("Set-Cookie"), "|"); got != want {
		t.Errorf("cookies %s, want %s", got, want)
	}
}

// Answers of a server that means no good.
func TestHostileAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		want         int
	}{
		{"honest", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200},
		{"early-hints", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 3) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200},
		{"interim-flood", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 1000) + "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 502},
		{"large-headers", "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", 502},
		{"switched-unasked", "HTTP/1.1 101 Switching Protocols\r\n\r\nGET /", 502},
		{"status-of-nothing", "HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nhe", 502},
		{"not-http", "SSH-2.0-OpenSSH_9.2\r\n", 502},
		{"two-lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk", 502},
		{"length-and-chunks", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200},
		{"split-header", "HTTP/1.1 200 OK\r\nA: b\rSet-Cookie: c=d\r\nContent-Length: 2\r\n\r\nok", 502},
		{"nothing", "", 502},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := openWorld(t)
			w.Wall.SetServer(func(_ string, _ int, c net.Conn) {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.WriteString(c, tt.answer)
				}
			})
			resp, body := w.do(t, portOf(w.make(t, sandbox.Traffic{}), nil))
			if resp.StatusCode != tt.want || tt.want == 200 && body != "ok" {
				t.Errorf("= %d %s, want %d", resp.StatusCode, body, tt.want)
			}
		})
	}
}

// Requests that two readers might read as two things reach nobody inside.
func TestNoSmuggling(t *testing.T) {
	w := openWorld(t)
	sb := w.make(t, sandbox.Traffic{})
	head := "Host: 3000-" + sb.ID + "." + domain + "\r\n"
	for name, raw := range map[string]string{
		"two-lengths":     "POST / HTTP/1.1\r\n" + head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"odd-coding":      "POST / HTTP/1.1\r\n" + head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"two-hosts":       "GET / HTTP/1.1\r\n" + head + head + "\r\n",
		"space-in-name":   "GET / HTTP/1.1\r\n" + head + "Content-Length : 5\r\n\r\nabcde",
		"connect":         "CONNECT 3000-" + sb.ID + "." + domain + ":80 HTTP/1.1\r\n" + head + "\r\n",
		"bad-chunk":       "POST / HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n1;\nGET",
		"length-and-odd":  "POST / HTTP/1.1\r\n" + head + "Content-Length: 4\r\nTransfer-Encoding: identity\r\n\r\nabcd",
		"header-no-colon": "GET / HTTP/1.1\r\n" + head + "nonsense\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, raw); err != nil {
				t.Fatal(err)
			}
			_ = c.(*net.TCPConn).CloseWrite()
			all, _ := io.ReadAll(c)
			if strings.HasPrefix(string(all), "HTTP/1.1 2") {
				t.Errorf("it was served: %s", all)
			}
		})
	}
}

// A line that goes on in the next is one line to the server, and one to the
// guest: what it goes on with is no header.
func TestFoldedLine(t *testing.T) {
	w := openWorld(t)
	w.Guest.Ports = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%q %q", r.Header.Get("A"), r.TransferEncoding)
	})
	sb := w.make(t, sandbox.Traffic{})
	c, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 3000-%s.%s\r\nConnection: close\r\nA: b\r\n Transfer-Encoding: chunked\r\n\r\n", sb.ID, domain)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if want := `"b Transfer-Encoding: chunked" []`; err != nil || string(got) != want {
		t.Errorf("the guest has %s, %v; want %s", got, err, want)
	}
}

// Trailers go both ways, and so does an upgraded connection.
func TestTrailersAndUpgrades(t *testing.T) {
	w := openWorld(t)
	upgraded := make(chan net.Conn, 1)
	w.Guest.Ports = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, buf, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			upgraded <- conn
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(conn, buf)
			return
		}
		rw.Header().Set("Trailer", "B")
		_, _ = io.Copy(io.Discard, r.Body)
		rw.Header().Set("B", r.Trailer.Get("A"))
	})
	sb := w.make(t, sandbox.Traffic{})
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c, bufio.NewReader(c)
	}
	head := " HTTP/1.1\r\nHost: 3000-" + sb.ID + "." + domain + "\r\n"
	c, in := dial()
	fmt.Fprintf(c, "POST /%sTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n1\r\nx\r\n0\r\nA: mine\r\n\r\n", head)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if got := resp.Trailer.Get("B"); got != "mine" {
		t.Errorf("trailer = %q, want it to have gone both ways", got)
	}
	c, in = dial()
	fmt.Fprintf(c, "GET /%sConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", head)
	if resp, err = http.ReadResponse(in, nil); err != nil || resp.StatusCode != 101 {
		t.Fatalf("upgrade = %v, %v", resp, err)
	}
	long := strings.Repeat("0123456789abcdef", 64<<10) // more than any buffer
	go func() { _, _ = io.WriteString(c, long) }()
	got := make([]byte, len(long))
	if _, err := io.ReadFull(in, got); err != nil || string(got) != long {
		t.Errorf("what came back differs, %v", err)
	}
	(<-upgraded).Close()
	if _, err := in.ReadByte(); err == nil {
		t.Error("the client's end stays open after the guest's end")
	}
}

// A body that its sender holds back until it is asked for stays there where
// the server inside does not want it.
func TestExpectContinue(t *testing.T) {
	w := openWorld(t)
	w.Guest.Ports = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			rw.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		if r.URL.Path == "/take-twice" { // the server says it too
			rw.WriteHeader(http.StatusContinue)
			rw.WriteHeader(http.StatusContinue)
		}
		b, _ := io.ReadAll(r.Body)
		_, _ = rw.Write(b)
	})
	sb := w.make(t, sandbox.Traffic{})
	for path, want := range map[string]string{"/take": "HTTP/1.1 100", "/take-twice": "HTTP/1.1 100", "/refuse": "HTTP/1.1 413"} {
		c, in, line, err := expect(t, w, path, sb)
		if err != nil || !strings.HasPrefix(line, want) {
			t.Errorf("%s: %q, %v; want %s", path, line, err, want)
			continue
		}
		if path != "/refuse" {
			_, _ = in.ReadString('\n')
			_, _ = io.WriteString(c, "body")
			if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 200 {
				t.Errorf("after the body: %v, %v", resp, err)
			}
		}
	}
}

// expect sends a request whose body is to follow, and returns the first line
// that comes. After a second the server no longer waits for what the guest
// says, which shows nothing: where a busy machine made that of it, it asks
// again.
func expect(t *testing.T, w *world, path string, sb *sandbox.Sandbox) (c net.Conn, in *bufio.Reader, line string, err error) {
	t.Helper()
	for range 10 {
		if c, err = net.Dial("tcp", strings.TrimPrefix(w.URL, "http://")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		began := time.Now()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: 3000-%s.%s\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n", path, sb.ID, domain)
		in = bufio.NewReader(c)
		if line, err = in.ReadString('\n'); time.Since(began) < time.Second {
			break
		}
	}
	return c, in, line, err
}

// The client's leaving ends the request inside, and the guest's end is an
// error that the client sees.
func TestEnds(t *testing.T) {
	w := openWorld(t)
	left := make(chan struct{}, 1)
	w.Guest.Ports = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "data: 1\n\n")
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
		left <- struct{}{}
	})
	sb := w.make(t, sandbox.Traffic{})
	stream := func(ctx context.Context) io.ReadCloser {
		req, err := http.NewRequestWithContext(ctx, "GET", w.URL+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "3000-" + sb.ID + "." + domain
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 9)); err != nil {
			t.Fatalf("the first event: %v", err)
		}
		return resp.Body
	}
	ctx, cancel := context.WithCancel(t.Context())
	body := stream(ctx)
	cancel()
	body.Close()
	select {
	case <-left:
	case <-time.After(patience.For(10 * time.Second)):
		t.Fatal("the request goes on inside although the client has gone")
	}
	body = stream(t.Context())
	defer body.Close()
	w.Guest.Die()
	if _, err := io.ReadAll(body); err == nil {
		t.Error("the guest's end looks like the end of the answer")
	}
}
