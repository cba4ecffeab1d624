package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
)

// answers is a daemon that answers each request as the next of its functions
// does, and remembers what was asked.
type answers struct {
	mu   sync.Mutex
	next []func(http.ResponseWriter)
	seen []string
	body []string
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	a.seen = append(a.seen, r.Method+" "+r.URL.RequestURI())
	a.body = append(a.body, string(body))
	f := a.next[0]
	a.next = a.next[1:]
	a.mu.Unlock()
	f(w)
}

// answering returns a client of a daemon that answers so.
func answering(t *testing.T, next ...func(http.ResponseWriter)) (*client.Client, *answers) {
	t.Helper()
	a := &answers{next: next}
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	c, err := client.New(client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, a
}

func says(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// breaks answers with body and breaks the connection.
func breaks(body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, body)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func record(seq int) string {
	return fmt.Sprintf(`{"seq":%d,"verdict":"deny","protocol":"dns"}`+"\n", seq)
}

func TestNetLog(t *testing.T) {
	gone := says(404, `{"code":"not_found","message":"gone"}`)
	tests := []struct {
		name string
		o    client.NetLogOptions
		next []func(http.ResponseWriter)
		want []uint64
		kind client.Kind
		seen []string
	}{
		{
			name: "all", next: []func(http.ResponseWriter){says(200, record(1)+"\n"+record(2))}, want: []uint64{1, 2},
			seen: []string{"GET /v1/sandboxes/web/netlog"},
		},
		{
			name: "selected", o: client.NetLogOptions{After: 7, Denied: true}, next: []func(http.ResponseWriter){says(200, "")},
			seen: []string{"GET /v1/sandboxes/web/netlog?after=7&denied=1"},
		},
		{name: "error", next: []func(http.ResponseWriter){gone}, kind: client.NotFound},
		{name: "cut", next: []func(http.ResponseWriter){breaks(record(1) + `{"se`)}, want: []uint64{1}, kind: client.Unavailable},
		{name: "not-json", next: []func(http.ResponseWriter){says(200, "<html>\n")}, kind: client.Internal},
		{
			name: "follow", o: client.NetLogOptions{Follow: true},
			next: []func(http.ResponseWriter){breaks(record(1) + record(2)), breaks("\n" + record(3) + `{"seq":4,"ver`), says(503, ""), says(200, record(4))},
			want: []uint64{1, 2, 3, 4},
			seen: []string{
				"GET /v1/sandboxes/web/netlog?follow=1", "GET /v1/sandboxes/web/netlog?after=2&follow=1",
				"GET /v1/sandboxes/web/netlog?after=3&follow=1", "GET /v1/sandboxes/web/netlog?after=3&follow=1",
			},
		},
		{
			name: "follow-until-it-is-gone", o: client.NetLogOptions{Follow: true},
			next: []func(http.ResponseWriter){breaks(record(1)), gone}, want: []uint64{1},
		},
		{name: "follow-nothing", o: client.NetLogOptions{Follow: true}, next: []func(http.ResponseWriter){gone}, kind: client.NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, a := answering(t, tt.next...)
			var got []uint64
			var last error
			for rec, err := range c.NetLog(t.Context(), "web", tt.o) {
				if last = err; err == nil {
					got = append(got, rec.Seq)
				}
			}
			if !slices.Equal(got, tt.want) || client.KindOf(last) != tt.kind {
				t.Errorf("records %v, then %v; want %v, %q", got, last, tt.want, tt.kind)
			}
			if diff := cmp.Diff(tt.seen, a.seen); tt.seen != nil && diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNetLogEnds holds that whoever reads may stop, and that the end of a
// context is its cause.
func TestNetLogEnds(t *testing.T) {
	c, _ := answering(t, says(200, record(1)+record(2)), breaks(record(1)))
	for range c.NetLog(t.Context(), "web", client.NetLogOptions{}) {
		break
	}
	left := errors.New("left")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	for _, err := range c.NetLog(ctx, "web", client.NetLogOptions{Follow: true}) {
		last = err
		cancel(left)
	}
	if !errors.Is(last, left) {
		t.Errorf("the last error is %v, want the cause", last)
	}
}

// TestNetworkCalls holds what is sent for each call, and that values go out
// alone.
func TestNetworkCalls(t *testing.T) {
	ok := says(200, `{}`)
	c, a := answering(t, ok, ok, ok, says(200, `[]`), says(200, `[]`), ok, ok, ok, ok, says(204, ""), says(204, ""))
	ctx := t.Context()
	value := api.SecretValue("hunter2")
	for i, call := range []func() error{
		func() error { _, err := c.Policy(ctx, "a b"); return err },
		func() error { _, err := c.SetPolicy(ctx, "web", api.Policy{Default: "public"}); return err },
		func() error {
			_, err := c.TestPolicy(ctx, "web", api.PolicyTestRequest{Request: "GET https://a.example/"})
			return err
		},
		func() error { _, err := c.PolicyPresets(ctx); return err },
		func() error { _, err := c.Secrets(ctx); return err },
		func() error { _, err := c.AddSecret(ctx, api.SecretRequest{Name: "A", Value: &value}); return err },
		func() error {
			_, err := c.AddSecret(ctx, api.SecretRequest{Name: "A", Command: []string{"/x"}, TTLMillis: 5})
			return err
		},
		func() error { _, err := c.RotateSecret(ctx, "A", api.SecretRequest{}); return err },
		func() error { _, err := c.RotateSecret(ctx, "A", api.SecretRequest{File: "/f"}); return err },
		func() error { return c.RemoveSecret(ctx, "A", false) },
		func() error { return c.RemoveSecret(ctx, "A", true) },
	} {
		if err := call(); err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	want := []string{
		"GET /v1/sandboxes/a%20b/policy ", `PUT /v1/sandboxes/web/policy {"default":"public"}`,
		`POST /v1/sandboxes/web/policy/test {"request":"GET https://a.example/"}`, "GET /v1/policy/presets ",
		"GET /v1/secrets ", `POST /v1/secrets {"name":"A","value":"hunter2"}`, `POST /v1/secrets {"name":"A","command":["/x"],"ttl_ms":5}`,
		`POST /v1/secrets/A/rotate {}`, `POST /v1/secrets/A/rotate {"file":"/f"}`,
		"DELETE /v1/secrets/A ", "DELETE /v1/secrets/A?force=1 ",
	}
	got := make([]string, len(a.seen))
	for i := range a.seen {
		got[i] = a.seen[i] + " " + a.body[i]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestSecretValuesAreHidden holds that printing what has one shows nothing.
func TestSecretValuesAreHidden(t *testing.T) {
	v := api.SecretValue("hunter2")
	for _, text := range []string{
		fmt.Sprint(v), fmt.Sprintf("%v %+v %#v %s %q", v, v, v, v, v),
		fmt.Sprintf("%v %+v %#v", api.SecretRequest{Value: &v}, api.SandboxSecret{Value: &v}, api.CreateRequest{Secrets: []api.SandboxSecret{{Value: &v}}}),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s", text)
		}
	}
}
