package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
)

// What can't be a name is refused before anything is sent, by each call that has one
// in its path.
func TestNoName(t *testing.T) {
	var asked atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "", http.StatusTeapot)
	}))
	defer srv.Close()
	c, err := client.New(client.Options{URL: srv.URL + "/templates//below", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, tt := range []struct {
		what, hint string
		slash      bool // it may hold one
		call       func(ctx context.Context, name string) error
	}{
		{"sandbox", "carboy ls", false, func(ctx context.Context, n string) error { _, err := c.Get(ctx, n); return err }},
		{"sandbox", "carboy ls", false, func(ctx context.Context, n string) error { _, err := c.Stop(ctx, n); return err }},
		{"sandbox", "carboy ls", false, func(ctx context.Context, n string) error { return c.Hold(ctx, n) }},
		{"sandbox", "carboy ls", false, func(ctx context.Context, n string) error { _, err := c.DialPort(ctx, n, 80); return err }},
		{"sandbox", "carboy ls", false, func(ctx context.Context, n string) error { return c.RemoveFile(ctx, n, "/x") }},
		{"sandbox", "carboy ls", false, func(ctx context.Context, n string) error { _, err := c.Snapshot(ctx, n); return err }},
		{"snapshot", "carboy snapshot ls", false, func(ctx context.Context, n string) error { return c.RemoveSnapshot(ctx, n) }},
		{"volume", "carboy volume ls", false, func(ctx context.Context, n string) error { return c.RemoveVolume(ctx, n) }},
		{"key", "carboy key ls", false, func(ctx context.Context, n string) error { return c.DeleteKey(ctx, n) }},
		{"secret", "carboy secret ls", false, func(ctx context.Context, n string) error { return c.RemoveSecret(ctx, n, false) }},
		{"template", "carboy template ls", true, func(ctx context.Context, n string) error { return c.RemoveTemplate(ctx, n) }},
		{"build", "carboy template ls", false, func(ctx context.Context, n string) error {
			return c.CancelBuild(ctx, api.BuildRef{TemplateID: "t", BuildID: n})
		}},
	} {
		for _, name := range []string{"", ".", "..", "a/b", "../x"} {
			err := tt.call(t.Context(), name)
			if strings.Contains(name, "/") && tt.slash {
				if n := asked.Swap(0); n != 1 {
					t.Errorf("%s %q: %d requests, want one", tt.what, name, n)
				}
				continue
			}
			e, ok := errors.AsType[*client.Error](err)
			if !ok || e.Kind != client.Invalid || !strings.HasPrefix(e.Msg, tt.what+` "`+name+`": not a`) || !strings.HasPrefix(e.Hint, tt.hint) {
				t.Errorf("%s %q: %#v", tt.what, name, err)
			}
			if n := asked.Swap(0); n != 0 {
				t.Errorf("%s %q: %d requests, want none", tt.what, name, n)
			}
		}
		if _ = tt.call(t.Context(), "web.1"); asked.Swap(0) == 0 {
			t.Errorf("%s web.1: nothing was sent", tt.what)
		}
	}
}
