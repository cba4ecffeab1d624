package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// TestCreateNews: whoever accepts it is told how far the copy of a workspace is; with
// nothing to tell, and for others, the answer is as always.
func TestCreateNews(t *testing.T) {
	w := newWorld(t)
	var tell, fail bool
	w.Wall.SetHook(func(ctx context.Context, op sandboxtest.Op, _ string) error {
		if op != sandboxtest.Start {
			return nil
		}
		if tell {
			sandbox.CopiedOf(ctx)(sandbox.Copied{Files: 2, Bytes: 3})
		}
		if fail {
			return errors.New("no")
		}
		return nil
	})
	for name, tt := range map[string]struct {
		accept     bool
		tell, fail bool
		status     int
		lines      int
	}{
		"plain":           {tell: true, status: 201, lines: 1},
		"nothing-to-tell": {accept: true, status: 201, lines: 1},
		"told":            {accept: true, tell: true, status: 200, lines: 2},
		"failed":          {accept: true, fail: true, status: 500, lines: 1},
		"told-and-failed": {accept: true, tell: true, fail: true, status: 200, lines: 2},
	} {
		t.Run(name, func(t *testing.T) {
			tell, fail = tt.tell, tt.fail
			q := request{method: "POST", path: "/v1/sandboxes", body: `{}`, header: map[string]string{}}
			if tt.accept {
				q.header["Accept"] = api.CreateNews
			}
			resp, body := w.do(t, q)
			got := strings.Split(strings.TrimSpace(body), "\n")
			if resp.StatusCode != tt.status || len(got) != tt.lines {
				t.Fatalf("%d %s, want %d and %d lines", resp.StatusCode, body, tt.status, tt.lines)
			}
			if tt.lines < 2 {
				return
			}
			var first, last api.CreateEvent
			if err := errors.Join(json.Unmarshal([]byte(got[0]), &first), json.Unmarshal([]byte(got[1]), &last)); err != nil {
				t.Fatal(err)
			}
			if first.Copied == nil || *first.Copied != (api.Copied{Files: 2, Bytes: 3}) {
				t.Errorf("first came %s", got[0])
			}
			if (last.Sandbox == nil) != tt.fail || (last.Error == nil) == tt.fail {
				t.Errorf("last came %s", got[1])
			}
		})
	}
}
