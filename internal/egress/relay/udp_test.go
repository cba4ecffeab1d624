package relay_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// hiddenUDP hides that a socket is the kernel's.
type hiddenUDP struct{ *net.UDPConn }

// udpPair returns two sockets that are connected to each other.
func udpPair(t testing.TB) (a, b *net.UDPConn) {
	t.Helper()
	first, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	b, err = net.DialUDP("udp", nil, first.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	at := first.LocalAddr().(*net.UDPAddr)
	first.Close()
	a, err = net.DialUDP("udp", at, b.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func startUDP(t testing.TB, ctx context.Context, o relay.Options) (guest, server *net.UDPConn, result chan relay.Result) {
	t.Helper()
	guest, gate := udpPair(t)
	upstream, server := udpPair(t)
	result = make(chan relay.Result, 1)
	dial := func(context.Context) (net.Conn, error) { return upstream, nil }
	go func() { result <- relay.UDP(ctx, hiddenUDP{gate}, dial, o) }()
	return guest, server, result
}

// say writes a datagram and expects it on the other side, whole.
func say(t testing.TB, from, to net.Conn, p []byte) {
	t.Helper()
	if _, err := from.Write(p); err != nil {
		t.Fatal(err)
	}
	_ = to.SetReadDeadline(time.Now().Add(patience.For(10 * time.Second)))
	got := make([]byte, 64<<10)
	n, err := to.Read(got)
	if err != nil || !bytes.Equal(got[:n], p) {
		t.Fatalf("of %d bytes %d arrived, %v", len(p), n, err)
	}
}

func TestUDPBothWays(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	guest, server, result := startUDP(t, ctx, relay.Options{})
	for _, n := range []int{1, 1500, 0, 2048, 60_000} {
		p := make([]byte, n)
		fill(p, uint64(n))
		say(t, guest, server, p)
		say(t, server, guest, p)
	}
	cancel()
	want := int64(1 + 1500 + 2048 + 60_000)
	if got := <-result; got.End != relay.EndCut || got.Sent != want || got.Received != want || got.Dropped != 0 {
		t.Errorf("%+v, want %d each way", got, want)
	}
}

func TestUDPLimits(t *testing.T) {
	tests := []struct {
		name   string
		limits policy.Limits
	}{
		{"sent", policy.Limits{RequestBytes: 150}},
		{"in-all", policy.Limits{Bytes: 150}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			account := relay.NewMeter(nil).Rule("r", tt.limits)
			guest, server, result := startUDP(t, t.Context(), relay.Options{Limits: tt.limits, Account: account})
			say(t, guest, server, make([]byte, 100))
			if _, err := guest.Write(make([]byte, 51)); err != nil {
				t.Fatal(err)
			}
			if got := await(t, result); got.End != relay.EndLimit || got.Sent != 100 {
				t.Errorf("%+v, want a limit after 100", got)
			}
		})
	}
}

func TestUDPRefusedUpstream(t *testing.T) {
	guest, server, result := startUDP(t, t.Context(), relay.Options{})
	server.Close()
	if _, err := guest.Write([]byte("anybody?")); err != nil {
		t.Fatal(err)
	}
	if got := <-result; got.End != relay.EndBroken || !errors.Is(got.Err, syscall.ECONNREFUSED) {
		t.Errorf("%+v, want a refused connection", got)
	}
}

func TestUDPDialFails(t *testing.T) {
	no := errors.New("no route")
	guest, gate := net.Pipe()
	got := relay.UDP(t.Context(), gate, func(context.Context) (net.Conn, error) { return nil, no }, relay.Options{})
	if got.End != relay.EndRefused || !errors.Is(got.Err, no) {
		t.Errorf("%+v", got)
	}
	if _, err := guest.Read(make([]byte, 1)); err == nil {
		t.Error("the guest's flow is open still")
	}
}

func TestUDPIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guest, gate := net.Pipe()
		upstream, server := net.Pipe()
		result := make(chan relay.Result, 1)
		go func() {
			result <- relay.UDP(t.Context(), gate, func(context.Context) (net.Conn, error) { return upstream, nil }, relay.Options{})
		}()
		for range 3 {
			time.Sleep(59 * time.Second)
			say(t, guest, server, []byte("there"))
		}
		at := time.Now()
		if got := <-result; got.End != relay.EndIdle || time.Since(at) != time.Minute {
			t.Errorf("%+v after %s", got, time.Since(at))
		}
	})
}

func BenchmarkUDP(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	guest, server, result := startUDP(b, ctx, relay.Options{})
	p := make([]byte, 1200)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := guest.Write(p); err != nil {
			b.Fatal(err)
		}
		if _, err := server.Read(p); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	<-result
}
