package offer_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/egress/offer"
)

func TestParseTarget(t *testing.T) {
	for s, want := range map[string]string{
		"http://127.0.0.1:8000": "http://127.0.0.1:8000", "http://127.0.0.1:8000/": "http://127.0.0.1:8000",
		"https://a.example/base/": "https://a.example/base", "http://[::1]:80/a%2Fb": "http://[::1]:80/a%2Fb",
		"unix:/run/x.sock": "unix:///run/x.sock", "unix:///run/x.sock": "unix:///run/x.sock",
	} {
		if u, err := offer.ParseTarget(s); err != nil || u.String() != want {
			t.Errorf("%s is %v, %v, want %s", s, u, err, want)
		}
	}
	for _, s := range []string{
		"", "8000", "127.0.0.1:8000", "ftp://a.example", "http://", "http:///a", "http://u:secret@a.example", "http://a.example/?q=1", "http://a.example/?",
		"http://a.example/#f", "unix:x.sock", "unix://host/x.sock", "unix:/x?y", "http://a example", "http://a.example:no",
	} {
		if u, err := offer.ParseTarget(s); err == nil {
			t.Errorf("%q is %v", s, u)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error tells the password: %v", s, err)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	f.Add("http://127.0.0.1:8000/base")
	f.Add("unix:/run/x.sock")
	f.Fuzz(func(t *testing.T, s string) {
		u, err := offer.ParseTarget(s)
		if err == nil && (u.User != nil || u.RawQuery != "" || u.Scheme == "unix" && !filepath.IsAbs(u.Path) || u.Scheme != "unix" && u.Hostname() == "") {
			t.Errorf("%q is %#v", s, u)
		}
	})
}

// program is one of the machine's.
func program(t testing.TB, l net.Listener) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.RequestURI, r.Host, r.Header.Get(offer.HeaderSandbox), r.Header.Get("X-Forwarded-Host"))
	}))
	if l != nil {
		s.Listener.Close()
		s.Listener = l
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// What is below the service's name reaches the program as it was written.
func TestTo(t *testing.T) {
	s := program(t, nil)
	host := strings.TrimPrefix(s.URL, "http://")
	sock := filepath.Join(t.TempDir(), "p.sock")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	program(t, l)
	tests := []struct {
		target, path, want string
		status             int
	}{
		{s.URL, "/", "GET / " + host, 200},
		{s.URL, "/a/b?q=%2F;x&y", "GET /a/b?q=%2F;x&y " + host, 200},
		{s.URL, "//a", "GET //a " + host, 200},
		{s.URL, "/a%2Fb/%2e%2e/c", "GET /a%2Fb/%2e%2e/c " + host, 200},
		{s.URL, "/../a", "GET /../a " + host, 200},
		{s.URL + "/base/", "/a%2Fb", "GET /base/a%2Fb " + host, 200},
		{s.URL + "/base", "/", "GET /base/ " + host, 200},
		{s.URL + "/base", "/../a", `"bad_request"`, 400},
		{s.URL + "/base", "/x/%2e%2E/a", `"bad_request"`, 400},
		{s.URL + "/base", "/x%2f..%2fa", `"bad_request"`, 400},
		{s.URL + "/base", "/..a/b..", "GET /base/..a/b.. " + host, 200},
		{"unix:" + sock, "/a", "GET /a localhost", 200},
	}
	for _, tt := range tests {
		target, err := offer.ParseTarget(tt.target)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, tt.path, nil)
		r.Header.Set(offer.HeaderSandbox, "id-of-one")
		r.Header.Set("X-Forwarded-Host", "gate.carboy.internal")
		w := httptest.NewRecorder()
		offer.To(target).ServeHTTP(w, r)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s for %s: %d %s, want %s", tt.path, tt.target, w.Code, w.Body, tt.want)
		}
		if w.Code == 200 && !strings.HasSuffix(w.Body.String(), " id-of-one gate.carboy.internal") {
			t.Errorf("%s for %s: who calls is not told: %s", tt.path, tt.target, w.Body)
		}
	}
}

// A program that is not there is told as the gate tells it, and not where it
// should be.
func TestToNobody(t *testing.T) {
	s := program(t, nil)
	s.Close()
	target, err := offer.ParseTarget(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(offer.HeaderPrefix, "/docs")
	offer.To(target).ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Body)
	want := api.GateRefusal{Code: offer.CodeAway, Message: "docs: the program that serves it did not answer", Host: "gate.carboy.internal", Hint: "try again in 1 s"}
	var said api.GateRefusal
	if err := json.Unmarshal(body, &said); err != nil || w.Code != 503 || said != want || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v %s, %v", w.Code, w.Header(), body, err)
	}
	if strings.Contains(string(body), "127.0.0.1") {
		t.Errorf("it tells where: %s", body)
	}
}

// Whether something listens is known at once, of each kind of target.
func TestListens(t *testing.T) {
	s, gone := program(t, nil), program(t, nil)
	gone.Close()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "p.sock"))
	if err != nil {
		t.Fatal(err)
	}
	program(t, l)
	for target, want := range map[string]string{
		s.URL: "", s.URL + "/base": "", "unix:" + dir + "/p.sock": "",
		gone.URL: "connection refused", "unix:" + dir + "/none": "no such file", "unix:" + dir: "connection refused",
	} {
		u, err := offer.ParseTarget(target)
		if err != nil {
			t.Fatal(err)
		}
		if err := offer.Listens(t.Context(), u); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", target, err, want)
		}
	}
}
