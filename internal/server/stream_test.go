package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// changing is a domain whose changes end as a test says.
type changing struct {
	Manager
	text string
	err  error
}

func (c changing) Changes(_ context.Context, _ sandbox.Caller, _ string, _ sandbox.ChangesOptions, w io.Writer) error {
	if c.text != "" {
		if _, err := io.WriteString(w, c.text); err != nil {
			return err
		}
	}
	return c.err
}

// Half a stream must not be taken for a whole one.
func TestChangesCutShort(t *testing.T) {
	fault := errors.New("the disk is on fire")
	tests := []struct {
		name    string
		m       changing
		query   string
		status  int
		aborted bool
	}{
		{"whole", changing{text: "all of it"}, "", http.StatusOK, false},
		{"none", changing{}, "?path=a/b", http.StatusOK, false},
		{"error-at-once", changing{err: sandbox.Errorf(sandbox.NotFound, "gone")}, "", http.StatusNotFound, false},
		{"error-later", changing{text: "half of it", err: fault}, "", http.StatusOK, true},
		{"path-of-the-host", changing{text: "x"}, "?path=a&path=/etc", http.StatusBadRequest, false},
		{"path-above", changing{text: "x"}, "?path=..", http.StatusBadRequest, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &sandboxAPI{m: tt.m}
			rec := httptest.NewRecorder()
			aborted := func() (aborted bool) {
				defer func() { aborted = recover() == http.ErrAbortHandler }() // a panic's value, not wrapped
				s.changes(rec, httptest.NewRequest("GET", "/v1/sandboxes/x/changes"+tt.query, nil))
				return false
			}()
			if rec.Code != tt.status || aborted != tt.aborted {
				t.Errorf("status %d, aborted %v, want %d, %v", rec.Code, aborted, tt.status, tt.aborted)
			}
		})
	}
}

// A handler that panics is in the log, on every port, and its caller is answered.
func TestPanics(t *testing.T) {
	var log bytes.Buffer
	s := New(Options{Manager: changing{}, Log: slog.New(slog.NewTextHandler(&log, nil))}) // a domain that is not there
	defer s.Close()
	for name, at := range map[string]string{"/v1/": "/v1/sandboxes/x", "e2b": "/sandboxes/sb_aaaaaaaaaaaaaaaaaaaa"} {
		t.Run(name, func(t *testing.T) {
			log.Reset()
			h := s.httpServer(t.Context(), s.observe(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { (&sandboxAPI{}).get(nil, nil) }))).Handler
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, httptest.NewRequest("GET", at, nil))
			if rec.Code != http.StatusInternalServerError || !strings.Contains(rec.Body.String(), "internal error") {
				t.Errorf("answer = %d %s, want a plain 500", rec.Code, rec.Body)
			}
			if got := log.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "stack=") || !strings.Contains(got, at) {
				t.Errorf("log = %s, want one error with a stack", got)
			}
		})
	}
}

func TestNewerThan(t *testing.T) {
	ev := func(s string) (out []sandbox.Event) {
		for _, c := range s {
			out = append(out, sandbox.Event{Type: string(c)})
		}
		return out
	}
	for _, tt := range []struct{ now, old, want string }{
		{"abc", "", "abc"},
		{"abc", "abc", ""},
		{"abcd", "abc", "d"},
		{"bcd", "abc", "d"},   // the oldest was dropped
		{"xyz", "abc", "xyz"}, // all were
		{"aaa", "aa", "a"},    // alike, and one more
		{"abab", "ab", "ab"},  // a repeated pair
		{"abcabcd", "abcabc", "d"},
	} {
		got := ""
		for _, e := range newerThan(ev(tt.now), ev(tt.old)) {
			got += e.Type
		}
		if got != tt.want {
			t.Errorf("newerThan(%q, %q) = %q, want %q", tt.now, tt.old, got, tt.want)
		}
	}
}

// An answer that is complete stays open until its reader closes it, or is told that it is over.
func TestStreamHeld(t *testing.T) {
	over, ended := make(chan struct{}), make(chan struct{}, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := newStream(w, "text/plain")
		_, _ = io.WriteString(out, "all")
		out.held(r.Context(), over)
		ended <- struct{}{}
	}))
	defer srv.Close()
	get := func() io.ReadCloser {
		resp, err := http.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		var b [3]byte
		if _, err := io.ReadFull(resp.Body, b[:]); err != nil || string(b[:]) != "all" {
			t.Fatalf("%q, %v", b, err)
		}
		return resp.Body
	}
	body := get()
	select {
	case <-ended:
		t.Error("it did not stay open")
	default:
	}
	_ = body.Close()
	<-ended
	body = get()
	defer body.Close()
	close(over)
	if rest, err := io.ReadAll(body); err != nil || string(rest) != "\n" {
		t.Errorf("when it is over: %q, %v", rest, err)
	}
}
