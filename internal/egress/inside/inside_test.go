package inside_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/inside"
	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// fakeGate is the gate of one sandbox, of which nothing but the taking of offers is there.
type fakeGate struct {
	sandbox.Gate
	path string

	mu      sync.Mutex
	offered []string
	fails   error
}

func (g *fakeGate) Open(context.Context, *sandbox.Sandbox, sandbox.LinkForm, sandbox.SecretValues) (*sandbox.Link, error) {
	return &sandbox.Link{}, g.fails
}
func (g *fakeGate) Adopt(context.Context, *sandbox.Sandbox, *os.File) error { return g.fails }
func (g *fakeGate) Close(context.Context, string) error                     { return nil }
func (g *fakeGate) Verify(context.Context, *sandbox.Sandbox, func(context.Context) (net.Conn, error)) ([]sandbox.Enforcement, error) {
	return nil, g.fails
}

func (g *fakeGate) OfferService(ctx context.Context, id, service string) (net.Conn, error) {
	g.mu.Lock()
	g.offered = append(g.offered, id+" "+service)
	g.mu.Unlock()
	c, err := net.Dial("unix", g.path)
	if err == nil {
		err = offer.Greet(ctx, c, service)
	}
	return c, err
}

// newGate returns a gate, and what asks it for a service as a program inside does.
func newGate(t *testing.T) (*fakeGate, func(service string) string) {
	t.Helper()
	g := &fakeGate{path: filepath.Join(t.TempDir(), "s")}
	desk := offer.NewDesk()
	desk.Set([]string{sandbox.ServicePods, sandbox.ServiceGit})
	l, err := net.Listen("unix", g.path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = desk.Serve(ctx, l) }()
	t.Cleanup(func() { desk.Set(nil); cancel(); <-done })
	return g, func(service string) string {
		to, done, err := desk.Call(service)
		if err != nil {
			return "nobody serves it"
		}
		defer done()
		r, err := to.RoundTrip(httptest.NewRequest(http.MethodGet, "http://gate/", nil))
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return fmt.Sprint(r.StatusCode, " ", string(b))
	}
}

func handlers(calls *[]string) inside.Handlers {
	return inside.Handlers{sandbox.ServicePods: func(sb *sandbox.Sandbox) http.Handler {
		*calls = append(*calls, sb.ID)
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "pods of "+sb.Spec.Name) })
	}}
}

// TestServes: a sandbox whose record says so has a service for as long as it runs, by this daemon or the next; another has none.
func TestServes(t *testing.T) {
	for name, begin := range map[string]func(g *inside.Gates, sb *sandbox.Sandbox) error{
		"opened": func(g *inside.Gates, sb *sandbox.Sandbox) error {
			_, err := g.Open(t.Context(), sb, "", nil)
			return err
		},
		"adopted": func(g *inside.Gates, sb *sandbox.Sandbox) error { return g.Adopt(t.Context(), sb, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			fake, ask := newGate(t)
			g := inside.Over(fake, slog.New(slog.DiscardHandler))
			var made []string
			g.Serve(handlers(&made))
			sb := &sandbox.Sandbox{ID: "sb_1", Spec: sandbox.Spec{Name: "lead", MaySpawn: 2, Remotes: []sandbox.Remote{{Name: "app"}}}}
			for range 2 {
				if err := begin(g, sb); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := g.Verify(t.Context(), sb, nil); err != nil {
				t.Fatal(err)
			}
			if !patience.Until(10*time.Second, func() bool { return ask(sandbox.ServicePods) == "200 pods of lead" }) {
				t.Errorf("inside: %s", ask(sandbox.ServicePods))
			}
			if len(made) != 1 || len(fake.offered) != 1 {
				t.Errorf("%d handlers, and offered were %q", len(made), fake.offered)
			}
			if err := g.Close(t.Context(), sb.ID); err != nil {
				t.Fatal(err)
			}
			if !patience.Until(10*time.Second, func() bool { return ask(sandbox.ServicePods) == "nobody serves it" }) {
				t.Errorf("after its end: %s", ask(sandbox.ServicePods))
			}
			if err := begin(g, &sandbox.Sandbox{ID: "sb_2", Spec: sandbox.Spec{Name: "plain"}}); err != nil || len(made) != 1 {
				t.Errorf("a sandbox that spawns none: %v, %q", err, made)
			}
			g.Shut()
		})
	}
}

// TestFails: where the gate is not there, nothing is served.
func TestFails(t *testing.T) {
	fake, _ := newGate(t)
	fake.fails = sandbox.Errorf(sandbox.Unavailable, "no gate")
	g := inside.Over(fake, slog.New(slog.DiscardHandler))
	var made []string
	g.Serve(handlers(&made))
	sb := &sandbox.Sandbox{ID: "sb_1", Spec: sandbox.Spec{MaySpawn: 1}}
	_, oerr := g.Open(t.Context(), sb, "", nil)
	_, verr := g.Verify(t.Context(), sb, nil)
	for _, err := range []error{oerr, verr, g.Adopt(t.Context(), sb, nil)} {
		if sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("it is %v", err)
		}
	}
	if len(made) > 0 {
		t.Errorf("%q are served", made)
	}
}
