package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"path"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/inject"
	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

const attackersKey = "attackers-own-key"

// cdn answers everybody, and keeps what should not have come.
func (a *arena) cdn(w http.ResponseWriter, r *http.Request) {
	attempt, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch attempt {
	case "open-request":
		a.drain(attempt, r.Body)
		return
	case "endless":
		endless(w)
		return
	case "redirect":
		http.Redirect(w, r, "https://other.example/redirect-with-secret", http.StatusFound)
		return
	case "reflection":
		reflect(w, r)
		return
	case "in-parts":
		w.Header().Set("Content-Type", "text/plain")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(r.Header.Get("Authorization")+strings.Repeat(".", 64)))
		return
	}
	a.judge(attempt, r)
	fmt.Fprintf(w, "hello from %s\n", r.Host)
}

// judge decides whether a request should have come.
func (a *arena) judge(attempt string, r *http.Request) {
	raw, _ := httputil.DumpRequest(r, false)
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return // the gate cut it short
	}
	if r.Method == http.MethodConnect {
		a.found("connect-relay", "%.60q", raw)
		return
	}
	if r.Host == "paths.example" && !strings.HasPrefix(path.Clean(r.URL.Path)+"/", "/open/") {
		a.found("path-tricks", "%.60q", raw)
	}
	switch attempt {
	case "domain-fronting", "host-swap", "h2-authority", "connect-relay", "absolute-form", "trailing-dots", "case-and-idn":
		if foreignHost(r) {
			a.found(attempt, "%.60q", raw)
		}
	case "header-injection", "length-smuggling", "bad-certificates", "dns-over-https", "tunnel-swap", "by-number":
		a.found(attempt, "%.60q for %s", raw, r.Host)
	case "h2-downgrade":
		if strings.Contains(strings.ToLower(string(raw)), "x-injected") || len(r.TransferEncoding) > 0 || hasUnderscore(r.Header) || foreignHost(r) {
			a.found(attempt, "%.200q", raw)
		}
	case "publish":
		if r.Method != http.MethodGet || overridden(r) {
			a.found(attempt, "%.60q", raw)
		}
	case "redirect-with-secret", "secret-in-clear":
		if bytes.Contains(raw, []byte(realToken)) {
			a.found(attempt, "the token, at %s", r.Host)
		}
	case "placeholder-in-gist":
		if all := append(raw, body...); bytes.Contains(all, []byte(inject.PlaceholderPrefix)) || bytes.Contains(all, []byte(placeholderBase64)) {
			a.found(attempt, "%.200q", all)
		}
	case "foreign-key":
		if bytes.Contains(raw, []byte(attackersKey)) || bytes.Contains(raw, []byte(base64.StdEncoding.EncodeToString([]byte("me:" + attackersKey))[:24])) {
			a.found(attempt, "%.200q", raw)
		}
	}
}

// placeholderBase64 is how a placeholder begins.
var placeholderBase64 = base64.StdEncoding.EncodeToString([]byte(inject.PlaceholderPrefix))[:16]

// foreignHost reports whether a request is for another host than the one that
// its connection was allowed for.
func foreignHost(r *http.Request) bool {
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	host = strings.TrimRight(host, ".")
	if r.TLS != nil {
		return host != r.TLS.ServerName
	}
	return host != "front.example"
}

// overridden reports whether a server could take a request for one of another
// method.
func overridden(r *http.Request) bool {
	for name := range r.Header {
		if field.Header(name)&field.Method != 0 {
			return true
		}
	}
	return strings.Contains(r.URL.RawQuery, "_method=")
}

func hasUnderscore(h http.Header) bool {
	for name := range h {
		if strings.Contains(name, "_") {
			return true
		}
	}
	return false
}

// endless never ends, of itself.
func endless(w http.ResponseWriter) {
	for block := make([]byte, 16<<10); ; {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// reflect tells a client what it sent.
func reflect(w http.ResponseWriter, r *http.Request) {
	got := r.Header.Get("Authorization")
	switch r.URL.Query().Get("as") {
	case "base64":
		got = base64.StdEncoding.EncodeToString([]byte("x" + got))
	case "hex":
		got = hex.EncodeToString([]byte(got))
	case "header":
		w.Header().Set("X-Received", got)
	case "gzip":
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, got)
		_ = z.Close()
		w.Header().Set("Content-Encoding", "gzip")
		got = b.String()
	case "halves":
		_, _ = io.WriteString(w, got[:len(got)/2])
		_ = http.NewResponseController(w).Flush()
		got = got[len(got)/2:]
	case "json":
		raw, _ := json.Marshal(map[string]string{"received": got})
		got = string(raw)
	}
	_, _ = io.WriteString(w, got)
}

// holdsToken reports whether a text holds the token, in a form that reflect
// gives it.
func holdsToken(text string) bool {
	if z, err := gzip.NewReader(strings.NewReader(text)); err == nil {
		if raw, err := io.ReadAll(z); err == nil {
			text += string(raw)
		}
	}
	if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil {
		text += string(raw)
	}
	if raw, err := hex.DecodeString(strings.TrimSpace(text)); err == nil {
		text += string(raw)
	}
	return strings.Contains(text, realToken)
}
