package server_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Interim answers and trailers are cleaned as answers are; what is the server's
// own to say is passed on in each.
func TestInterimAndTrailersAreCleaned(t *testing.T) {
	w := openWorld(t)
	w.Guest.Ports = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		h := rw.Header()
		h.Set("Set-Cookie", "a=interim; Domain="+domain)
		h.Set("Carboy-Notice", "interim")
		h.Set("Link", "</interim>")
		rw.WriteHeader(http.StatusEarlyHints)
		clear(h)
		h.Set("Trailer", "Set-Cookie, Carboy-Error, B")
		_, _ = io.WriteString(rw, "body")
		h.Set("Set-Cookie", "a=trailer; Domain="+domain)
		h.Set("Carboy-Error", "trailer")
		h.Set("B", "its-own")
		h.Set(http.TrailerPrefix+"Carboy-Starts", "unannounced")
		h.Set(http.TrailerPrefix+"Set-Cookie2", "unannounced")
		h.Set(http.TrailerPrefix+"C", "its-own-too")
	})
	sb := w.make(t, sandbox.Traffic{})
	c, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 3000-%s.%s\r\nTE: trailers\r\nConnection: close\r\n\r\n", sb.ID, domain)
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []string{"103 Early Hints", "Link: </interim>", "B: its-own", "C: its-own-too"} {
		if !strings.Contains(string(b), own) {
			t.Errorf("the answer lacks %q, which is the server's own to say: %s", own, b)
		}
	}
	for _, not := range []string{"Domain=", "Carboy-Notice", "a=trailer", "Carboy-Error", "unannounced"} {
		if strings.Contains(string(b), not) {
			t.Errorf("the answer has %q: %s", not, b)
		}
	}
}

// However a credential of ours is set apart in its header, a server inside does
// not see it; its own is passed on.
func TestCredentialsSetApart(t *testing.T) {
	w := openWorld(t)
	sb := w.restricted(t)
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, secret := range []string{w.full, sb.Token, sb.TrafficToken, "its-own"} {
		for _, v := range []string{
			"Bearer " + secret, "bearer  " + secret, "bearer   " + secret, "Bearer\t" + secret, "Bearer \t " + secret, secret,
			"Token " + secret, "Bearer," + secret, `Bearer "` + secret + `"`, "Digest response=" + secret, basic("user:" + secret), basic(secret + ":"),
		} {
			for _, name := range []string{"Authorization", "X-Api-Key", "X-Admin-Token"} {
				w.do(t, portOf(sb, map[string]string{"E2b-Traffic-Access-Token": sb.TrafficToken, name: v}))
				if got := (<-w.seen).Header.Get(name); (got != "") != (secret == "its-own") {
					t.Errorf("%s: %q: the server saw %q", name, v, got)
				}
			}
		}
	}
}

// What callers write of a sandbox is not taken for what happened to it.
func TestCallersEvents(t *testing.T) {
	w := newWorld(t)
	sb := w.create(t, w.full)
	for kind, want := range map[string]int{
		"created": 400, "started": 400, "stopped": 400, "snapshot": 400, "kept": 400, "adopted": 400, "policy": 400, "ttl": 400, "error": 400,
		"removed": 400, "Started": 400, "": 400, "user.": 400, "user": 400, "user.a b": 400, "user.a\\nstarted": 400, "user.deployed": 204,
	} {
		q := request{tcp: true, method: "POST", path: "/v1/sandboxes/" + sb.ID + "/events", body: `{"type":"` + kind + `","message":"m"}`, header: map[string]string{"X-API-KEY": w.full}}
		if resp, body := w.do(t, q); resp.StatusCode != want {
			t.Errorf("type %q = %d %s, want %d", kind, resp.StatusCode, body, want)
		}
	}
	_, body := w.do(t, request{tcp: true, method: "GET", path: "/v1/sandboxes/" + sb.ID + "/events", header: map[string]string{"X-API-KEY": w.full}})
	if strings.Contains(body, "forged") || !strings.Contains(body, "user.deployed") {
		t.Errorf("events = %s", body)
	}
}
