package tlswire

import (
	"bytes"
	"crypto/sha256"
	"sync"
	"sync/atomic"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Retry watches a connection that is passed on unread for a second
// ClientHello. In TLS 1.3 a server may ask for one, and might follow the name
// in that one: so it has to ask for the same as the first, which policy was
// asked about.
type Retry struct {
	first Hello
	done  atomic.Bool // no second hello can come any more

	mu             sync.Mutex
	skip           int // bytes of the first hello that are yet to be seen
	client, server records
	answer         []byte // the server's first message, as far as it matters
	asked          bool   // it asks for a second hello
	second         []byte // which is this, as far as it came
}

// NewRetry watches a connection that begins with a hello, which ReadHello read
// from raw and which is passed on, too.
func NewRetry(first Hello, raw []byte) *Retry {
	return &Retry{first: first, skip: len(raw)}
}

// retryRandom is the ServerHello.random of a HelloRetryRequest (RFC 8446,
// 4.1.3).
var retryRandom = sha256.Sum256([]byte("HelloRetryRequest"))

// Types of records, and of messages in them.
const (
	serverHello  = 2
	answerLength = 4 + 2 + sha256.Size // up to the end of random
)

// Watch is called with each piece before it is passed on, by one goroutine for
// each direction: sent is true for what the client sends. With an error, which
// is a *HelloError, the piece may not be passed on.
func (r *Retry) Watch(sent bool, p []byte) error {
	if r.done.Load() || weak.On(weak.NetRetryUnchecked) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !sent {
		return r.server.feed(p, r.fromServer)
	}
	n := min(r.skip, len(p))
	r.skip -= n
	return r.client.feed(p[n:], r.fromClient)
}

// fromServer looks at the first message alone.
func (r *Retry) fromServer(kind byte, p []byte, _ bool) error {
	if r.asked || r.done.Load() {
		return nil
	}
	if kind != recordHandshake {
		r.done.Store(true) // an alert, or not TLS
		return nil
	}
	r.answer = append(r.answer, p...)
	switch {
	case r.answer[0] != serverHello:
		r.done.Store(true)
	case len(r.answer) < answerLength:
	case bytes.Equal(r.answer[answerLength-sha256.Size:answerLength], retryRandom[:]):
		r.asked, r.answer = true, nil
	default:
		r.done.Store(true) // from here on TLS 1.3 is encrypted, and 1.2 knows no second hello in clear
	}
	return nil
}

// fromClient looks at what follows the first hello. Only who knows what the
// server will answer sends a message before that.
func (r *Retry) fromClient(kind byte, p []byte, end bool) error {
	if r.done.Load() || kind != recordHandshake {
		return nil // early data, alerts, and the changes of cipher that middleboxes like to see
	}
	if !r.asked {
		return bad("a message after it, before the server's answer")
	}
	r.second = append(r.second, p...)
	h, whole, err := parseMessage(r.second)
	switch {
	case err != nil || !whole:
		return err
	case !end:
		return bad("bytes after its end")
	case h.SNI != r.first.SNI:
		return bad("the second one has another server name")
	case h.ECH != r.first.ECH:
		return bad("of two one has an encrypted one in it")
	}
	r.done.Store(true)
	r.second = nil
	return nil
}

// records follows one direction's records.
type records struct {
	head []byte // of a record, while it is not whole
	left int    // bytes of the record that are yet to come
}

// feed calls each for what p holds of each record's payload; end is true with
// the record's last bytes.
func (s *records) feed(p []byte, each func(kind byte, p []byte, end bool) error) error {
	for len(p) > 0 {
		if s.left == 0 {
			n := min(recordHeader-len(s.head), len(p))
			s.head, p = append(s.head, p[:n]...), p[n:]
			if len(s.head) < recordHeader {
				return nil
			}
			if s.left = int(s.head[3])<<8 | int(s.head[4]); s.left == 0 {
				s.head = s.head[:0]
			}
			continue
		}
		n := min(s.left, len(p))
		s.left -= n
		if err := each(s.head[0], p[:n], s.left == 0); err != nil {
			return err
		}
		if s.left == 0 {
			s.head = s.head[:0]
		}
		p = p[n:]
	}
	return nil
}
