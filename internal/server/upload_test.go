package server_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/server"
)

// A path of a sandbox's own server is its own, and what lets an archive in is
// good once, for nothing else, and in no log.
func TestUploadLinks(t *testing.T) {
	var log strings.Builder
	w := newEstate(t, func(o *server.Options) {
		o.Domain, o.PublicTraffic = domain, true
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	w.Guest.Ports = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or else its answer may come behind a write that fails
		rw.WriteHeader(http.StatusTeapot)
	})
	instance := decode[struct{ SandboxID string }](t, w.want(t, 201, "ours", "POST", "/sandboxes", `{"templateID":"base"}`)).SandboxID
	link := decode[struct{ URL string }](t, w.want(t, 201, "ours", "GET", w.names.Replace("/templates/TPL/files/HASH"), "")).URL
	_, token, _ := strings.Cut(link, e2b.UploadPath)
	put := func(path, host string) int {
		resp, _ := w.do(t, request{tcp: true, method: "PUT", path: path, body: "x", host: host})
		return resp.StatusCode
	}
	if got := put(e2b.UploadPath+token, "8000-"+instance+"."+domain); got != http.StatusTeapot {
		t.Errorf("PUT to a sandbox = %d, want its own answer", got)
	}
	for _, tt := range []struct {
		token string
		want  int
	}{{token + "0", 404}, {"", 404}, {token, 200}, {token, 404}} {
		if got := put(e2b.UploadPath+tt.token, ""); got != tt.want {
			t.Errorf("PUT by %q = %d, want %d", tt.token, got, tt.want)
		}
	}
	w.Kill()
	if strings.Contains(log.String(), token) || !strings.Contains(log.String(), e2b.UploadPath) {
		t.Errorf("the log has the token, or nothing: %s", log.String())
	}
}
