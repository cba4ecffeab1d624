package image_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const secret = "hunter2-very-secret"

var basic = "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:"+secret))

// wantBasic lets in who has the password. What it answers the others repeats
// what they sent.
func wantBasic(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Authorization") == basic {
		return false
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
	refuse(w, r)
	return true
}

func refuse(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusUnauthorized)
	fmt.Fprintf(w, `{"errors":[{"code":"UNAUTHORIZED","message":%q,"detail":%q}]}`, r.Header.Get("Authorization"), secret)
}

// wantBearer sends to a token server, which is at the registry's own address.
func wantBearer(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path == "/token" {
		ok := r.Header.Get("Authorization") == basic || r.FormValue("refresh_token") == secret
		if !ok || r.FormValue("scope") != "repository:app:pull" {
			refuse(w, r)
		} else {
			fmt.Fprint(w, `{"token":"a-token"}`)
		}
		return true
	}
	if r.Header.Get("Authorization") == "Bearer a-token" {
		return false
	}
	w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="s"`, r.Host))
	refuse(w, r)
	return true
}

func TestCredentials(t *testing.T) {
	tests := []struct {
		name string
		hook func(http.ResponseWriter, *http.Request) bool
		auth *image.Auth
		kind sandbox.Kind
	}{
		{"basic", wantBasic, &image.Auth{Username: "alice", Password: secret}, ""},
		{"basic-none", wantBasic, nil, sandbox.Denied},
		{"basic-wrong", wantBasic, &image.Auth{Username: "alice", Password: secret + "x"}, sandbox.Denied},
		{"bearer", wantBearer, &image.Auth{Username: "alice", Password: secret}, ""},
		{"bearer-identity", wantBearer, &image.Auth{IdentityToken: secret}, ""},
		{"bearer-ready-made", wantBearer, &image.Auth{RegistryToken: "a-token"}, ""},
		{"bearer-none", wantBearer, nil, sandbox.Denied},
		{"bearer-wrong", wantBearer, &image.Auth{Username: "alice", Password: secret + "x"}, sandbox.Denied},
		{"realm-inside", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="http://169.254.169.254/`+secret+`"`)
			refuse(w, r)
			return true
		}, &image.Auth{Username: "alice", Password: secret}, sandbox.Unavailable},
		{"token-is-no-token", func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/token" {
				fmt.Fprintf(w, `{"refresh_token":%q}`, secret)
				return true
			}
			return wantBearer(w, r)
		}, &image.Auth{Username: "alice", Password: secret}, sandbox.Unavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.push("app", "1", build(tree{"a": "1"}))
			w.on(tt.hook)
			_, err := w.Pull(t.Context(), me, w.ref("app:1"), tt.auth, nil)
			if got := sandbox.KindOf(err); got != tt.kind {
				t.Errorf("Pull = %v (%s), want %q", err, got, tt.kind)
			}
			showsNone(t, err, w.log.String())
		})
	}
}

// showsNone fails where a credential is in any error of a chain, or in a log.
func showsNone(t *testing.T, err error, log string) {
	t.Helper()
	text := log
	for e := err; e != nil; e = errors.Unwrap(e) {
		text += fmt.Sprintf("%v %+v %#v", e, e, e)
	}
	for _, s := range []string{secret, strings.TrimPrefix(basic, "Basic "), "a-token"} {
		if strings.Contains(text, s) {
			t.Errorf("%q is in: %s", s, text)
		}
	}
}

func TestAuthHidesItself(t *testing.T) {
	a := image.Auth{Username: secret, Password: secret, IdentityToken: secret, RegistryToken: secret}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "auth", a, "pointer", &a)
	text := fmt.Sprintf("%v %+v %#v %s %q %x %d %v %+v %#v", a, a, a, a, a, a, a, &a, &a, &a) + log.String()
	if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
		t.Errorf("shown: %s", text)
	}
	if b, err := json.Marshal(struct{ A string }{secret}); err != nil || !strings.Contains(string(b), secret) {
		t.Error("control: a plain string is not shown either")
	}
}

// Credentials stay at the registry when it sends on to elsewhere.
func TestRedirects(t *testing.T) {
	b := build(tree{"a": "1"})
	var got []string
	cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		_, _ = w.Write(b.blobs[0])
	}))
	defer cdn.Close()
	w := newWorld(t)
	w.push("app", "1", b)
	w.on(func(rw http.ResponseWriter, r *http.Request) bool {
		if wantBasic(rw, r) {
			return true
		}
		if strings.HasSuffix(r.URL.Path, digest(b.blobs[0])) {
			http.Redirect(rw, r, cdn.URL+"/x?signature="+secret, http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	auth := &image.Auth{Username: "alice", Password: secret}
	if _, err := w.Pull(t.Context(), me, w.ref("app:1"), auth, nil); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{""}) {
		t.Errorf("the other server was sent %q", got)
	}
	cdn.Close()
	_, err := w.Pull(t.Context(), "uid:2", w.ref("app:1"), auth, nil)
	wantError(t, err, sandbox.Unavailable, "refused")
	showsNone(t, err, w.log.String())
}

func TestTransientAnswers(t *testing.T) {
	tests := []struct {
		name   string
		path   string // what is answered so
		status int
		after  string
		times  int
		waits  []time.Duration
		kind   sandbox.Kind
		text   string
	}{
		{"too-many-manifest", "/manifests/", 429, "7", 1, []time.Duration{7 * time.Second}, "", ""},
		{"too-many-blob", "/blobs/", 429, "7", 1, []time.Duration{7 * time.Second}, "", ""},
		{"too-many-ping", "/v2/", 429, "7", 1, []time.Duration{7 * time.Second}, "", ""},
		{"unsaid", "/manifests/", 503, "", 3, []time.Duration{1e9, 2e9, 4e9}, "", ""},
		{"a-date", "/manifests/", 503, "Sat, 21 Nov 2026 21:00:00 GMT", 1, []time.Duration{1e9}, "", ""},
		{"for-ever", "/manifests/", 429, "1", 99, []time.Duration{1e9, 1e9, 1e9, 1e9}, sandbox.Unavailable, "429"},
		{"too-long", "/manifests/", 429, "3600", 1, nil, sandbox.Unavailable, "asks to wait 1h0m0s"},
		{"not-found", "/manifests/", 404, "1", 1, nil, sandbox.NotFound, "no such image"},
		{"teapot", "/manifests/", 418, "1", 1, nil, sandbox.Unavailable, "418"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.push("app", "1", build(tree{"a": "1"}))
			left := tt.times
			w.on(func(rw http.ResponseWriter, r *http.Request) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				if !strings.Contains(r.URL.Path, tt.path) || left == 0 {
					return false
				}
				left--
				rw.Header().Set("Retry-After", tt.after)
				rw.WriteHeader(tt.status)
				return true
			})
			_, err := w.Pull(t.Context(), me, w.ref("app:1"), nil, nil)
			if tt.kind == "" && err != nil {
				t.Error(err)
			} else if tt.kind != "" {
				wantError(t, err, tt.kind, tt.text)
			}
			if !slices.Equal(w.waits, tt.waits) {
				t.Errorf("waited %v, want %v", w.waits, tt.waits)
			}
		})
	}
}

func TestPlainHTTPIsForThisMachine(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	var asked []string
	w := newWorld(t, func(o *image.Options) {
		o.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Scheme+"://"+r.URL.Host)
			if r.URL.Scheme == "https" {
				return nil, errors.New("no HTTPS here")
			}
			rec := httptest.NewRecorder()
			served(rec, r)
			return rec.Result(), nil
		})
	})
	for host, want := range map[string]sandbox.Kind{"10.1.2.3:5000": sandbox.Denied, "192.168.0.1": sandbox.Denied, "127.0.0.1:5000": sandbox.NotFound, "localhost:5000": sandbox.NotFound} {
		asked = nil
		_, err := w.Pull(t.Context(), me, host+"/app:1", nil, nil)
		if got := sandbox.KindOf(err); got != want {
			t.Errorf("%s: %v (%s), want %s", host, err, got, want)
		}
		if plain := slices.Contains(asked, "http://"+host); plain != (want == sandbox.NotFound) {
			t.Errorf("%s: asked %q", host, asked)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A registry elsewhere can't send the daemon to its own machine or network.
func TestNotSentInside(t *testing.T) {
	to := ""
	w := newWorld(t, func(o *image.Options) {
		o.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			if r.URL.Host == "registry.example" && strings.Contains(r.URL.Path, "/manifests/") {
				http.Redirect(rec, r, to, http.StatusFound)
			} else if strings.Contains(r.URL.Path, "/inside") {
				rec.WriteHeader(http.StatusNotFound)
			}
			return rec.Result(), nil
		})
	})
	tests := map[string]sandbox.Kind{
		"https://cdn.example/inside": sandbox.NotFound, // the control
		"https://127.0.0.1/inside":   sandbox.Denied, "https://localhost:1/inside": sandbox.Denied,
		"https://169.254.169.254/inside": sandbox.Denied, "https://[::1]/inside": sandbox.Denied,
		"https://[::ffff:10.0.0.1]/inside": sandbox.Denied, "https://100.64.0.1/inside": sandbox.Denied,
		"http://cdn.example/inside": sandbox.Denied,
	}
	for url, want := range tests {
		to = url
		_, err := w.Pull(t.Context(), me, "registry.example/app:1", nil, nil)
		if got := sandbox.KindOf(err); got != want {
			t.Errorf("%s: %v (%s), want %s", url, err, got, want)
		}
	}
}

func TestPullOutside(t *testing.T) {
	w := newWorld(t)
	w.push("app", "1", build(tree{"a": "1"}))
	_, port, _ := strings.Cut(w.host, ":")
	for _, host := range []string{w.host, "localhost:" + port} {
		if _, err := w.Pull(t.Context(), me, host+"/app:1", nil, nil); err != nil {
			t.Errorf("control: %v", err)
		}
		_, err := w.PullOutside(t.Context(), me, host+"/app:1", nil, nil)
		wantError(t, err, sandbox.Denied, "inside this host")
	}
	// A name that led elsewhere when it was looked at first.
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.host+"/v2/", nil)
	must(err)
	resp, err := image.OutsideTransport().RoundTrip(req)
	if err == nil {
		resp.Body.Close()
	}
	wantError(t, err, sandbox.Denied, "inside this host")
}

func TestAddresses(t *testing.T) {
	for host, want := range map[string][2]bool{ // loopback, inward
		"localhost": {true, true}, "localhost:5000": {true, true}, "x.localhost": {true, true}, "LOCALHOST.": {true, true},
		"127.0.0.1": {true, true}, "127.9.9.9:1": {true, true}, "[::1]:5000": {true, true}, "::1": {true, true},
		"[::ffff:127.0.0.1]": {true, true}, "10.0.0.1:5": {false, true}, "fe80::1%eth0": {false, true}, "[fc00::1]": {false, true},
		"0.0.0.0": {false, true}, "100.100.0.1": {false, true}, "169.254.169.254": {false, true},
		"localhost.example": {false, false}, "93.184.215.14": {false, false}, "[2001:db8::1]:443": {false, false}, "": {false, false},
	} {
		if got := [2]bool{image.Loopback(host), image.Inward(host)}; got != want {
			t.Errorf("%q: loopback, inward = %v, want %v", host, got, want)
		}
	}
}
