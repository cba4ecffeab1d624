package tlswire_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/egress/tlswire"
)

// helloRetry is a HelloRetryRequest as far as it matters, in records of n
// bytes.
func helloRetry(n int) []byte {
	random := sha256.Sum256([]byte("HelloRetryRequest"))
	body := slices.Concat([]byte{3, 3}, random[:], make([]byte, 8))
	return records(append([]byte{2, 0, 0, byte(len(body))}, body...), n)
}

func TestRetry(t *testing.T) {
	var (
		first  = records(message(sni("a.example")), 999)
		same   = message(sni("A.example"), ext{51, []byte{1}})
		other  = message(sni("b.example"))
		none   = message()
		hidden = message(sni("a.example"), ext{0xfe0d, []byte{0}})
		cipher = []byte{20, 3, 3, 0, 1, 1}
		early  = []byte{23, 3, 3, 0, 3, 1, 2, 3}
		answer = records(append([]byte{2, 0, 0, 70, 3, 3}, make([]byte, 68)...), 999)
		alert  = []byte{21, 3, 3, 0, 2, 2, 40}
	)
	type piece struct {
		sent bool
		p    []byte
	}
	tests := []struct {
		name   string
		pieces []piece
		want   string
	}{
		{"no-retry", []piece{{true, first}, {false, answer}, {true, early}}, ""},
		{"retry", []piece{{true, first}, {false, helloRetry(999)}, {true, cipher}, {true, records(same, 999)}}, ""},
		{"retry-in-small-records", []piece{{true, first}, {false, helloRetry(7)}, {true, records(same, 3)}}, ""},
		{"early-data", []piece{{true, first}, {true, cipher}, {true, early}, {false, answer}}, ""},
		{"alert", []piece{{true, first}, {false, alert}, {true, alert}}, ""},
		{"older-tls-has-messages", []piece{{true, first}, {false, answer}, {true, records([]byte{16, 0, 0, 1, 0}, 99)}, {true, cipher}, {true, records([]byte{1, 2, 3, 4}, 99)}}, ""},
		{"other-name", []piece{{true, first}, {false, helloRetry(999)}, {true, records(other, 999)}}, "another server name"},
		{"other-name-after-cipher", []piece{{true, first}, {false, helloRetry(999)}, {true, cipher}, {true, records(other, 999)}}, "another server name"},
		{"other-name-in-small-records", []piece{{true, first}, {false, helloRetry(1)}, {true, records(other, 1)}}, "another server name"},
		{"no-name", []piece{{true, first}, {false, helloRetry(999)}, {true, records(none, 999)}}, "another server name"},
		{"hidden-name", []piece{{true, first}, {false, helloRetry(999)}, {true, records(hidden, 999)}}, "encrypted"},
		{"before-it-is-asked-for", []piece{{true, first}, {true, records(other, 999)}}, "before the server's answer"},
		{"no-hello", []piece{{true, first}, {false, helloRetry(999)}, {true, records([]byte{16, 0, 0, 1, 0}, 99)}}, "type 16"},
	}
	for _, tt := range tests {
		for _, n := range []int{999, 1} {
			hello, raw, err := tlswire.ReadHello(bytes.NewReader(first))
			if err != nil {
				t.Fatal(err)
			}
			r := tlswire.NewRetry(hello, raw)
			err = nil
			for _, piece := range tt.pieces {
				for part := range slices.Chunk(piece.p, n) {
					if err == nil {
						err = r.Watch(piece.sent, part)
					}
				}
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s, in pieces of %d: %v, want %q", tt.name, n, err, tt.want)
			}
		}
	}
}

// watched is a connection whose bytes a Retry sees.
type watched struct {
	net.Conn
	r     *tlswire.Retry
	asked bool // the server wrote a HelloRetryRequest
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err := w.r.Watch(true, p[:n]); err != nil {
		return 0, err
	}
	return n, err
}

func (w *watched) Write(p []byte) (int, error) {
	random := sha256.Sum256([]byte("HelloRetryRequest"))
	w.asked = w.asked || bytes.Contains(p, random[:])
	if err := w.r.Watch(false, p); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}

// loopback returns both ends of a connection that holds what is in flight.
func loopback(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// Go's own client and server, with and without a second hello, notice nothing.
func TestRetryOfGo(t *testing.T) {
	a := newAuthority(t, nil)
	cert, err := a.Certificate("a.example")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		curve   tls.CurveID
		version uint16
		asked   bool
	}{
		{"no-retry", tls.X25519, tls.VersionTLS13, false},
		{"retry", tls.CurveP384, tls.VersionTLS13, true},
		{"older", tls.CurveP384, tls.VersionTLS12, false},
	}
	for _, tt := range tests {
		ours, theirs := loopback(t)
		result := make(chan error, 1)
		var asked bool
		go func() {
			defer theirs.Close()
			hello, raw, err := tlswire.ReadHello(theirs)
			if err != nil {
				result <- err
				return
			}
			w := &watched{Conn: theirs, r: tlswire.NewRetry(hello, nil)}
			c := tls.Server(tlswire.Replay(w, raw), &tls.Config{
				Certificates: []tls.Certificate{*cert}, CurvePreferences: []tls.CurveID{tt.curve}, MaxVersion: tt.version,
			})
			_, err = io.Copy(c, io.LimitReader(c, 100_000))
			asked = w.asked
			c.Close()
			result <- err
		}()
		c := tls.Client(ours, &tls.Config{ServerName: "a.example", RootCAs: pool(t, a)})
		want := bytes.Repeat([]byte("0123456789"), 10_000)
		go func() { _, _ = c.Write(want) }()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes came back, %v", tt.name, len(got), err)
		}
		if err := <-result; err != nil || asked != tt.asked {
			t.Errorf("%s: %v, asked for a second hello: %t", tt.name, err, asked)
		}
	}
}

// However the bytes are cut into pieces, the answer is the same.
func FuzzRetry(f *testing.F) {
	first := records(message(sni("a.example")), 999)
	f.Add(helloRetry(999), records(message(sni("b.example")), 99), uint8(3))
	f.Add(helloRetry(9), records(message(sni("a.example")), 9), uint8(1))
	f.Fuzz(func(t *testing.T, server, client []byte, n uint8) {
		hello, raw, err := tlswire.ReadHello(bytes.NewReader(first))
		if err != nil {
			t.Fatal(err)
		}
		run := func(n int) error {
			r := tlswire.NewRetry(hello, raw)
			for _, piece := range []struct {
				sent bool
				p    []byte
			}{{true, first}, {false, server}, {true, client}} {
				for part := range slices.Chunk(piece.p, n) {
					if err := r.Watch(piece.sent, part); err != nil {
						return err
					}
				}
			}
			return nil
		}
		whole, parts := run(1<<20), run(int(n)+1)
		if (whole == nil) != (parts == nil) {
			t.Errorf("whole: %v, in pieces of %d: %v", whole, int(n)+1, parts)
		}
	})
}
