package proxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/proxy"
)

const get = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"

func TestFraming(t *testing.T) {
	post := func(fields, body string) string {
		return "POST / HTTP/1.1\r\nHost: a.example\r\n" + fields + "\r\n" + body
	}
	tests := []struct {
		name, in string
		ends     []int // of whole messages; their number counts where it is nil
		n        int
		status   int // of the refusal; 0: none
	}{
		{name: "get", in: get, n: 1},
		{name: "pipelined", in: get + get + get, n: 3},
		{name: "length", in: post("Content-Length: 5\r\n", "hello") + get, n: 2},
		{name: "length-zero", in: post("Content-Length: 0\r\n", "") + get, n: 2},
		{name: "chunked", in: post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n") + get, n: 2},
		{name: "chunked-case", in: post("transfer-encoding: Chunked\r\n", "A;x=y\r\n0123456789\r\n000\r\n\r\n"), n: 1},
		{name: "trailer", in: post("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n") + get, n: 2},
		{name: "old", in: "GET / HTTP/1.0\r\n\r\n", n: 1},
		{name: "absolute", in: "GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n", n: 1},
		{name: "absolute-port", in: "GET http://A.example:80/x HTTP/1.1\r\nHost: a.example\r\n\r\n", n: 1},
		{name: "options", in: "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", n: 1},
		{name: "connect", in: "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", n: 1},
		{name: "raw-utf8", in: "GET /\xc3\xa9 HTTP/1.1\r\nHost: a.example\r\nX: \xc3\xa9\r\n\r\n", n: 1},

		{name: "both", in: post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), status: 400},
		{name: "both-other-order", in: post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), status: 400},
		{name: "two-lengths", in: post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"), status: 400},
		{name: "two-equal-lengths", in: post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), status: 400},
		{name: "length-list", in: post("Content-Length: 5, 5\r\n", "hello"), status: 400},
		{name: "length-sign", in: post("Content-Length: +5\r\n", "hello"), status: 400},
		{name: "length-hex", in: post("Content-Length: 0x5\r\n", "hello"), status: 400},
		{name: "length-huge", in: post("Content-Length: 99999999999999999999\r\n", "hello"), status: 400},
		{name: "length-beyond-int", in: post("Content-Length: 9999999999999999999\r\n", "hello"), status: 400},
		{name: "length-empty", in: post("Content-Length:\r\n", ""), status: 400},
		{name: "length-underscore", in: post("Content_Length: 5\r\n", "hello"), status: 400},
		{name: "encoding-underscore", in: post("Transfer_Encoding: chunked\r\n", ""), status: 400},
		{name: "length-dot", in: post("Content.Length: 5\r\n", "hello"), status: 400},
		{name: "length-mixed", in: post("cONTENT~lENGTH: 5\r\n", "hello"), status: 400},
		{name: "coding-underscore", in: post("Content_Encoding: gzip\r\n", ""), status: 400},
		{name: "type-underscore", in: post("Content_Type: application/json\r\n", ""), status: 400},
		{name: "hop-underscore", in: post("Proxy_Connection: close\r\n", ""), status: 400},
		{name: "extensions-underscore", in: post("Sec_WebSocket_Extensions: permessage-deflate\r\n", ""), status: 400},
		{name: "other-underscore", in: post("X_Request_Id: 1\r\nContent-Language: en\r\n", ""), n: 1},
		{name: "encoding-twice", in: post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", ""), status: 400},
		{name: "encoding-list", in: post("Transfer-Encoding: gzip, chunked\r\n", ""), status: 400},
		{name: "encoding-identity", in: post("Transfer-Encoding: identity\r\n", ""), status: 400},
		{name: "encoding-xchunked", in: post("Transfer-Encoding: xchunked\r\n", ""), status: 400},
		{name: "encoding-vertical-tab", in: post("Transfer-Encoding: \x0bchunked\r\n", ""), status: 400},
		{name: "encoding-old", in: "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 400},
		{name: "space-before-colon", in: post("Transfer-Encoding : chunked\r\n", ""), status: 400},
		{name: "obs-fold", in: post("X: a\r\n b\r\n", ""), status: 400},
		{name: "obs-fold-first", in: "GET / HTTP/1.1\r\n Host: a\r\n\r\n", status: 400},
		{name: "bare-lf", in: "GET / HTTP/1.1\nHost: a.example\n\n", status: 400},
		{name: "bare-lf-within", in: "GET / HTTP/1.1\r\nHost: a.example\nX: y\r\n\r\n", status: 400},
		{name: "bare-cr", in: post("X: a\rY: b\r\n", ""), status: 400},
		{name: "nul", in: post("X: a\x00b\r\n", ""), status: 400},
		{name: "nul-in-name", in: post("X\x00: a\r\n", ""), status: 400},
		{name: "delete", in: post("X: a\x7fb\r\n", ""), status: 400},
		{name: "no-colon", in: post("X\r\n", ""), status: 400},
		{name: "no-name", in: post(": a\r\n", ""), status: 400},
		{name: "two-hosts", in: post("Host: b.example\r\n", ""), status: 400},
		{name: "no-host", in: "GET / HTTP/1.1\r\n\r\n", status: 400},
		{name: "host-user", in: "GET / HTTP/1.1\r\nHost: a@b.example\r\n\r\n", status: 400},
		{name: "absolute-other", in: "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", status: 421},
		{name: "absolute-user", in: "GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", status: 400},
		{name: "absolute-ftp", in: "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", status: 400},
		{name: "star-get", in: "GET * HTTP/1.1\r\nHost: a.example\r\n\r\n", status: 400},
		{name: "two-spaces", in: "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", status: 400},
		{name: "space-in-target", in: "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", status: 505},
		{name: "tab-in-target", in: "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n", status: 400},
		{name: "version", in: "GET / HTTP/1.2\r\nHost: a\r\n\r\n", status: 505},
		{name: "version-2", in: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status: 505},
		{name: "empty-line-first", in: "\r\n" + get, status: 400},
		{name: "binary", in: "\x16\x03\x01\x00\x05hello", status: 400},
		{name: "connect-body", in: "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 3\r\n\r\nabc", status: 400},
		{name: "chunk-lf", in: post("Transfer-Encoding: chunked\r\n", "5\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "chunk-size-space", in: post("Transfer-Encoding: chunked\r\n", "5 \r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "chunk-size-sign", in: post("Transfer-Encoding: chunked\r\n", "+5\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "chunk-size-empty", in: post("Transfer-Encoding: chunked\r\n", "\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "chunk-size-overflow", in: post("Transfer-Encoding: chunked\r\n", "10000000000000005\r\nhello"), status: 400},
		{name: "chunk-longer", in: post("Transfer-Encoding: chunked\r\n", "3\r\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "chunk-extension-long", in: post("Transfer-Encoding: chunked\r\n", "5;"+strings.Repeat("x", 300)+"\r\nhello\r\n"), status: 400},
		{name: "chunk-extension-lf", in: post("Transfer-Encoding: chunked\r\n", "5;x\nhello\r\n0\r\n\r\n"), status: 400},
		{name: "trailer-length", in: post("Transfer-Encoding: chunked\r\n", "0\r\nContent-Length: 5\r\n\r\n"), status: 400},
		{name: "trailer-host", in: post("Transfer-Encoding: chunked\r\n", "0\r\nHost: b\r\n\r\n"), status: 400},
		{name: "trailer-length-underscore", in: post("Transfer-Encoding: chunked\r\n", "0\r\nContent_Length: 5\r\n\r\n"), status: 400},
		{name: "trailer-authorization", in: post("Transfer-Encoding: chunked\r\n", "0\r\nProxy_Authorization: x\r\n\r\n"), status: 400},
		{name: "trailer-method", in: post("Transfer-Encoding: chunked\r\n", "0\r\nX_HTTP_Method_Override: DELETE\r\n\r\n"), status: 400},
		{name: "trailer-path", in: post("Transfer-Encoding: chunked\r\n", "0\r\nX-Original-URL: /x\r\n\r\n"), status: 400},
		{name: "trailer-other", in: post("Transfer-Encoding: chunked\r\n", "0\r\nX_Checksum: 1\r\n\r\n"), n: 1},
		{name: "trailer-lf", in: post("Transfer-Encoding: chunked\r\n", "0\r\nX: y\n\n"), status: 400},
		{name: "many-fields", in: post(strings.Repeat("X: y\r\n", 201), ""), status: 431},
		{name: "long-head", in: post("X: "+strings.Repeat("y", 65<<10)+"\r\n", ""), status: 431},
	}
	for _, tt := range tests {
		for _, piece := range []int{1, 7, 1 << 20} {
			ends, bad := proxy.Frame([]byte(tt.in), piece)
			got := 0
			if bad != nil {
				got = bad.Status
			}
			if got != tt.status {
				t.Errorf("%s in pieces of %d: refused with %d (%v), want %d", tt.name, piece, got, bad, tt.status)
			}
			if tt.status == 0 && len(ends) != tt.n {
				t.Errorf("%s in pieces of %d: messages end at %d, want %d of them", tt.name, piece, ends, tt.n)
			}
		}
	}
}

// netHTTP returns where net/http sees messages end.
func netHTTP(data []byte) (ends []int, err error) {
	src := bytes.NewReader(data)
	r := bufio.NewReader(src)
	at := func() int { return len(data) - src.Len() - r.Buffered() }
	for at() < len(data) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return ends, err
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return ends, err
		}
		ends = append(ends, at())
	}
	return ends, nil
}

// FuzzFraming holds our view of where messages end against net/http's: what we
// pass on, it must read in the same way, whatever pieces it came in.
func FuzzFraming(f *testing.F) {
	f.Add([]byte(get+get), 3)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"+get), 5)
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n"+get), 1)
	f.Add([]byte("GET http://a/b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), 100)
	f.Add([]byte("POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx"), 2)
	f.Add([]byte("OPTIONS * HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n"), 9)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		if piece < 1 || len(data) > 1<<16 {
			return
		}
		ours, bad := proxy.Frame(data, piece)
		whole, badWhole := proxy.Frame(data, len(data)+1)
		if !slices.Equal(ours, whole) || (bad == nil) != (badWhole == nil) {
			t.Fatalf("in pieces %d %v, whole %d %v", ours, bad, whole, badWhole)
		}
		if len(ours) == 0 {
			return
		}
		passed := data[:ours[len(ours)-1]]
		theirs, err := netHTTP(passed)
		if err != nil {
			return // refused by it too: nothing is read in two ways
		}
		if !slices.Equal(ours, theirs) {
			t.Fatalf("messages end at %d for us and at %d for net/http:\n%q", ours, theirs, passed)
		}
	})
}

// TestStrictPassesNothingUnsound sends a sound request and an unsound one in
// one piece: the first arrives, and of the second not a byte.
func TestStrictPassesNothingUnsound(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	var told []*proxy.Refusal
	s := proxy.Strict(b, time.Minute, time.Minute, func(r *proxy.Refusal) { told = append(told, r) })
	go func() { _, _ = a.Write([]byte(get + "GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n")) }()
	var got []byte
	buf := make([]byte, 10)
	for {
		n, err := s.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			if _, ok := errors.AsType[*proxy.Refusal](err); !ok {
				t.Errorf("ended with %v, want a refusal", err)
			}
			break
		}
	}
	if string(got) != get {
		t.Errorf("passed on %q, want %q", got, get)
	}
	if len(told) != 1 {
		t.Errorf("reported %d times, want once", len(told))
	}
}

// TestHeadHasItsTime sends a head too slowly: it ends after the time of a head,
// although net/http's own deadline for a kept connection is longer.
func TestHeadHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		s := proxy.Strict(b, 10*time.Second, time.Minute, func(*proxy.Refusal) {})
		_ = s.SetReadDeadline(time.Now().Add(time.Hour))
		begun := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, c := range []byte(get) {
				if _, err := a.Write([]byte{c}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		_, err := s.Read(make([]byte, 4096))
		if took := time.Since(begun); err == nil || took != 10*time.Second {
			t.Errorf("read %v after %v, want an error after 10s", err, took)
		}
		a.Close()
		<-done
	})
}

func TestHosts(t *testing.T) {
	tests := []struct {
		in, host string
		port     uint16
		ok       bool
	}{
		{"a.example", "a.example", 0, true},
		{"A.Example.:8080", "a.example", 8080, true},
		{"192.0.2.1:80", "192.0.2.1", 80, true},
		{"[2001:DB8::1]:443", "2001:db8::1", 443, true},
		{"[2001:db8::1]", "2001:db8::1", 0, true},
		{"[::ffff:192.0.2.1]", "192.0.2.1", 0, true},
		{in: "2001:db8::1"},
		{in: "a.example:"},
		{in: "a.example:0"},
		{in: "a.example:080"},
		{in: "a.example:65536"},
		{in: "a.example:x"},
		{in: "a.example:1:2"},
		{in: "a@b"},
		{in: "a/b"},
		{in: "a b"},
		{in: "a%2eb"},
		{in: "\u00e9.example"},
		{in: "0x7f.1"},
		{in: "2130706433"},
		{in: "127.1"},
		{in: "0177.0.0.1"},
		{in: "[fe80::1%eth0]"},
		{in: ""},
		{in: ":80"},
		{in: "[a.example]"},
	}
	for _, tt := range tests {
		host, port, ok := proxy.ParseHost(tt.in)
		if ok != tt.ok || ok && (host != tt.host || port != tt.port) {
			t.Errorf("%q: %q %d %v, want %q %d %v", tt.in, host, port, ok, tt.host, tt.port, tt.ok)
		}
	}
}

// FuzzHosts has whatever is a host in one spelling be the same in its clean
// one.
func FuzzHosts(f *testing.F) {
	for _, s := range []string{"a.example:80", "[::1]:1", "192.0.2.1", "xn--bcher-kva.example", "A..b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, _, ok := proxy.ParseHost(s)
		if !ok {
			return
		}
		clean := host
		if strings.Contains(host, ":") {
			clean = "[" + host + "]"
		}
		again, port, ok := proxy.ParseHost(clean)
		if !ok || again != host || port != 0 {
			t.Fatalf("%q is %q, and that is %q %d %v", s, host, again, port, ok)
		}
	})
}
