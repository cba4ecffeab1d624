package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/loopback"
)

// browserWorld is a world with a listener for browsers, and a sandbox of this
// user's.
type browserWorld struct {
	*world
	at *loopback.Listener
	sb *api.Sandbox
}

func newBrowserWorld(t *testing.T) *browserWorld {
	t.Helper()
	w := &browserWorld{world: newWorld(t)}
	w.Kill()
	var err error
	if w.at, err = loopback.Listen(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.Options.Browsers = func(context.Context) (int, error) { return w.at.Port(), nil }
	w.Start()
	srv := w.Server.Browsers(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(w.at) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes", body: `{}`})
	if resp.StatusCode != 201 {
		t.Fatalf("create = %d %s", resp.StatusCode, body)
	}
	if err := json.Unmarshal([]byte(body), &w.sb); err != nil {
		t.Fatal(err)
	}
	return w
}

// ask sends a request to the browsers' listener by a URL's own name.
func (w *browserWorld) ask(t *testing.T, method, url string, header ...string) (int, string, http.Header) {
	t.Helper()
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+w.at.Addr().String()+"/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// link asks for a link to port 3000.
func (w *browserWorld) link(t *testing.T) string {
	t.Helper()
	resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes/" + w.sb.ID + "/ports/3000/open"})
	var link api.OpenedPort
	if err := json.Unmarshal([]byte(body), &link); err != nil || resp.StatusCode != 200 {
		t.Fatalf("open = %d %s", resp.StatusCode, body)
	}
	return link.URL
}

// cookie uses a link, and returns what a browser shows from then on.
func (w *browserWorld) cookie(t *testing.T, link string) (origin, cookie string) {
	t.Helper()
	status, body, h := w.ask(t, "GET", link)
	cookie, _, ok := strings.Cut(h.Get("Set-Cookie"), ";")
	if status != 200 || !ok || !strings.Contains(h.Get("Set-Cookie"), "HttpOnly; SameSite=Strict") {
		t.Fatalf("the link = %d %s %v", status, body, h)
	}
	origin, _, _ = strings.Cut(link, "/.carboy/")
	return origin, cookie
}

// A link lets in once, by its own name alone, and not what looks at it before
// somebody goes there.
func TestLinkWorksOnce(t *testing.T) {
	w := newBrowserWorld(t)
	link := w.link(t)
	for _, tt := range []struct {
		name, method, url string
		header            []string
	}{
		{"another-port", "GET", strings.Replace(link, "3000-", "3001-", 1), nil},
		{"posted", "POST", link, nil},
		{"ahead", "GET", link, []string{"Sec-Purpose", "prefetch;prerender"}},
		{"in-a-frame", "GET", link, []string{"Sec-Fetch-Dest", "iframe"}},
		{"another-secret", "GET", link + "x", nil},
	} {
		if status, body, h := w.ask(t, tt.method, tt.url, tt.header...); status < 400 || h.Get("Set-Cookie") != "" {
			t.Errorf("%s = %d %s", tt.name, status, body)
		}
	}
	origin, cookie := w.cookie(t, link)
	if status, body, _ := w.ask(t, "GET", link); status != 403 || !strings.Contains(body, "used before") {
		t.Errorf("used again = %d %s", status, body)
	}
	if status, body, _ := w.ask(t, "GET", origin+"/x", "Cookie", "a=b; "+cookie); status != 200 {
		t.Errorf("with the cookie = %d %s", status, body)
	}
	if got := (<-w.seen).Header.Get("Cookie"); got != "a=b" {
		t.Errorf("inside, the cookies are %q", got)
	}
}

// Who has the cookie is let in by its own pages and the address bar, and by
// nothing else. The control is the same request of its own.
func TestOpenedToItsOwnPages(t *testing.T) {
	w := newBrowserWorld(t)
	origin, cookie := w.cookie(t, w.link(t))
	other := strings.Replace(origin, "3000-", "3001-", 1)
	for _, tt := range []struct {
		name, method, url string
		want              int
		header            []string
	}{
		{"address-bar", "GET", origin + "/", 200, []string{"Sec-Fetch-Site", "none"}},
		{"own-page", "POST", origin + "/", 200, []string{"Sec-Fetch-Site", "same-origin", "Origin", origin}},
		{"a-link", "GET", origin + "/", 200, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{"other-origin", "POST", origin + "/", 403, []string{"Origin", other}},
		{"other-port", "GET", origin + "/", 403, []string{"Origin", origin + "1"}},
		{"null-origin", "GET", origin + "/", 403, []string{"Origin", "null"}},
		{"two-origins", "GET", origin + "/", 403, []string{"Origin", origin, "Origin", other}},
		{"script", "GET", origin + "/", 403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}},
		{"same-site", "GET", origin + "/", 403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors"}},
		{"frame", "GET", origin + "/", 403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
		{"form", "POST", origin + "/", 403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if status, body, _ := w.ask(t, tt.method, tt.url, append(tt.header, "Cookie", cookie)...); status != tt.want {
				t.Errorf("= %d %s, want %d", status, body, tt.want)
			}
		})
	}
}

// The cookie is of one port of one sandbox, and by one of our names: a name that
// somebody else had lead here reaches nothing.
func TestCookieIsOfOnePort(t *testing.T) {
	w := newBrowserWorld(t)
	origin, cookie := w.cookie(t, w.link(t))
	name, value, _ := strings.Cut(cookie, "=")
	for _, tt := range []struct{ name, url, cookie string }{
		{"none", origin, ""},
		{"forged", origin, name + "=" + strings.Repeat("A", len(value))},
		{"another-port", strings.Replace(origin, "3000-", "3001-", 1), cookie},
		{"the-agent", strings.Replace(origin, "3000-", "49983-", 1), cookie},
		{"by-address", "http://" + w.at.Addr().String(), cookie},
		{"rebound", "http://evil.example", cookie},
		{"no-such-sandbox", "http://3000-sb-" + strings.Repeat("a", 20) + ".localhost", cookie},
	} {
		if status, body, _ := w.ask(t, "GET", tt.url+"/", "Cookie", tt.cookie); status != 403 && status != 404 {
			t.Errorf("%s = %d %s", tt.name, status, body)
		}
	}
	if status, body, _ := w.ask(t, "GET", origin+"/", "Cookie", cookie); status != 200 {
		t.Errorf("the control = %d %s", status, body)
	}
}

// A key opens no port on the daemon's machine. The control is a user of it.
func TestKeysPublishNothing(t *testing.T) {
	w := newWorld(t)
	q := request{tcp: true, method: "POST", path: "/v1/sandboxes", body: `{"publish":[{"port":3000}]}`, header: map[string]string{"X-API-KEY": w.full}}
	if resp, body := w.do(t, q); resp.StatusCode != 403 || !strings.Contains(body, "a key opens no port") {
		t.Errorf("= %d %s, want 403", resp.StatusCode, body)
	}
	// This world has no ports at all, which a user is told.
	q.tcp, q.header = false, nil
	if resp, body := w.do(t, q); !strings.Contains(body, "ports can't be opened") {
		t.Errorf("of a user = %d %s", resp.StatusCode, body)
	}
}
