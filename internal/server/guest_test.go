package server_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

// sign is E2B's signature of a link, version 1.
func sign(path, op, user, token, end string) string {
	text := path + ":" + op + ":" + user + ":" + token
	if end != "" {
		text += ":" + end
	}
	sum := sha256.Sum256([]byte(text))
	return url.QueryEscape("v1_" + strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "="))
}

// An answer before the body was read ends the connection, and says so.
func TestRefusedBody(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	for _, tt := range []struct {
		name, method, body string
		want               bool
	}{{"with-body", "POST", "{}", true}, {"without", "GET", "", false}} {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, w.URL+"/envs", strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("E2b-Sandbox-Id", sb.ID)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized || resp.Close != tt.want {
				t.Errorf("status %d, closed: %v, want %v", resp.StatusCode, resp.Close, tt.want)
			}
		})
	}
}

func TestEnvd(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	id := map[string]string{"E2b-Sandbox-Id": sb.ID, "E2b-Sandbox-Port": "49983"}
	with := func(more ...string) map[string]string {
		h := map[string]string{}
		for k, v := range id {
			h[k] = v
		}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	token := with("X-Access-Token", sb.Token)
	far, past := "9999999999", "1000000000"
	tests := []struct {
		name         string
		tcp          bool
		method, path string
		header       map[string]string
		want         int
	}{
		{"token", true, "GET", "/files?path=/a", token, 200},
		{"no-token", true, "GET", "/files?path=/a", id, 401},
		{"wrong-token", true, "GET", "/files?path=/a", with("X-Access-Token", strings.Repeat("0", 64)), 401},
		{"empty-token", true, "GET", "/files?path=/a", with("X-Access-Token", ""), 401},
		{"a-key-is-no-token", true, "GET", "/files?path=/a", with("X-Access-Token", w.full), 401},
		{"a-key-does-not-help", true, "GET", "/files?path=/a", with("X-API-KEY", w.full), 401},
		{"owner-needs-none", false, "GET", "/files?path=/a", id, 200},
		{"rpc", true, "POST", "/process.Process/List", token, 200},
		{"unknown-sandbox", true, "GET", "/health", map[string]string{"E2b-Sandbox-Id": "sb_" + strings.Repeat("a", 20)}, 502},
		{"a-name-is-no-id", false, "GET", "/health", map[string]string{"E2b-Sandbox-Id": sb.Spec.Name}, 400},
		{"bad-port", true, "GET", "/health", with("X-Access-Token", sb.Token, "E2b-Sandbox-Port", "0x1"), 400},
		{"health-without-token", true, "GET", "/health", id, 200},
		{"init", true, "POST", "/init", token, 404},
		{"init-for-the-owner", false, "POST", "/init", id, 404},
		{"init-spelt-oddly", false, "POST", "/%69nit", id, 404},
		{"init-behind-dots", false, "POST", "/files/../init", id, 404},
		{"archive", true, "GET", "/carboy/archive?path=/", token, 404},
		{"archive-for-the-owner", false, "GET", "/carboy/archive?path=/", id, 200},
		{"tool", true, "POST", "/carboy/tools/read", token, 404},
		{"tool-for-the-owner", false, "POST", "/carboy/tools/read", id, 200},
		{"no-tool-for-the-owner", false, "POST", "/carboy/tools/clear", id, 404},
		{"exec-service", true, "POST", "/carboy.guest.v1.ExecService/List", token, 404},
		{"exec-service-deeper", true, "POST", "/x/carboy.guest.v1.ExecService/List", token, 404},
		{"signed", true, "GET", "/files?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, ""), id, 200},
		{"signed-for-a-user", true, "GET", "/files?path=%2Fa&username=root&signature=" + sign("/a", "read", "root", sb.Token, ""), id, 200},
		{"signed-until", true, "GET", "/files?path=%2Fa&signature_expiration=" + far + "&signature=" + sign("/a", "read", "", sb.Token, far), id, 200},
		{"signed-too-long-ago", true, "GET", "/files?path=%2Fa&signature_expiration=" + past + "&signature=" + sign("/a", "read", "", sb.Token, past), id, 401},
		{"signed-too-long-ago-in-a-browser", true, "GET", "/files?path=%2Fa&signature_expiration=" + past + "&signature=" + sign("/a", "read", "", sb.Token, past), with("Accept", "text/html"), 401},
		{"signed-end-moved", true, "GET", "/files?path=%2Fa&signature_expiration=" + far + "&signature=" + sign("/a", "read", "", sb.Token, past), id, 401},
		{"signed-end-dropped", true, "GET", "/files?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, past), id, 401},
		{"signed-other-path", true, "GET", "/files?path=%2Fb&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"signed-two-paths", true, "GET", "/files?path=%2Fa&path=%2Fb&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"signed-other-user", true, "GET", "/files?path=%2Fa&username=root&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"signed-to-read", true, "POST", "/files?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"signed-to-write", true, "POST", "/files?path=%2Fa&signature=" + sign("/a", "write", "", sb.Token, ""), id, 200},
		{"signed-for-a-port", true, "GET", "/files?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, ""), with("E2b-Sandbox-Port", "3000"), 403},
		{"signed-elsewhere", true, "GET", "/envs?path=%2Fa&signature=" + sign("/a", "read", "", sb.Token, ""), id, 401},
		{"a-port-by-the-agents-token", true, "GET", "/any/thing", with("X-Access-Token", sb.Token, "E2b-Sandbox-Port", "3000"), 403},
		{"a-port-for-the-owner", false, "GET", "/any/thing", with("E2b-Sandbox-Port", "3000"), 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := w.do(t, request{tcp: tt.tcp, method: tt.method, path: tt.path, header: tt.header})
			if resp.StatusCode != tt.want {
				t.Errorf("%s %s = %d %s, want %d", tt.method, tt.path, resp.StatusCode, body, tt.want)
			}
			if tt.want == 401 {
				refusedAsByEnvd(t, resp, body)
			}
		})
	}
	t.Run("by-host", func(t *testing.T) {
		for _, id := range []string{sb.ID, strings.Replace(sb.ID, "_", "-", 1)} {
			resp, body := w.do(t, request{tcp: true, method: "GET", path: "/health", host: "49983-" + id + "." + domain + ":80", header: map[string]string{"X-Access-Token": sb.Token}})
			if resp.StatusCode != 200 {
				t.Errorf("by host %s = %d %s", id, resp.StatusCode, body)
			}
		}
	})
	t.Run("stopped", func(t *testing.T) {
		if _, err := w.Manager.Stop(t.Context(), sandbox.Caller{Admin: true}, sb.ID); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/health", "/files?path=/a"} {
			resp, body := w.do(t, request{tcp: true, method: "GET", path: path, header: token})
			if resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s of a stopped one = %d %s, want 502", path, resp.StatusCode, body)
			}
		}
	})
}

// What a signature lets in goes to the agent as the user whom the link names, or the default:
// no header names another.
func TestSignedForItsUserAlone(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	const root = "Basic cm9vdDo=" // root:
	for _, tt := range []struct {
		name, query string
		token       bool
		method, op  string
		want        string // of Authorization, as the agent reads it
	}{
		{"a link to read", "", false, "GET", "read", ""},
		{"a link to write", "", false, "POST", "write", ""},
		{"a link for a user", "&username=user", false, "GET", "read", ""},
		{"the token", "", true, "GET", "read", root}, // E2B's clients name users so
	} {
		t.Run(tt.name, func(t *testing.T) {
			header := map[string]string{"E2b-Sandbox-Id": sb.ID, "E2b-Sandbox-Port": "49983", "Authorization": root}
			if tt.token {
				header["X-Access-Token"] = sb.Token
			}
			_, user, _ := strings.Cut(tt.query, "=")
			path := "/files?path=%2Fa" + tt.query + "&signature=" + sign("/a", tt.op, user, sb.Token, "")
			if resp, body := w.do(t, request{tcp: true, method: tt.method, path: path, header: header}); resp.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			if got := (<-w.seen).Header.Get("Authorization"); got != tt.want {
				t.Errorf("the agent read Authorization: %q, want %q", got, tt.want)
			}
		})
	}
}

// refusedAsByEnvd wants the body of E2B's agent, which tells of no sandbox, even
// for who looks at it.
func refusedAsByEnvd(t *testing.T, resp *http.Response, body string) {
	t.Helper()
	var got map[string]any
	err := json.Unmarshal([]byte(body), &got)
	if text, _ := got["message"].(string); err != nil || len(got) != 2 || got["code"] != 401.0 || text == "" {
		t.Errorf("%d %s: want a code, a message and nothing more (%v)", resp.StatusCode, body, err)
	}
}

// A port of a sandbox that is not there is answered as E2B does, by name and by
// headers; a browser gets a page.
func TestGoneSandbox(t *testing.T) {
	w := newWorld(t)
	id := "sb_" + strings.Repeat("a", 20)
	want := `{"sandboxId":"` + id + `","message":"The sandbox was not found","code":502}`
	for _, port := range []string{"49983", "3000"} {
		for name, q := range map[string]request{
			"by-headers": {tcp: true, method: "GET", path: "/x", header: map[string]string{"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": port}},
			"by-name":    {tcp: true, method: "GET", path: "/x", host: port + "-" + id + "." + domain},
		} {
			resp, body := w.do(t, q)
			if resp.StatusCode != http.StatusBadGateway || strings.TrimSpace(body) != want {
				t.Errorf("port %s, %s: %d %s, want 502 %s", port, name, resp.StatusCode, body, want)
			}
		}
	}
	resp, body := w.do(t, request{tcp: true, method: "GET", path: "/x", host: "3000-" + id + "." + domain, header: map[string]string{"Accept": "text/html"}})
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "<p>The sandbox was not found</p>") {
		t.Errorf("a browser gets %d %s", resp.StatusCode, body)
	}
}

// A guest learns no secret from a request, and can't speak for the daemon.
func TestNothingLeaks(t *testing.T) {
	w := newWorld(t)
	sb := w.restricted(t)
	secrets := map[string]string{
		"X-Access-Token": sb.Token, "E2b-Traffic-Access-Token": sb.TrafficToken, "X-API-KEY": w.full, "Authorization": "Bearer " + w.full, "X-Mine": "stays",
	}
	for _, q := range []request{
		{tcp: true, method: "GET", path: "/files?path=/a&signature=s", header: map[string]string{"E2b-Sandbox-Id": sb.ID}},
		{tcp: true, method: "GET", path: "/files", header: map[string]string{"E2b-Sandbox-Id": sb.ID, "E2b-Sandbox-Port": "3000"}},
		{tcp: true, method: "GET", path: "/v1/sandboxes/" + sb.ID + "/guest/files?path=/a"},
	} {
		if q.header == nil {
			q.header = map[string]string{}
		}
		for k, v := range secrets {
			if k == "Authorization" && strings.HasPrefix(q.path, "/v1/") {
				continue // one key is enough
			}
			q.header[k] = v
		}
		resp, body := w.do(t, q)
		if resp.StatusCode != 200 {
			t.Fatalf("%s = %d %s", q.path, resp.StatusCode, body)
		}
		r := <-w.seen
		all := r.URL.String() + fmt.Sprint(r.Header) + r.Host
		for _, s := range []string{sb.Token, sb.TrafficToken, w.full, "E2b-Sandbox", "signature"} {
			if strings.Contains(all, s) {
				t.Errorf("%s: the guest saw %q in %s", q.path, s, all)
			}
		}
		if r.Header.Get("X-Mine") != "stays" {
			t.Errorf("%s: the guest saw %v, want the caller's own header", q.path, r.Header)
		}
		if n, e := resp.Header.Get(api.HeaderNotice), resp.Header.Get(api.HeaderError); n != "" || e != "" {
			t.Errorf("%s: the guest spoke for the daemon: %q, %q", q.path, n, e)
		}
		if got := resp.Header.Get(api.HeaderStarts); got != "1" {
			t.Errorf("%s: %s = %q, want 1", q.path, api.HeaderStarts, got)
		}
	}
	// envd's own way to name a user is passed on.
	w.do(t, request{method: "GET", path: "/files", header: map[string]string{"E2b-Sandbox-Id": sb.ID, "Authorization": "Basic dXNlcjo="}})
	if r := <-w.seen; r.Header.Get("Authorization") != "Basic dXNlcjo=" {
		t.Errorf("Authorization = %q, want it passed on", r.Header.Get("Authorization"))
	}
}

func TestGuestPathsForOwners(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	for path, want := range map[string]int{
		"/health": 200, "/carboy/archive?path=/x": 200, "/init": 404, "/": 404, "/carboy/": 404, "/carboy/secret": 404,
		"/carboy/tools/grep": 200, "/carboy/tools/": 404, "/carboy/tools/collect": 404,
		"/process.Process/": 404, "/process.Process/List": 200, "/%69nit": 404, "/files%2f..%2finit": 404,
	} {
		resp, body := w.do(t, request{method: "POST", path: "/v1/sandboxes/" + sb.Spec.Name + "/guest" + path})
		if resp.StatusCode != want {
			t.Errorf("%q = %d %s, want %d", path, resp.StatusCode, body, want)
		}
	}
}

// Bytes pass while both bodies are still open.
func TestProxyStreams(t *testing.T) {
	w := newWorld(t)
	w.Guest.Ports = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(rw)
		_ = rc.EnableFullDuplex()
		buf := make([]byte, 16)
		for {
			n, err := r.Body.Read(buf)
			if n > 0 {
				_, _ = rw.Write(bytes.ToUpper(buf[:n]))
				_ = rc.Flush()
			}
			if err != nil {
				return
			}
		}
	})
	sb := w.restricted(t)
	for _, proto := range []string{"http1", "h2c"} {
		t.Run(proto, func(t *testing.T) {
			var p http.Protocols
			p.SetHTTP1(proto == "http1")
			p.SetUnencryptedHTTP2(proto == "h2c")
			tr := &http.Transport{Protocols: &p}
			defer tr.CloseIdleConnections()
			body, feed := io.Pipe()
			req, err := http.NewRequestWithContext(t.Context(), "POST", w.URL+"/talk", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("E2b-Sandbox-Id", sb.ID)
			req.Header.Set("E2b-Sandbox-Port", "3000")
			req.Header.Set("E2b-Traffic-Access-Token", sb.TrafficToken)
			go func() { _, _ = io.WriteString(feed, "a") }()
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			buf := make([]byte, 1)
			for _, c := range "abc" {
				if c != 'a' {
					if _, err := io.WriteString(feed, string(c)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != strings.ToUpper(string(c)) {
					t.Fatalf("answer = %q, %v", buf, err)
				}
			}
			_ = feed.Close()
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
				t.Errorf("at the end: %q, %v", rest, err)
			}
		})
	}
}

// A stopped instance's port must not be reached through a connection of its first
// life.
func TestProxyAfterRestart(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	q := request{method: "GET", path: "/health", header: map[string]string{"E2b-Sandbox-Id": sb.ID}}
	for life := 1; life <= 3; life++ {
		resp, body := w.do(t, q)
		if got := resp.Header.Get(api.HeaderStarts); resp.StatusCode != 200 || got != fmt.Sprint(life) {
			t.Errorf("life %d: %d %s, starts %s", life, resp.StatusCode, body, got)
		}
		w.Wall.Die(sb.ID, sandbox.EndOutOfMemory)
		w.Guest.Die()
		servertest.Wait(t, "the end of the sandbox", func() bool {
			got, err := w.Manager.Get(t.Context(), sandbox.Caller{Admin: true}, sb.ID)
			return err == nil && got.State == sandbox.StateStopped
		})
		if resp, _ := w.do(t, q); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("health after the end = %d, want 502: it must not start anything", resp.StatusCode)
		}
		resp, _ = w.do(t, request{method: "GET", path: "/files?path=/a", header: q.header})
		if n := resp.Header.Get(api.HeaderNotice); resp.StatusCode != 200 || !strings.Contains(n, "out of memory") {
			t.Errorf("files after the end = %d, notice %q", resp.StatusCode, n)
		}
	}
}
