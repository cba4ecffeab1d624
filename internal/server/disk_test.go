package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// disky is a domain whose disks say what they were asked, and then fail as a test says.
type disky struct {
	Manager
	err   error
	begun bool // before it fails
}

func (d disky) say(w io.Writer, format string, args ...any) error {
	if d.err == nil || d.begun {
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return err
		}
	}
	return d.err
}

func (d disky) ListDisk(_ context.Context, _ sandbox.Caller, _, path string, recursive bool, w io.Writer) error {
	return d.say(w, "list %s %t", path, recursive)
}

func (d disky) ReadDisk(_ context.Context, _ sandbox.Caller, _, path string, maxBytes int64, w io.Writer) error {
	return d.say(w, "read %s %d", path, maxBytes)
}

func (d disky) ExportDisk(_ context.Context, _ sandbox.Caller, _ string, w io.Writer) error {
	return d.say(w, "image")
}

func (d disky) ScrubDisk(_ context.Context, _ sandbox.Caller, _ string, progress func(sandbox.DiskStep)) error {
	if d.err == nil || d.begun {
		progress(sandbox.DiskStep{Step: "erase", Done: 1, Total: 2})
	}
	return d.err
}

func TestDiskRoutes(t *testing.T) {
	fault := errors.New("the disk is on fire")
	busy := sandbox.Errorf(sandbox.Conflict, "it is running")
	list, read, image, scrub := (*sandboxAPI).listDisk, (*sandboxAPI).readDisk, (*sandboxAPI).exportDisk, (*sandboxAPI).scrubDisk
	for _, tt := range []struct {
		name    string
		h       func(*sandboxAPI, http.ResponseWriter, *http.Request)
		m       disky
		query   string
		status  int
		says    string
		aborted bool
	}{
		{name: "list", h: list, status: 200, says: "list / false"},
		{name: "list-below", h: list, query: "?path=/a%20b&recursive=1", status: 200, says: "list /a b true"},
		{name: "list-two-paths", h: list, query: "?path=/a&path=/b", status: 400, says: "parameter path"},
		{name: "list-long-path", h: list, query: "?path=/" + strings.Repeat("a", maxDiskPath), status: 400, says: "parameter path"},
		{name: "list-strange-truth", h: list, query: "?recursive=yes", status: 400, says: "0 or 1"},
		{name: "list-unknown", h: list, query: "?deep=1", status: 400, says: "no such parameter"},
		{name: "list-busy", h: list, m: disky{err: busy}, status: 409, says: "it is running"},
		{name: "list-cut", h: list, m: disky{err: fault, begun: true}, status: 200, says: "list", aborted: true},
		{name: "read", h: read, query: "?path=/f", status: 200, says: "read /f 65536"},
		{name: "read-some", h: read, query: "?path=/f&max_bytes=-5", status: 200, says: "read /f -5"},
		{name: "read-nothing", h: read, status: 400, says: "parameter path"},
		{name: "read-no-number", h: read, query: "?path=/f&max_bytes=5k", status: 400, says: "one number"},
		{name: "read-two-numbers", h: read, query: "?path=/f&max_bytes=5&max_bytes=6", status: 400, says: "one number"},
		{name: "image", h: image, status: 200, says: "image"},
		{name: "image-cut", h: image, m: disky{err: fault, begun: true}, status: 200, says: "image", aborted: true},
		{name: "scrub", h: scrub, status: 200, says: `{"step":"erase","done":1,"total":2}` + "\n" + `{"scrubbed":true}`},
		{name: "scrub-busy", h: scrub, m: disky{err: busy}, status: 409, says: "it is running"},
		{name: "scrub-fails", h: scrub, m: disky{err: busy, begun: true}, status: 200, says: `"error":{"code":"conflict","message":"it is running"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			aborted := func() (aborted bool) {
				defer func() { aborted = recover() == http.ErrAbortHandler }() // a panic's value, not wrapped
				tt.h(&sandboxAPI{m: tt.m}, rec, httptest.NewRequest("GET", "/v1/sandboxes/x/disk"+tt.query, nil))
				return false
			}()
			if rec.Code != tt.status || aborted != tt.aborted || !strings.Contains(rec.Body.String(), tt.says) {
				t.Errorf("status %d, aborted %v: %s\nwant %d, %v: %s", rec.Code, aborted, rec.Body, tt.status, tt.aborted, tt.says)
			}
		})
	}
}
