package wire_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// covered is a writer of some layer between Watch and who answers.
type covered struct{ http.ResponseWriter }

func (c covered) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func TestWatch(t *testing.T) {
	cause := errors.New("the disk is on fire")
	internal := sandbox.Errorf(sandbox.Internal, "sandbox web: could not start").WithHint(sandbox.LogHint)
	internal.Err = cause
	tests := []struct {
		name    string
		do      http.HandlerFunc
		status  int    // 0: the connection is cut
		log     string // "": nothing is logged
		records int
	}{
		{"well", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204, "", 0},
		{"callers-fault", func(w http.ResponseWriter, _ *http.Request) { wire.Error(w, sandbox.Errorf(sandbox.Invalid, "no")) }, 400, "", 0},
		{"internal", func(w http.ResponseWriter, _ *http.Request) { wire.Error(covered{w}, internal) }, 500, "the disk is on fire", 1},
		{"not-ours", func(w http.ResponseWriter, _ *http.Request) { wire.Error(w, cause) }, 500, "the disk is on fire", 1},
		{"panic", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Set-Cookie", "x=y")
			panic("index out of range")
		}, 500, "index out of range", 1},
		{"panic-in-an-answer", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("half"))
			_ = http.NewResponseController(w).Flush()
			panic("index out of range")
		}, 0, "index out of range", 1},
		{"cut-on-purpose", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			srv := httptest.NewServer(&wire.Watch{
				Next: tt.do, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Panicked: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
			})
			status, cookie := get(t, srv.URL)
			srv.Close() // which waits for the handler
			if status != tt.status || cookie != "" {
				t.Errorf("status = %d, cookie %q, want %d", status, cookie, tt.status)
			}
			if got := strings.Count(log.String(), "level=ERROR"); got != tt.records || !strings.Contains(log.String(), tt.log) {
				t.Errorf("log = %s, want %d errors with %q", log.String(), tt.records, tt.log)
			}
		})
	}
}

// get returns 0 where the answer broke off.
func get(t *testing.T, url string) (status int, cookie string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	if _, err := new(bytes.Buffer).ReadFrom(resp.Body); err != nil {
		return 0, ""
	}
	return resp.StatusCode, resp.Header.Get("Set-Cookie")
}
