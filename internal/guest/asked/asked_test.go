package asked_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/asked"
)

var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func serve(t testing.TB) (*asked.Resolver, string) {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := asked.Serve(conn, func() time.Time { return moment })
	t.Cleanup(func() { r.Close() })
	return r, conn.LocalAddr().String()
}

// Go's own resolver takes the answer for what it says: there is no such name, and it
// is no passing trouble.
func TestNoSuchName(t *testing.T) {
	r, at := serve(t)
	lookup := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", at)
	}}
	for range 2 {
		_, err := lookup.LookupIP(t.Context(), "ip4", "Registry.Example.")
		if e, ok := errors.AsType[*net.DNSError](err); !ok || !e.IsNotFound || e.IsTemporary {
			t.Errorf("got %v", err)
		}
	}
	_, _ = lookup.LookupIP(t.Context(), "ip4", "a.localhost.") // remembered it must not be
	want := api.AskedAnswer{Names: []api.Asked{{Name: "registry.example", Type: "A", Count: 2, Last: moment}}}
	if diff := cmp.Diff(want, r.Names()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// However many names are made up, those that came first are kept, and the rest is a number.
func TestBounded(t *testing.T) {
	r, at := serve(t)
	var c dns.Client
	for i := range asked.Max + 40 {
		m := new(dns.Msg).SetQuestion(fmt.Sprintf("%d.%s.example.", i, strings.Repeat("x", 60)), dns.TypeAAAA)
		in, _, err := c.Exchange(m, at)
		if err != nil || in.Rcode != dns.RcodeNameError || !in.Response {
			t.Fatalf("%v, %v", in, err)
		}
	}
	got := r.Names()
	if len(got.Names) != asked.Max || got.Others != 40 || !strings.HasPrefix(got.Names[0].Name, "0.") {
		t.Errorf("%d names and %d others", len(got.Names), got.Others)
	}
}

func TestParse(t *testing.T) {
	query := func(name string, kind uint16, change func(*dns.Msg)) []byte {
		m := new(dns.Msg).SetQuestion(name, kind)
		if change != nil {
			change(m)
		}
		raw, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	plain := query("a.example.", dns.TypeA, nil)
	tests := []struct {
		name string
		msg  []byte
		want string // name and type; "" is no answer
	}{
		{"plain", plain, "a.example A"},
		{"with-options", query("a.example.", dns.TypeHTTPS, func(m *dns.Msg) { m.SetEdns0(4096, true) }), "a.example HTTPS"},
		{"terminal", query("\\027[2J.example.", dns.TypeTXT, nil), `\027\0912j.example TXT`},
		{"dot-in-a-label", query(`a\.b.example.`, dns.TypePTR, nil), `a\046b.example PTR`},
		{"another-type", query("a.example.", 99, nil), "a.example TYPE99"},
		{"answer", query("a.example.", dns.TypeA, func(m *dns.Msg) { m.Response = true }), ""},
		{"notify", query("a.example.", dns.TypeA, func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), ""},
		{"two", query("a.example.", dns.TypeA, func(m *dns.Msg) { m.Question = append(m.Question, m.Question...) }), ""},
		{"root", query(".", dns.TypeNS, nil), ""},
		{"empty", nil, ""},
		{"cut-header", plain[:11], ""},
		{"cut-name", plain[:15], ""},
		{"cut-type", plain[:len(plain)-3], ""},
		{"pointer", append(bytes.Clone(plain[:12]), 0xc0, 12, 0, 1, 0, 1), ""},
		{"no-end", append(bytes.Clone(plain[:12]), bytes.Repeat([]byte{1, 'a'}, 200)...), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, answer := asked.Parse(tt.msg)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if tt.want == "" {
				return
			}
			var m dns.Msg
			if err := m.Unpack(answer); err != nil || m.Rcode != dns.RcodeNameError || !m.Response || len(m.Question) != 1 || len(m.Extra)+len(m.Answer)+len(m.Ns) != 0 {
				t.Errorf("answer %v, %v", &m, err)
			}
		})
	}
}

// Whatever comes: an answer is one, of the same question, and no longer; a name is
// printable and bounded.
func FuzzParse(f *testing.F) {
	raw, _ := new(dns.Msg).SetQuestion("a.example.", dns.TypeA).Pack()
	f.Add(raw)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, msg []byte) {
		name, answer := asked.Parse(msg)
		if name == "" {
			return
		}
		if len(answer) > len(msg) || answer[0] != msg[0] || answer[1] != msg[1] || answer[2]&0x80 == 0 {
			t.Errorf("answer %x to %x", answer, msg)
		}
		if len(name) > 255+10 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.\\ ATEYPXRSVMH") != "" {
			t.Errorf("name %q", name)
		}
	})
}
