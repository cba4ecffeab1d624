package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// serving is a policy that lets services be called, and nothing else.
func serving(names ...string) *policy.Policy { return &policy.Policy{Services: names} }

// offers has a handler serve w's sandbox until the test ends, or stop is called.
func (w *watched) offers(g *Gates, name string, h http.HandlerFunc) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, stands := make(chan struct{}), make(chan struct{}, 100)
	go func() {
		defer close(done)
		_ = offer.Serve(ctx, offer.Options{Handler: h, Dial: func(ctx context.Context) (io.ReadWriteCloser, error) {
			return g.OfferService(ctx, w.sb.ID, name)
		}, Told: func(err error) {
			if err == nil {
				stands <- struct{}{}
			}
		}})
	}()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	select {
	case <-stands:
	case <-time.After(patience.For(20 * time.Second)):
		w.t.Fatalf("an offer of %s does not stand", name)
	}
	return stop
}

// calls sends a request to the gate from inside: its status and its answer.
func (w *watched) calls(path string) (int, string) {
	w.t.Helper()
	c, err := w.dial("tcp", link.Gate4.String()+":80")
	if err != nil {
		return 0, err.Error()
	}
	defer c.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}, Timeout: patience.For(10 * time.Second)}
	resp, err := client.Get("http://" + link.Hostname + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// names says who calls, and what.
func names(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s calls %s", r.Header.Get(offer.HeaderSandbox), r.URL.Path)
}

// A confined gate takes an offer, leads calls there, and goes on to do so when it
// was killed and started again; nobody tells the program.
func TestOffers(t *testing.T) {
	w := newWatched(t, serving("x")).open()
	if err := w.one().put(t.Context(), pathRecord, nil); err != nil {
		t.Fatal(err)
	}
	w.offers(w.g, "x", names)
	want := w.sb.ID + " calls /a"
	if status, got := w.calls("/x/a"); got != want {
		t.Errorf("%d %q, want %q", status, got, want)
	}
	if _, err := w.g.OfferService(t.Context(), w.sb.ID, "x"); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("a second offer: %v", err)
	}
	if _, err := w.g.OfferService(t.Context(), w.sb.ID, "y"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another service: %v", err)
	}
	for _, r := range w.records(func(r netlog.Record) bool { return r.Protocol == netlog.Service }) {
		if r.Path != "/x/a" || r.Host != link.Hostname || r.Method != http.MethodGet {
			t.Errorf("recorded as %+v", r)
		}
	}
	first := w.pid()
	_ = syscall.Kill(first, syscall.SIGKILL)
	until(t, "an answer by the next gate", func() bool { _, got := w.calls("/x/a"); return got == want })
	if w.pid() == first {
		t.Error("the gate was not killed")
	}
}

// A program that is away is told; a service that is taken back is none.
func TestOffersEnd(t *testing.T) {
	w := newWatched(t, serving("x")).open()
	if status, got := w.calls("/x/"); status != 503 || !strings.Contains(got, offer.CodeAway) {
		t.Errorf("before it is offered: %d %s", status, got)
	}
	stop := w.offers(w.g, "x", names)
	stop()
	until(t, "the end of the offer", func() bool { status, _ := w.calls("/x/"); return status == 503 })
	w.offers(w.g, "x", names)
	w.sb.Spec.Policy = &policy.Policy{}
	if err := w.g.Set(t.Context(), w.sb); err != nil {
		t.Fatal(err)
	}
	if status, got := w.calls("/x/"); status != 404 || !strings.Contains(got, "no_such_service") {
		t.Errorf("once it is taken back: %d %s", status, got)
	}
}

// What is offered to one sandbox is not there for another, though that may call a
// service of the same name and its gate was started later.
func TestOffersAreOneSandboxs(t *testing.T) {
	a := newWatched(t, serving("x")).open()
	b := watchIn(t, t.TempDir(), serving("x"))
	b.sb.ID = "sb_another6789abcdefghij"
	b.g, b.state = a.g, a.state
	l, err := a.g.Open(t.Context(), b.sb, sandbox.LinkNetNS, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.link = l
	b.serves()
	a.offers(a.g, "x", names)
	if status, got := b.calls("/x/"); status != 503 {
		t.Errorf("the other sandbox gets %d %q", status, got)
	}
	if _, got := a.calls("/x/"); got != a.sb.ID+" calls /" {
		t.Errorf("its own sandbox gets %q", got)
	}
	if err := a.g.Close(t.Context(), b.sb.ID); err != nil {
		t.Error(err)
	}
	if err := a.g.Remove(t.Context(), b.sb.ID); err != nil {
		t.Error(err)
	}
	b.state = t.TempDir()
	b.g = b.daemon()
}

// A thousand calls one after the other, and many at once, leave the gate within its
// memory.
func TestOffersMemory(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector needs more than the gate")
	}
	w := newWatched(t, serving("x")).open()
	chunk := []byte(strings.Repeat("x", 32<<10))
	w.offers(w.g, "x", func(rw http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := rw.Write(chunk); err != nil {
				return
			}
		}
	})
	for range offer.MaxCalls {
		c, err := w.dial("tcp", link.Gate4.String()+":80")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, "GET /x/ HTTP/1.1\r\nHost: "+link.Hostname+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // it is under way, and read no further
			t.Fatal(err)
		}
	}
	if status, got := w.calls("/x/"); status != 503 || !strings.Contains(got, "too_many_calls") {
		t.Errorf("one more: %d %.200s", status, got)
	}
	kib := 0
	if _, err := fmt.Sscan(field(t, w.pid(), "VmRSS"), &kib); err != nil || kib > (gateMemory>>10)+64<<10 {
		t.Errorf("the gate has %d KiB, %v", kib, err)
	}
	t.Logf("%d calls that nobody reads: %d KiB", offer.MaxCalls, kib)
}

// The socket of a gate is its user's alone.
func TestOffersSocket(t *testing.T) {
	w := newWatched(t, serving("x")).open()
	entries, err := filepath.Glob(filepath.Join(w.dir(), "*.sock"))
	if err != nil || !slices.Contains(entries, filepath.Join(w.dir(), fileOffers)) {
		t.Fatalf("sockets %q, %v", entries, err)
	}
	err = w.inside(func() error {
		c, err := net.Dial("unix", filepath.Join(w.dir(), fileOffers))
		if err == nil {
			c.Close()
		}
		return err
	})
	if err == nil {
		t.Error("somebody else can offer")
	}
}
