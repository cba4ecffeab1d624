package proxy_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/carboy-sandbox/carboy/test/patience"
)

func pseudo(authority, path string) []string {
	return []string{":method", "GET", ":scheme", "https", ":path", path, ":authority", authority}
}

// h2 is a client of HTTP/2 that says whatever it is told to.
type h2 struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	next   uint32
}

func newH2(t *testing.T, c net.Conn) *h2 {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience.For(20 * time.Second)))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	h := &h2{t: t, conn: c, framer: http2.NewFramer(c, c), next: 1}
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := h.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return h
}

// send begins a stream without a body.
func (h *h2) send(fields ...string) {
	h.t.Helper()
	var b strings.Builder
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: h.next, BlockFragment: []byte(b.String()), EndHeaders: true, EndStream: true})
	if err != nil {
		h.t.Fatal(err)
	}
	h.next += 2
}

// read returns the status of the next answer, and why it refuses.
func (h *h2) read() (status, code string) {
	h.t.Helper()
	for {
		f, err := h.framer.ReadFrame()
		if err != nil {
			h.t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			status = f.PseudoValue("status")
			for _, field := range f.RegularFields() {
				if field.Name == "x-carboy-refused" {
					code = field.Value
				}
			}
			if status != "" {
				return status, code
			}
		case *http2.RSTStreamFrame:
			return "reset", f.ErrCode.String()
		case *http2.GoAwayFrame:
			return "goaway", f.ErrCode.String()
		}
	}
}

func (h *h2) do(fields ...string) (status, code string) {
	h.t.Helper()
	h.send(fields...)
	return h.read()
}
