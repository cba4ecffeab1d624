package offer_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/offer"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// A program that dialled the gate is called by it.
func TestCall(t *testing.T) {
	w := newWorld(t, "docs", "git")
	w.serve("docs", says("docs"))
	w.serve("git", says("git"))
	for _, name := range []string{"docs", "git", "docs"} {
		if got, err := w.get(name, "/a%2Fb//c/..?q=1"); got != name+" /a%2Fb//c/..?q=1" || err != nil {
			t.Errorf("%s answers %q, %v", name, got, err)
		}
	}
	if got := w.desk.Standing(); !slices.Equal(got, []string{"docs", "git"}) {
		t.Errorf("standing: %q", got)
	}
}

// Both ways stream at once, and trailers come after.
func TestCallStreams(t *testing.T) {
	w := newWorld(t, "echo")
	w.serve("echo", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Trailer", "Sum")
		rw.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(rw).Flush()
		buf := make([]byte, 64)
		total := 0
		for {
			n, err := r.Body.Read(buf)
			total += n
			_, _ = rw.Write(buf[:n])
			_ = http.NewResponseController(rw).Flush()
			if err != nil {
				break
			}
		}
		rw.Header().Set("Sum", strings.Repeat("x", total))
	}))
	in, out := io.Pipe()
	resp, done, err := w.call(t.Context(), "echo", http.MethodPost, "/", in)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	defer resp.Body.Close()
	for _, word := range []string{"one", "two"} {
		if _, err := io.WriteString(out, word); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != word {
			t.Fatalf("sent %q, got %q, %v", word, got, err)
		}
	}
	out.Close()
	if _, err := io.ReadAll(resp.Body); err != nil || resp.Trailer.Get("Sum") != "xxxxxx" {
		t.Errorf("trailer %v, %v", resp.Trailer, err)
	}
}

// What a gate does not take is said in words that a program can act on.
func TestRefused(t *testing.T) {
	w := newWorld(t, "docs")
	if _, err := w.offered("docs"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"docs": offer.CodeTaken, "other": offer.CodeUnknown, "": offer.CodeUnknown, "../docs": offer.CodeUnknown} {
		_, err := w.offered(name)
		if no, ok := errors.AsType[*offer.RefusedError](err); !ok || no.Code != want {
			t.Errorf("offering %q: %v, want %s", name, err, want)
		}
	}
	for _, line := range []string{
		"\n", "{}{}\n", `{"service":"docs","sandbox":"of-another"}` + "\n", `["docs"]` + "\n", "PRI * HTTP/2.0\r\n", strings.Repeat("x", 2000) + "\n",
	} {
		c := w.dial()
		if _, err := io.WriteString(c, line); err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c); !strings.Contains(string(got), "offer_") {
			t.Errorf("%.20q is answered with %q", line, got)
		}
	}
	// Connections that say nothing keep nobody else out for longer than their time.
	// Those that were refused above may count for a moment yet, in the place of one of these.
	w.until("a connection that is too many", func() bool {
		for range 16 {
			w.dial()
		}
		c := w.dial()
		_ = c.SetReadDeadline(time.Now().Add(patience.For(time.Second)))
		b, _ := io.ReadAll(c)
		return strings.Contains(string(b), "offers_at_once")
	})
}

// An offer ends with its connection, whoever ended it, and can be made anew.
func TestOfferEnds(t *testing.T) {
	w := newWorld(t, "docs")
	c, err := w.offered("docs")
	if err != nil {
		t.Fatal(err)
	}
	w.until("an offer", func() bool { return len(w.desk.Standing()) == 1 })
	c.Close()
	w.until("its end", func() bool { return len(w.desk.Standing()) == 0 })
	if _, _, err := w.desk.Call("docs"); !errors.Is(err, offer.ErrAway) {
		t.Errorf("calling nobody: %v", err)
	}
	stop, _ := w.serve("docs", says("docs"))
	stop()
	w.until("its end", func() bool { return len(w.desk.Standing()) == 0 })
	w.serve("docs", says("again"))
	if got, err := w.get("docs", "/"); got != "again /" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	w.desk.Set(nil)
	if _, err := w.get("docs", "/"); !errors.Is(err, offer.ErrAway) {
		t.Errorf("a service that was taken back: %v", err)
	}
	if _, err := w.offered("docs"); err == nil {
		t.Error("a service that was taken back is offered")
	}
}

// A connection that breaks is made again, by itself.
func TestServeAgain(t *testing.T) {
	w := newWorld(t, "docs")
	_, conns := w.serve("docs", says("docs"))
	for range 3 {
		(<-conns).Close()
		w.until("an answer", func() bool { got, err := w.get("docs", "/"); return got == "docs /" && err == nil })
	}
}

// A call that is under way when its offer ends is answered.
func TestServeEndsInOrder(t *testing.T) {
	w := newWorld(t, "docs")
	entered, leave := make(chan struct{}), make(chan struct{})
	stop, _ := w.serve("docs", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		_, _ = io.WriteString(rw, "whole")
	}))
	got := make(chan string, 1)
	go func() {
		text, err := w.get("docs", "/")
		if err != nil {
			text = err.Error()
		}
		got <- text
	}()
	<-entered
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	w.until("the offer's end", func() bool { return len(w.desk.Standing()) == 0 })
	close(leave)
	if text := <-got; text != "whole" {
		t.Errorf("the call under way got %q", text)
	}
	<-ended
}

// Calls that nobody reads hold none up, up to the most that there may be, which
// is told.
func TestCallsAtOnce(t *testing.T) {
	w := newWorld(t, "docs")
	w.serve("docs", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			endless(rw, r)
			return
		}
		_, _ = io.WriteString(rw, "short")
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []func()
	for range offer.MaxCalls - 1 {
		resp, done, err := w.call(ctx, "docs", http.MethodGet, "/endless", nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, func() { resp.Body.Close(); done() })
	}
	if got, err := w.get("docs", "/"); got != "short" || err != nil {
		t.Errorf("beside %d calls that stand still: %q, %v", len(all), got, err)
	}
	resp, done, err := w.call(ctx, "docs", http.MethodGet, "/endless", nil)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, func() { resp.Body.Close(); done() })
	if _, _, err := w.desk.Call("docs"); !errors.Is(err, offer.ErrMany) {
		t.Errorf("one more: %v", err)
	}
	for _, end := range all {
		end()
	}
	if got, err := w.get("docs", "/"); got != "short" || err != nil {
		t.Errorf("after them: %q, %v", got, err)
	}
}

// A service that has as many calls as it takes is not replaced for that.
func TestBusyIsNotReplaced(t *testing.T) {
	w := newWorld(t, "docs")
	c, err := w.offered("docs")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1},
		Handler: http.HandlerFunc(endless),
	}
	s.Protocols.SetUnencryptedHTTP2(true)
	l := &one{conns: make(chan net.Conn, 1)}
	l.conns <- c
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	w.until("an offer", func() bool { return len(w.desk.Standing()) == 1 })
	resp, done, err := w.call(t.Context(), "docs", http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	defer resp.Body.Close()
	w.until("a busy service", func() bool { return len(w.desk.Standing()) == 0 })
	if _, err := w.offered("docs"); err == nil {
		t.Error("a service that is busy was replaced")
	}
}

// one is a listener of given connections.
type one struct {
	net.Listener
	conns chan net.Conn
}

func (l *one) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *one) Close() error   { close(l.conns); return nil }
func (l *one) Addr() net.Addr { return &net.UnixAddr{} }

// A caller who leaves ends the call at the other end, and a service that breaks
// off is no good end of an answer.
func TestCallCancelled(t *testing.T) {
	w := newWorld(t, "docs")
	left := make(chan struct{}, 1)
	w.serve("docs", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "begun")
		_ = http.NewResponseController(rw).Flush()
		if r.URL.Path == "/break" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	ctx, cancel := context.WithCancel(t.Context())
	resp, done, err := w.call(ctx, "docs", http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	defer resp.Body.Close()
	cancel()
	<-left
	if got, err := w.get("docs", "/break"); err == nil {
		t.Errorf("an answer that broke off is %q, whole", got)
	}
}

// What a service says is bounded, whoever wrote it.
func TestHostileService(t *testing.T) {
	w := newWorld(t, "docs")
	w.serve("docs", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Large", strings.Repeat("x", 512<<10))
	}))
	if _, err := w.get("docs", "/"); err == nil {
		t.Error("a head of 512 KiB is taken")
	}
	w.desk.Set([]string{"docs", "junk"})
	c, err := w.offered("junk")
	if err != nil {
		t.Fatal(err)
	}
	go func(c net.Conn) { _, _ = io.Copy(c, strings.NewReader(strings.Repeat("no HTTP/2 at all", 1000))) }(c)
	w.until("the end of what is no HTTP/2", func() bool { return !slices.Contains(w.desk.Standing(), "junk") })
}

// FuzzGreeting: whatever is said first, it is refused or one of the names.
func FuzzGreeting(f *testing.F) {
	for _, s := range []string{`{"service":"docs"}`, `{"service":"docs"`, "{}", "", `{"service":1}`, `{"service":"docs","x":1}`} {
		f.Add([]byte(s))
	}
	w := newWorld(f, "docs")
	f.Fuzz(func(t *testing.T, line []byte) {
		c, err := net.Dial("unix", w.path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write(append(line, '\n'))
		var head [1]byte
		if _, err := io.ReadFull(c, head[:]); err != nil || head[0] != '{' {
			t.Errorf("%q: answered with %q, %v", line, head, err)
		}
		for _, name := range w.desk.Standing() {
			if name != "docs" {
				t.Errorf("%q: %s stands", line, name)
			}
		}
	})
}
