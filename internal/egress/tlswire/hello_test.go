package tlswire_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/egress/tlswire"
)

// goHello returns what Go's own client sends first.
func goHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(theirs, config).Handshake()
	}()
	_, raw, err := tlswire.ReadHello(ours)
	ours.Close()
	theirs.Close()
	<-done
	if err != nil {
		t.Fatalf("ReadHello: %v", err)
	}
	return raw
}

// ext is one extension.
type ext struct {
	kind uint16
	data []byte
}

func u16(n int, rest ...[]byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(n)), bytes.Join(rest, nil)...)
}

func sized(p []byte) []byte { return u16(len(p), p) }

// nameEntry is one entry of a server_name list.
func nameEntry(kind byte, name string) []byte {
	return append([]byte{kind}, sized([]byte(name))...)
}

func sni(names ...string) ext {
	var list []byte
	for _, n := range names {
		list = append(list, nameEntry(0, n)...)
	}
	return ext{0, sized(list)}
}

// message builds a ClientHello, handshake header included.
func message(exts ...ext) []byte {
	body := u16(0x0303, make([]byte, 32), []byte{0}, sized([]byte{0x13, 0x01}), []byte{1, 0})
	if exts != nil {
		var all []byte
		for _, e := range exts {
			all = append(all, u16(int(e.kind), sized(e.data))...)
		}
		body = append(body, sized(all)...)
	}
	return append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

// records puts a message into records of at most n bytes.
func records(msg []byte, n int) []byte {
	var out []byte
	for part := range slices.Chunk(msg, n) {
		out = append(out, 22, 3, 1)
		out = append(out, sized(part)...)
	}
	return out
}

func TestReadHello(t *testing.T) {
	protocols := ext{16, sized([]byte("\x02h2\x08http/1.1"))}
	tests := []struct {
		name string
		in   []byte
		want tlswire.Hello
	}{
		{"no-extensions", message(), tlswire.Hello{Versions: []uint16{0x0303}}},
		{"name", message(sni("a.example")), tlswire.Hello{SNI: "a.example", Versions: []uint16{0x0303}}},
		{"upper-case", message(sni("A.ExAmPle")), tlswire.Hello{SNI: "a.example", Versions: []uint16{0x0303}}},
		{"underscore", message(sni("_a.b_c.example")), tlswire.Hello{SNI: "_a.b_c.example", Versions: []uint16{0x0303}}},
		{"protocols", message(protocols), tlswire.Hello{ALPN: []string{"h2", "http/1.1"}, Versions: []uint16{0x0303}}},
		{
			"versions-without-grease", message(ext{43, []byte("\x06\x5a\x5a\x03\x04\x03\x03")}),
			tlswire.Hello{Versions: []uint16{0x0304, 0x0303}},
		},
		{"ech", message(ext{0xfe0d, []byte{0}}), tlswire.Hello{ECH: true, Versions: []uint16{0x0303}}},
		{"unknown-extensions", message(ext{0x1a1a, nil}, ext{0x2a2a, []byte{0}}), tlswire.Hello{Versions: []uint16{0x0303}}},
	}
	for _, tt := range tests {
		for _, n := range []int{1 << 14, 7, 1} {
			raw := records(tt.in, n)
			more := append(slices.Clone(raw), "what follows"...)
			r := iotest.OneByteReader(bytes.NewReader(more))
			got, read, err := tlswire.ReadHello(r)
			if err != nil {
				t.Errorf("%s in records of %d: %v", tt.name, n, err)
				continue
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s in records of %d: (-want +got)\n%s", tt.name, n, diff)
			}
			if !bytes.Equal(read, raw) {
				t.Errorf("%s in records of %d: read %d bytes, want the %d of the hello", tt.name, n, len(read), len(raw))
			}
		}
	}
}

func TestReadHelloRefuses(t *testing.T) {
	long := strings.Repeat("a", 64) + ".example"
	tests := []struct {
		name string
		in   []byte
		want string
	}{
		{"no-tls", []byte("GET / HTTP/1.1\r\n\r\n"), "record of type 71"},
		{"alert-first", append([]byte{21, 3, 1, 0, 2, 1, 0}, records(message(), 99)...), "record of type 21"},
		{"record-version", []byte{22, 2, 1, 0, 1, 1}, "record of version 2.1"},
		{"empty-record", []byte{22, 3, 1, 0, 0}, "record of 0 bytes"},
		{"record-too-long", []byte{22, 3, 1, 0x40, 1, 0}, "record of 16385 bytes"},
		{"server-hello", records([]byte{2, 0, 0, 0}, 99), "handshake message of type 2"},
		{"endless", records(append([]byte{1, 1, 0, 0}, make([]byte, 1<<17)...), 1<<14), "over 65536 bytes long"},
		{"says-endless", records([]byte{1, 0xff, 0, 0}, 99), "16711680 bytes long; 65536 are read"},
		{"bytes-after", records(append(message(sni("a.example")), 1), 999), "bytes after its end"},
		{"second-message-after", records(append(message(sni("a.example")), message(sni("b.example"))...), 999), "bytes after its end"},
		{"body-cut", records([]byte{1, 0, 0, 1, 3}, 99), "cut short"},
		{"two-names", records(message(sni("a.example", "b.example")), 999), "several server names"},
		{"name-of-other-type", records(message(ext{0, sized(nameEntry(1, "a.example"))}), 999), "server name of type 1"},
		{"empty-name-list", records(message(ext{0, sized(nil)}), 999), "server name cut short"},
		{"two-name-extensions", records(message(sni("a.example"), sni("b.example")), 999), "extension 0 twice"},
		{"empty-name", records(message(sni("")), 999), "server name of 0 bytes"},
		{"nul", records(message(sni("a.example\x00.b.example")), 999), "server name with the byte 0x00"},
		{"trailing-dot", records(message(sni("a.example.")), 999), "server name with a label of 0 bytes"},
		{"leading-dot", records(message(sni(".a.example")), 999), "server name with a label of 0 bytes"},
		{"long-label", records(message(sni(long)), 999), "server name with a label of 64 bytes"},
		{"address", records(message(sni("192.0.2.1")), 999), "the server name is an address"},
		{"address-6", records(message(sni("2001:db8::1")), 999), "the server name is an address"},
		{"short-address", records(message(sni("127.1")), 999), "the server name ends in a number"},
		{"hex-address", records(message(sni("0X7F.1")), 999), "the server name ends in a number"},
		{"number", records(message(sni("2130706433")), 999), "the server name ends in a number"},
		{"hex-number", records(message(sni("0x7f000001")), 999), "the server name ends in a number"},
		{"kelvin-sign", records(message(sni("\u212a.example")), 999), "server name with the byte 0xe2"},
		{"wildcard", records(message(sni("*.example")), 999), "server name with the byte 0x2a"},
		{"port", records(message(sni("a.example:443")), 999), "server name with the byte 0x3a"},
		{"no-protocols", records(message(ext{16, sized(nil)}), 999), "protocols of the wrong length"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, raw, err := tlswire.ReadHello(bytes.NewReader(tt.in))
			he, ok := errors.AsType[*tlswire.HelloError](err)
			if !ok || he.Problem != tt.want {
				t.Errorf("ReadHello = %v, want %q", err, tt.want)
			}
			if !bytes.HasPrefix(tt.in, raw) {
				t.Error("what was read is not what there was")
			}
		})
	}
}

func TestReadHelloEndsEarly(t *testing.T) {
	whole := records(message(sni("a.example")), 20)
	for n := range whole {
		_, raw, err := tlswire.ReadHello(bytes.NewReader(whole[:n]))
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if !errors.Is(err, want) {
			t.Errorf("after %d bytes: %v, want %v", n, err, want)
		}
		if !bytes.Equal(raw, whole[:n]) {
			t.Errorf("after %d bytes: %d were returned", n, len(raw))
		}
	}
}

func TestReadHelloOfGo(t *testing.T) {
	raw := goHello(t, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2"}})
	got, _, err := tlswire.ReadHello(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	want := tlswire.Hello{SNI: "a.example", ALPN: []string{"h2"}, Versions: []uint16{tls.VersionTLS13, tls.VersionTLS12}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSniff(t *testing.T) {
	tests := []struct {
		name, in string
		want     tlswire.Kind
	}{
		{"nothing", "", tlswire.More},
		{"tls", "\x16\x03\x01\x02\x00", tlswire.TLS},
		{"tls-begun", "\x16\x03\x01", tlswire.More},
		{"tls-version", "\x16\x05\x01\x02\x00", tlswire.Other},
		{"tls-empty-record", "\x16\x03\x01\x00\x00", tlswire.Other},
		{"sslv2", "\x80\x2e\x01\x03\x01", tlswire.Other},
		{"get", "GET / HTTP/1.1\r\n", tlswire.HTTP1},
		{"get-begun", "GET ", tlswire.More},
		{"options-star", "OPTIONS * HTTP/1.1\r\n", tlswire.HTTP1},
		{"absolute", "GET http://a.example/ HTTP/1.1\r\n", tlswire.HTTP1},
		{"absolute-begun", "GET htt", tlswire.More},
		{"absolute-https-begun", "GET HTTPS:", tlswire.More},
		{"connect", "CONNECT a.example:443 HTTP/1.1\r\n", tlswire.HTTP1},
		{"propfind", "PROPFIND /", tlswire.HTTP1},
		{"pri-begun", "PR", tlswire.More},
		{"preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", tlswire.HTTP2},
		{"preface-begun", "PRI * HTTP/2.0\r\n\r\n", tlswire.More},
		{"ssh", "SSH-2.0-OpenSSH_9.9\r\n", tlswire.SSH},
		{"ssh-begun", "SS", tlswire.More},
		{"smtp", "EHLO mail.example\r\n", tlswire.Other},
		{"irc", "NICK someone\r\n", tlswire.Other},
		{"empty-line-first", "\r\nGET / HTTP/1.1\r\n", tlswire.Other},
		{"two-spaces", "GET  / HTTP/1.1\r\n", tlswire.Other},
		{"long-method", strings.Repeat("A", 25), tlswire.Other},
		{"binary", "\x00\x01\x02", tlswire.Other},
	}
	for _, tt := range tests {
		if got := tlswire.Sniff([]byte(tt.in)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A longer look never takes back what a shorter one said, and MaxSniff bytes
// always do.
func FuzzSniff(f *testing.F) {
	for _, s := range []string{"GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "SSH-2.0-x", "CONNECT a:1 HTTP/1.1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		said := tlswire.More
		for n := range len(in) + 1 {
			got := tlswire.Sniff(in[:n])
			if said != tlswire.More && got != said {
				t.Fatalf("%q is %s, and was %s", in[:n], got, said)
			}
			said = got
		}
		if len(in) >= tlswire.MaxSniff && said == tlswire.More {
			t.Fatalf("%q: still asks for more", in)
		}
	})
}

// Whatever ReadHello takes, it takes again from what it returned, and the name
// is one that a certificate can be made for.
func FuzzReadHello(f *testing.F) {
	f.Add(records(message(), 99))
	f.Add(records(message(sni("a.example"), ext{0xfe0d, []byte{0}}), 7))
	f.Add(records(message(sni("a.example", "b.example")), 999))
	f.Add(goHello(f, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2", "http/1.1"}}))
	f.Fuzz(func(t *testing.T, in []byte) {
		h, raw, err := tlswire.ReadHello(bytes.NewReader(in))
		if !bytes.HasPrefix(in, raw) || len(raw) > tlswire.MaxHello {
			t.Fatalf("returned %d bytes that were not read", len(raw))
		}
		if err != nil {
			return
		}
		if tlswire.Sniff(raw) != tlswire.TLS {
			t.Error("Sniff does not think so")
		}
		again, _, err := tlswire.ReadHello(bytes.NewReader(raw))
		if diff := cmp.Diff(h, again); err != nil || diff != "" {
			t.Errorf("again: %v\n%s", err, diff)
		}
		if strings.ToLower(h.SNI) != h.SNI || strings.HasSuffix(h.SNI, ".") {
			t.Errorf("SNI %q", h.SNI)
		}
	})
}

func BenchmarkReadHello(b *testing.B) {
	raw := goHello(b, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2", "http/1.1"}})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := tlswire.ReadHello(bytes.NewReader(raw)); err != nil {
			b.Fatal(err)
		}
	}
}
