package tlswire

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/crypto/cryptobyte"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Limits of what ReadHello reads.
const (
	MaxHello  = 64 << 10 // bytes, headers of records included
	maxRecord = 1 << 14  // RFC 8446, 5.1
	maxALPN   = 32       // protocols that a hello may offer

	recordHeader    = 5
	recordHandshake = 22
	clientHello     = 1
)

// Extensions that are read.
const (
	extServerName = 0
	extALPN       = 16
	extVersions   = 43
	extECH        = 0xfe0d
)

// Hello is what a ClientHello asks for.
type Hello struct {
	// SNI is the name asked for: in lower case, a DNS name that is no address
	// and ends in no dot. "" where none is asked for.
	SNI  string
	ALPN []string // in the client's order; GREASE included
	// Versions are those offered, in the client's order, without GREASE.
	Versions []uint16
	// ECH reports the extension encrypted_client_hello. Whether there is a
	// second name in it can't be known: browsers send it always, with random
	// bytes where they have no key (GREASE), and nobody but the server can tell
	// these from a hidden name.
	//
	// So where the hello is passed on unread it is to be refused, or the
	// connection intercepted instead: the server might follow the hidden name.
	// Where the gate itself answers the handshake the extension does nothing:
	// it has no key, the client sees that, and goes on under SNI or gives up.
	ECH bool
}

// HelloError says what is wrong with a hello. Errors of reading are returned
// as they are.
type HelloError struct{ Problem string }

// Error implements error.
func (e *HelloError) Error() string { return "client hello: " + e.Problem }

func bad(format string, args ...any) error {
	return &HelloError{Problem: fmt.Sprintf(format, args...)}
}

// ReadHello reads a ClientHello from r, which is to be at the beginning of a
// connection. It reads whole records, as few as the hello needs and not a byte
// after them, and returns what it read, also beside an error: to be replayed
// to whomever the connection is passed on to. How long to wait is the caller's
// to bound, by a deadline.
//
// An error is a *HelloError, or the reader's: io.ErrUnexpectedEOF where it
// ended early, io.EOF where it held nothing.
func ReadHello(r io.Reader) (Hello, []byte, error) {
	raw := make([]byte, 0, 2<<10) // most hellos; those with a post-quantum share nearly fill it
	var msg []byte
	for {
		body, all, err := readRecord(r, raw)
		raw = all
		if err != nil {
			return Hello{}, raw, err
		}
		msg = append(msg, body...)
		if h, whole, err := parseMessage(msg); whole || err != nil {
			return h, raw, err
		}
	}
}

// parseMessage reads a ClientHello with the header of its message, once it is
// whole.
func parseMessage(msg []byte) (h Hello, whole bool, err error) {
	if len(msg) < 4 {
		return Hello{}, false, nil
	}
	n := int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3])
	switch {
	case msg[0] != clientHello:
		return Hello{}, false, bad("handshake message of type %d", msg[0])
	case n > MaxHello:
		return Hello{}, false, bad("%d bytes long; %d are read", n, MaxHello)
	case len(msg) < 4+n:
		return Hello{}, false, nil
	case len(msg) > 4+n:
		return Hello{}, false, bad("bytes after its end")
	}
	h, err = parseHello(msg[4:])
	return h, true, err
}

// readRecord appends one record to raw, and returns its payload too.
func readRecord(r io.Reader, raw []byte) (body, all []byte, err error) {
	from := len(raw)
	if raw, err = readMore(r, raw, recordHeader); err != nil {
		if from > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, raw, err
	}
	head := raw[from:]
	n := int(head[3])<<8 | int(head[4])
	switch {
	case head[0] != recordHandshake:
		return nil, raw, bad("record of type %d", head[0])
	case head[1] != 3 || head[2] > 4:
		return nil, raw, bad("record of version %d.%d", head[1], head[2])
	case n == 0 || n > maxRecord:
		return nil, raw, bad("record of %d bytes", n)
	case len(raw)+n > MaxHello:
		return nil, raw, bad("over %d bytes long", MaxHello)
	}
	if raw, err = readMore(r, raw, n); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, raw, err
	}
	return raw[from+recordHeader:], raw, nil
}

// readMore appends n bytes of r to raw, or as many as there are.
func readMore(r io.Reader, raw []byte, n int) ([]byte, error) {
	from := len(raw)
	raw = slices.Grow(raw, n)
	got, err := io.ReadFull(r, raw[from:from+n])
	return raw[:from+got], err
}

// parseHello reads the body of a ClientHello (RFC 8446, 4.1.2), which of all
// versions since TLS 1.0 has one form.
func parseHello(body []byte) (Hello, error) {
	var (
		s                         = cryptobyte.String(body)
		version                   uint16
		random                    []byte
		session, ciphers, methods cryptobyte.String
	)
	if !s.ReadUint16(&version) || !s.ReadBytes(&random, 32) ||
		!s.ReadUint8LengthPrefixed(&session) || len(session) > 32 ||
		!s.ReadUint16LengthPrefixed(&ciphers) || len(ciphers) == 0 || len(ciphers)%2 != 0 ||
		!s.ReadUint8LengthPrefixed(&methods) || len(methods) == 0 {
		return Hello{}, bad("cut short")
	}
	if version>>8 != 3 {
		return Hello{}, bad("of version %#04x", version)
	}
	h := Hello{Versions: []uint16{version}}
	if s.Empty() {
		return h, nil // no extensions: TLS 1.2 and older allow it
	}
	var extensions cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return Hello{}, bad("extensions of the wrong length")
	}
	if err := h.readExtensions(extensions); err != nil {
		return Hello{}, err
	}
	return h, nil
}

func (h *Hello) readExtensions(s cryptobyte.String) error {
	seen := make(map[uint16]bool, 24)
	for !s.Empty() {
		var (
			kind uint16
			data cryptobyte.String
			err  error
		)
		if !s.ReadUint16(&kind) || !s.ReadUint16LengthPrefixed(&data) {
			return bad("extension cut short")
		}
		if seen[kind] {
			return bad("extension %d twice", kind)
		}
		seen[kind] = true
		switch kind {
		case extServerName:
			err = h.readServerName(data)
		case extALPN:
			err = h.readALPN(data)
		case extVersions:
			err = h.readVersions(data)
		case extECH:
			h.ECH = !weak.On(weak.NetECHUnseen)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readServerName takes exactly one name (RFC 6066, 3): a server that took the
// second of two would be another than the policy was asked about.
func (h *Hello) readServerName(s cryptobyte.String) error {
	var (
		list, name cryptobyte.String
		kind       uint8
		err        error
	)
	if !s.ReadUint16LengthPrefixed(&list) || !s.Empty() || !list.ReadUint8(&kind) {
		return bad("server name cut short")
	}
	if kind != 0 {
		return bad("server name of type %d", kind)
	}
	if !list.ReadUint16LengthPrefixed(&name) {
		return bad("server name cut short")
	}
	if !list.Empty() {
		return bad("several server names")
	}
	h.SNI, err = serverName(string(name))
	return err
}

func (h *Hello) readALPN(s cryptobyte.String) error {
	var list cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&list) || !s.Empty() || list.Empty() {
		return bad("protocols of the wrong length")
	}
	for !list.Empty() {
		var name cryptobyte.String
		if !list.ReadUint8LengthPrefixed(&name) || name.Empty() {
			return bad("protocol cut short")
		}
		if len(h.ALPN) == maxALPN {
			return bad("over %d protocols", maxALPN)
		}
		h.ALPN = append(h.ALPN, string(name))
	}
	return nil
}

func (h *Hello) readVersions(s cryptobyte.String) error {
	var list cryptobyte.String
	if !s.ReadUint8LengthPrefixed(&list) || !s.Empty() || list.Empty() || len(list)%2 != 0 {
		return bad("versions of the wrong length")
	}
	h.Versions = h.Versions[:0]
	for !list.Empty() {
		var v uint16
		list.ReadUint16(&v)
		if v&0x0f0f != 0x0a0a { // RFC 8701: GREASE
			h.Versions = append(h.Versions, v)
		}
	}
	return nil
}
