package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// opaque hides that a connection is a kernel's socket, as netstack's are none.
type opaque struct{ *net.TCPConn }

func (o opaque) asConn() net.Conn { return o }

// tcpPair returns both ends of a connection over loopback.
func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// chain is a relay between two connections: guest and server are their far
// ends.
type chain struct {
	guest, server *net.TCPConn
	result        chan relay.Result
}

func newChain(t testing.TB, ctx context.Context, hide bool, o relay.Options) chain {
	t.Helper()
	guest, gate := tcpPair(t)
	upstream, server := tcpPair(t)
	c := chain{guest: guest, server: server, result: make(chan relay.Result, 1)}
	near, far := net.Conn(gate), net.Conn(upstream)
	if hide {
		near = opaque{gate}.asConn()
	}
	go func() { c.result <- relay.TCP(ctx, near, far, o) }()
	return c
}

// await returns what a relay ends with, which is to be soon.
func await(t *testing.T, result chan relay.Result) relay.Result {
	t.Helper()
	select {
	case r := <-result:
		return r
	case <-time.After(patience.For(10 * time.Second)):
		t.Fatal("the relay goes on")
		return relay.Result{}
	}
}

func TestTCPBothWays(t *testing.T) {
	for _, hide := range []bool{false, true} {
		c := newChain(t, t.Context(), hide, relay.Options{Head: []byte("first, ")})
		up := make([]byte, 3<<20+17)
		down := make([]byte, 5<<20+1)
		fill(up, 1)
		fill(down, 2)

		var wg sync.WaitGroup
		wg.Go(func() { _, _ = c.guest.Write(up); c.guest.CloseWrite() })
		wg.Go(func() { _, _ = c.server.Write(down); c.server.CloseWrite() })
		var gotUp, gotDown []byte
		wg.Go(func() { gotUp, _ = io.ReadAll(c.server) })
		wg.Go(func() { gotDown, _ = io.ReadAll(c.guest) })
		wg.Wait()

		if !bytes.Equal(gotUp, append([]byte("first, "), up...)) || !bytes.Equal(gotDown, down) {
			t.Errorf("hidden %t: what arrived is not what was sent", hide)
		}
		want := relay.Result{Sent: int64(len(up)) + 7, Received: int64(len(down)), End: relay.EndClosed}
		if got := <-c.result; got != want {
			t.Errorf("hidden %t: %+v, want %+v", hide, got, want)
		}
	}
}

func fill(p []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
}

// One side has said all, and the other goes on for long.
func TestTCPHalfClose(t *testing.T) {
	for _, hide := range []bool{false, true} {
		c := newChain(t, t.Context(), hide, relay.Options{})
		if _, err := c.guest.Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		c.guest.CloseWrite()
		got, err := io.ReadAll(c.server)
		if err != nil || string(got) != "question" {
			t.Fatalf("server read %q, %v", got, err)
		}
		for range 3 {
			if _, err := c.server.Write([]byte("answer")); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 6)
			if _, err := io.ReadFull(c.guest, buf); err != nil || string(buf) != "answer" {
				t.Fatalf("guest read %q, %v", buf, err)
			}
		}
		c.server.Close()
		if got := <-c.result; got.End != relay.EndClosed {
			t.Errorf("%+v", got)
		}
	}
}

// A reset is passed on as a reset, not as an end.
func TestTCPReset(t *testing.T) {
	c := newChain(t, t.Context(), true, relay.Options{})
	if _, err := c.server.Write([]byte("part")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	if _, err := io.ReadFull(c.guest, buf); err != nil {
		t.Fatal(err)
	}
	_ = c.server.SetLinger(0)
	c.server.Close()
	if got := <-c.result; got.End != relay.EndBroken || got.Err == nil || got.Received != 4 {
		t.Errorf("%+v", got)
	}
	if _, err := c.guest.Read(buf); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the guest read %v, want a reset", err)
	}
}

// wrapped is a connection below another.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

// resettable is one that has a word for a reset.
type resettable struct {
	net.Conn
	done chan struct{}
}

func (r resettable) Reset() { close(r.done) }

func TestTCPResetsWhatIsWrapped(t *testing.T) {
	guest, gate := tcpPair(t)
	upstream, server := net.Pipe()
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	result := make(chan relay.Result, 1)
	go func() {
		result <- relay.TCP(ctx, wrapped{wrapped{gate}}, wrapped{resettable{upstream, done}}, relay.Options{})
	}()
	cancel()
	await(t, result)
	if _, err := guest.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the guest read %v, want a reset", err)
	}
	select {
	case <-done:
	default:
		t.Error("upstream was not reset")
	}
}

// A slow reader holds the writer back, and gets everything.
func TestTCPBackPressure(t *testing.T) {
	count := new(relay.Count)
	c := newChain(t, t.Context(), true, relay.Options{Count: count})
	const total = 64 << 20
	wrote := make(chan error, 1)
	go func() {
		_, err := c.server.Write(make([]byte, total))
		c.server.Close()
		wrote <- err
	}()
	buf := make([]byte, 1<<20)
	if _, err := io.ReadFull(c.guest, buf); err != nil {
		t.Fatal(err)
	}
	if got := count.Received.Load(); got > total/2 {
		t.Errorf("%d bytes were taken from upstream while the guest read %d", got, len(buf))
	}
	rest, err := io.Copy(io.Discard, c.guest)
	if err != nil || rest != total-int64(len(buf)) {
		t.Errorf("read %d more, %v", rest, err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	c.guest.Close()
	<-c.result
}

// pipes is a relay between two pipes, which synctest can watch.
func pipes(ctx context.Context, o relay.Options) (guest, server net.Conn, result chan relay.Result) {
	guest, gate := net.Pipe()
	upstream, server := net.Pipe()
	result = make(chan relay.Result, 1)
	go func() { result <- relay.TCP(ctx, gate, upstream, o) }()
	return guest, server, result
}

func TestTCPIdle(t *testing.T) {
	tests := []struct {
		name   string
		idle   time.Duration
		pauses []time.Duration // between what is said
		last   time.Duration   // from what was said last to the end
	}{
		{"never-a-word", 10 * time.Second, nil, 10 * time.Second},
		{"words-in-between", 10 * time.Second, []time.Duration{9 * time.Second, 9 * time.Second, time.Second}, 10 * time.Second},
		{"default", 0, []time.Duration{time.Minute}, relay.DefaultIdle},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				guest, server, result := pipes(t.Context(), relay.Options{Idle: tt.idle})
				defer guest.Close()
				defer server.Close()
				go func() { _, _ = io.Copy(io.Discard, guest) }()
				for _, pause := range tt.pauses {
					time.Sleep(pause)
					if _, err := server.Write([]byte("word")); err != nil {
						t.Fatal(err)
					}
				}
				at := time.Now()
				if got := <-result; got.End != relay.EndIdle || time.Since(at) != tt.last {
					t.Errorf("%+v after %s, want idle after %s", got, time.Since(at), tt.last)
				}
			})
		})
	}
}

func TestTCPWithoutIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guest, server, result := pipes(t.Context(), relay.Options{Idle: -1})
		time.Sleep(1000 * time.Hour)
		go func() { _, _ = guest.Write([]byte("still here")) }()
		buf := make([]byte, 10)
		if _, err := io.ReadFull(server, buf); err != nil {
			t.Error(err)
		}
		guest.Close()
		<-result
	})
}

// A large buffer is given back when nothing comes any more, and nothing is
// lost by that.
func TestTCPAfterRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guest, server, result := pipes(t.Context(), relay.Options{})
		big := make([]byte, 200<<10)
		for i := range 3 {
			fill(big, uint64(i))
			go func() { _, _ = server.Write(big) }()
			got := make([]byte, len(big))
			if _, err := io.ReadFull(guest, got); err != nil || !bytes.Equal(got, big) {
				t.Fatalf("round %d: %v", i, err)
			}
			synctest.Wait()
			if n := relay.LargeInUse(); n != 1 {
				t.Errorf("round %d: %d large buffers while much is passing", i, n)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if n := relay.LargeInUse(); n != 0 {
				t.Errorf("round %d: %d large buffers while nothing is passing", i, n)
			}
		}
		guest.Close()
		if got := <-result; got.Received != int64(3*len(big)) {
			t.Errorf("%+v", got)
		}
	})
}

func TestTCPCut(t *testing.T) {
	why := errors.New("the policy changed")
	ctx, cancel := context.WithCancelCause(t.Context())
	c := newChain(t, ctx, true, relay.Options{})
	if _, err := c.guest.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c.server, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cancel(why)
	if got := <-c.result; got.End != relay.EndCut || !errors.Is(got.Err, why) || got.Sent != 1 {
		t.Errorf("%+v", got)
	}
	for _, side := range []net.Conn{c.guest, c.server} {
		if _, err := side.Read(make([]byte, 1)); err == nil {
			t.Error("a cut connection gave something to read")
		}
	}
}

func TestTCPLimits(t *testing.T) {
	tests := []struct {
		name           string
		limits         policy.Limits
		up, down       int
		want           relay.End
		sent, received int64
	}{
		{"none", policy.Limits{}, 5000, 9000, relay.EndClosed, 5000, 9000},
		{"sent-reached", policy.Limits{RequestBytes: 5000}, 5000, 0, relay.EndClosed, 5000, 0},
		{"sent-over", policy.Limits{RequestBytes: 4999}, 5000, 0, relay.EndLimit, 4999, 0},
		{"received-reached", policy.Limits{ResponseBytes: 9000}, 0, 9000, relay.EndClosed, 0, 9000},
		{"received-over", policy.Limits{ResponseBytes: 8999}, 0, 9000, relay.EndLimit, 0, 8999},
		{"one", policy.Limits{ResponseBytes: 1}, 0, 2, relay.EndLimit, 0, 1},
		{"in-all-reached", policy.Limits{Bytes: 9000}, 0, 9000, relay.EndClosed, 0, 9000},
		{"in-all-over", policy.Limits{Bytes: 8999}, 0, 9000, relay.EndLimit, 0, 8999},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			account := relay.NewMeter(nil).Rule("r", tt.limits)
			c := newChain(t, t.Context(), true, relay.Options{Limits: tt.limits, Account: account})
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = c.guest.Write(make([]byte, tt.up)); c.guest.CloseWrite() })
			wg.Go(func() { _, _ = c.server.Write(make([]byte, tt.down)); c.server.CloseWrite() })
			wg.Go(func() { _, _ = io.Copy(io.Discard, c.guest) })
			wg.Go(func() { _, _ = io.Copy(io.Discard, c.server) })
			got := <-c.result
			wg.Wait()
			if got.End != tt.want || got.Sent != tt.sent || got.Received != tt.received {
				t.Errorf("%+v, want %s with %d and %d", got, tt.want, tt.sent, tt.received)
			}
		})
	}
}

// Two relays of one rule share what is left of it.
func TestTCPSharedAccount(t *testing.T) {
	account := relay.NewMeter(nil).Rule("r", policy.Limits{Bytes: 100})
	one := newChain(t, t.Context(), false, relay.Options{Account: account})
	two := newChain(t, t.Context(), false, relay.Options{Account: account})
	if _, err := one.guest.Write(make([]byte, 60)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(one.server, make([]byte, 60)); err != nil {
		t.Fatal(err)
	}
	if _, err := two.server.Write(make([]byte, 60)); err != nil {
		t.Fatal(err)
	}
	if got := await(t, two.result); got.End != relay.EndLimit || got.Received != 40 {
		t.Errorf("the second: %+v, want 40 received", got)
	}
	one.guest.Close()
	one.server.Close()
	if got := await(t, one.result); got.Sent != 60 {
		t.Errorf("the first: %+v", got)
	}
	if account.Used() != 100 {
		t.Errorf("used %d", account.Used())
	}
}

func TestTCPWatch(t *testing.T) {
	no := errors.New("no")
	var (
		mu   sync.Mutex
		seen []string
	)
	watch := func(sent bool, p []byte) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, string(p))
		if sent && bytes.Contains(p, []byte("evil")) {
			return no
		}
		return nil
	}
	c := newChain(t, t.Context(), false, relay.Options{Watch: watch, Head: []byte("good")})
	buf := make([]byte, 4)
	if _, err := io.ReadFull(c.server, buf); err != nil {
		t.Fatal(err)
	}
	if _, err := c.server.Write([]byte("evil")); err != nil { // it may say so
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c.guest, buf); err != nil {
		t.Fatal(err)
	}
	if _, err := c.guest.Write([]byte("evil")); err != nil {
		t.Fatal(err)
	}
	if got := <-c.result; got.End != relay.EndWatch || !errors.Is(got.Err, no) || got.Sent != 4 {
		t.Errorf("%+v after %q", got, seen)
	}
	if n, _ := c.server.Read(buf); n != 0 {
		t.Errorf("the server got %q", buf[:n])
	}
}

func BenchmarkTCP(b *testing.B) {
	for _, hide := range []bool{false, true} {
		name := map[bool]string{false: "kernel", true: "other"}[hide]
		b.Run(name+"/bulk", func(b *testing.B) {
			c := newChain(b, b.Context(), hide, relay.Options{})
			go func() { _, _ = io.Copy(io.Discard, c.guest) }()
			p := make([]byte, 1<<20)
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				if _, err := c.server.Write(p); err != nil {
					b.Fatal(err)
				}
			}
			c.server.Close()
			c.guest.Close()
			<-c.result
		})
		b.Run(name+"/round-trip", func(b *testing.B) {
			c := newChain(b, b.Context(), hide, relay.Options{})
			go func() { _, _ = io.Copy(c.server, c.server); c.server.Close() }()
			p := make([]byte, 100)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.guest.Write(p); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c.guest, p); err != nil {
					b.Fatal(err)
				}
			}
			c.guest.Close()
			<-c.result
		})
	}
}
