package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

func TestNewRefuses(t *testing.T) {
	for name, o := range map[string]client.Options{
		"nothing":      {},
		"both":         {Socket: "/s", URL: "http://h"},
		"no-scheme":    {URL: "127.0.0.1:3000"},
		"other-scheme": {URL: "ftp://h"},
		"no-host":      {URL: "http://"},
		"with-user":    {URL: "http://u:secret@h"},
		"with-query":   {URL: "http://h?x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.New(o)
			if client.KindOf(err) != client.Invalid {
				t.Errorf("New = %v, want invalid", err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats a password: %v", err)
			}
		})
	}
}

func TestLife(t *testing.T) {
	_, c, id := setup(t, nil)
	ctx := t.Context()
	if v, err := c.Version(ctx); err != nil || v.Version != servertest.Version || v.API != api.Current {
		t.Errorf("Version = %+v, %v", v, err)
	}
	if sb, err := c.SetTimeout(ctx, id, time.Hour); err != nil || sb.TTLMillis != time.Hour.Milliseconds() || sb.ExpiresAt.IsZero() {
		t.Errorf("SetTimeout = %+v, %v", sb, err)
	}
	if err := c.Remove(ctx, id, false); client.KindOf(err) != client.Conflict {
		t.Errorf("Remove of a running one = %v, want a conflict", err)
	}
	if sb, err := c.Stop(ctx, "web"); err != nil || sb.State != "stopped" || len(sb.Lost) == 0 {
		t.Errorf("Stop = %+v, %v", sb, err)
	}
	if list, err := c.List(ctx, client.ListOptions{State: "stopped"}); err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("List = %+v, %v", list, err)
	}
	if list, err := c.List(ctx, client.ListOptions{Labels: map[string]string{"a": "b"}}); err != nil || len(list) != 0 {
		t.Errorf("List by a label = %+v, %v", list, err)
	}
	if sb, err := c.Start(ctx, id); err != nil || sb.Starts != 2 {
		t.Errorf("Start = %+v, %v", sb, err)
	}
	if err := c.Remove(ctx, id, true); err != nil {
		t.Errorf("Remove = %v", err)
	}
	sb, err := c.Get(ctx, id)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Kind != client.NotFound || e.Hint == "" || sb != nil {
		t.Errorf("Get = %+v, %#v, want nothing, not found, with a hint", sb, err)
	}
}

func TestNobodyThere(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.Listen("unix", stale)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	for _, socket := range []string{filepath.Join(dir, "none.sock"), stale} {
		c, err := client.New(client.Options{Socket: socket})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Version(t.Context())
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Kind != client.Unavailable || !strings.Contains(e.Msg, socket) {
			t.Errorf("Version = %v, want unavailable, at %s", err, socket)
		}
	}
}

// Answers that are not the daemon's become errors, not surprises.
func TestStrangeAnswers(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		want   client.Kind
	}{
		{"html", 502, "<h1>Bad Gateway</h1>", client.Unavailable},
		{"empty", 500, "", client.Internal},
		{"unknown-kind", 400, `{"code":"odd","message":"m"}`, client.Internal},
		{"redirect", 307, "", client.Internal},
		{"not-json", 200, "hello", client.Internal},
		{"connect", 404, `{"code":"not_found","message":"m"}`, client.NotFound},
		{"older", 404, `{"code":"not_found","message":"GET \"/v1/x\": the API has no such path and method"}`, client.Unsupported},
		{"connect-own-code", 412, `{"code":"failed_precondition","message":"m"}`, client.Conflict},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-API-KEY") != "k" {
					t.Error("the key was not sent")
				}
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = srv.Serve(l)
			}()
			defer func() {
				_ = srv.Close()
				<-done
			}()
			c, err := client.New(client.Options{URL: "http://" + l.Addr().String(), Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Get(t.Context(), "x"); client.KindOf(err) != tt.want {
				t.Errorf("Get = %v, want kind %s", err, tt.want)
			}
		})
	}
}

func TestHold(t *testing.T) {
	d, c, _ := setup(t, nil)
	sb, err := c.Create(t.Context(), api.CreateRequest{Name: "run", Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	var held error
	var wg sync.WaitGroup
	wg.Go(func() { held = c.Hold(ctx, sb.ID) })
	holds := func() bool {
		_, n := d.Manager.Idle()
		return n == 1
	}
	servertest.Wait(t, "the hold", holds)
	d.Restart()
	servertest.Wait(t, "the hold after a restart", holds)
	cause := errors.New("enough")
	cancel(cause)
	wg.Wait()
	if !errors.Is(held, cause) {
		t.Errorf("Hold = %v, want the cause", held)
	}
	servertest.Wait(t, "the release", func() bool {
		_, n := d.Manager.Idle()
		return n == 0
	})
	if err := c.Finish(t.Context(), sb.ID); err != nil {
		t.Errorf("Finish = %v", err)
	}
	if err := c.Hold(t.Context(), sb.ID); client.KindOf(err) != client.NotFound {
		t.Errorf("Hold of what is gone = %v, want not found", err)
	}
}

func TestEvents(t *testing.T) {
	d, c, id := setup(t, nil)
	var types []string
	for ev, err := range c.Events(t.Context(), id, false) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, ev.Type)
	}
	if got, want := strings.Join(types, " "), "created started"; got != want {
		t.Errorf("events = %q, want %q", got, want)
	}
	next := map[string]func(){
		"started": func() {
			if _, err := c.Stop(t.Context(), id); err != nil {
				t.Error(err)
			}
		},
		"stopped": func() {
			err := d.Manager.Record(t.Context(), sandbox.Caller{Admin: true}, id, sandbox.Event{Type: "mine", Message: "m"})
			if err != nil {
				t.Error(err)
			}
		},
		"mine": func() {
			if err := c.Remove(t.Context(), id, true); err != nil {
				t.Error(err)
			}
		},
	}
	types = nil
	for ev, err := range c.Events(t.Context(), id, true) { // ends with the sandbox
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, ev.Type)
		if do := next[ev.Type]; do != nil {
			do()
		}
	}
	if got, want := strings.Join(types, " "), "created started stopped mine"; got != want {
		t.Errorf("followed events = %q, want %q", got, want)
	}
	for _, err := range c.Events(t.Context(), "none", true) {
		if client.KindOf(err) != client.NotFound {
			t.Errorf("Events of nothing = %v, want not found", err)
		}
	}
}

func TestChanges(t *testing.T) {
	d, c, private := setup(t, nil)
	if _, err := c.Changes(t.Context(), private, client.ChangesOptions{}); client.KindOf(err) != client.Conflict {
		t.Errorf("Changes of a private workspace = %v, want conflict", err)
	}
	sb, err := c.Create(t.Context(), api.CreateRequest{Workspace: &api.Workspace{Source: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("change ", 10_000)
	d.Wall.SetChanges(sb.ID, []byte(want))
	r, err := c.Changes(t.Context(), sb.ID, client.ChangesOptions{Content: true, Paths: []string{"a b", "c&d"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != want {
		t.Errorf("Changes = %d bytes, %v, want %d", len(got), err, len(want))
	}
	if _, err := c.Changes(t.Context(), "none", client.ChangesOptions{}); client.KindOf(err) != client.NotFound {
		t.Errorf("Changes of nothing = %v, want not found", err)
	}
}

func TestArchives(t *testing.T) {
	d, c, id := setup(t, nil)
	var got, asked string
	d.Guest.Agent = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.Query().Encode()
		switch {
		case r.URL.Path != "/carboy/archive":
			http.NotFound(w, r)
		case r.URL.Query().Get("path") == "/full":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInsufficientStorage)
			_, _ = io.WriteString(w, `{"code":"resource_exhausted","message":"no space left"}`)
		case r.Method == http.MethodPost:
			b, _ := io.ReadAll(r.Body)
			got = string(b)
			_, _ = io.WriteString(w, `{"entries":1,"bytes":2,"skipped":[{"name":"dev","reason":"a device"}],"skipped_more":2}`)
		case r.URL.Query().Get("path") == "/cut":
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("Trailer", "Carboy-Skipped, Carboy-Skipped-Count")
			_, _ = io.WriteString(w, "a tar of it")
			w.Header().Set("Carboy-Skipped", `[{"name":"s","reason":"a socket"}]`)
			w.Header().Set("Carboy-Skipped-Count", "3")
		}
	})
	want := strings.Repeat("tar ", 100_000)
	var skipped []client.Skip
	skip := func(s client.Skip) { skipped = append(skipped, s) }
	err := c.Upload(t.Context(), id, client.UploadOptions{Path: "/x y", User: "root", Mode: "as", Skipped: skip}, strings.NewReader(want))
	if err != nil || got != want || asked != "POST mode=as&path=%2Fx+y&user=root" {
		t.Errorf("Upload = %v, %d bytes, %q", err, len(got), asked)
	}
	if diff := cmp.Diff([]client.Skip{{Name: "dev", Reason: "a device"}, {Name: "2 more", Reason: "not listed"}}, skipped); diff != "" {
		t.Errorf("skipped in (-want +got):\n%s", diff)
	}
	err = c.Upload(t.Context(), id, client.UploadOptions{Path: "/full"}, strings.NewReader(want))
	if client.KindOf(err) != client.Exhausted || err.Error() != "no space left" {
		t.Errorf("Upload to a full disk = %v, want the guest's words", err)
	}
	r, err := c.Download(t.Context(), id, "/x", "")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "a tar of it" {
		t.Errorf("Download = %q, %v", b, err)
	}
	if diff := cmp.Diff([]client.Skip{{Name: "s", Reason: "a socket"}, {Name: "2 more", Reason: "not listed"}}, r.(*client.Archive).Skipped()); diff != "" {
		t.Errorf("skipped out (-want +got):\n%s", diff)
	}
	r, err = c.Download(t.Context(), id, "/cut", "")
	if err == nil {
		defer r.Close()
		_, err = io.ReadAll(r)
	}
	if err == nil {
		t.Error("a download that was cut short looked whole")
	}
}

func TestLongSocket(t *testing.T) {
	d, _, _ := setup(t, nil)
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100))
	if err := os.MkdirAll(long, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(d.Socket, filepath.Join(long, "s")); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Socket: filepath.Join(long, "s")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Version(t.Context()); err != nil {
		t.Errorf("Version by a long path = %v", err)
	}
}
