package dns

import (
	"context"
	"time"

	wire "github.com/miekg/dns"
)

// SetTimes shortens waiting.
func (s *Server) SetTimes(attempt, question, message time.Duration) {
	s.times.attempt, s.times.question, s.times.message = attempt, question, message
}

// Handle answers a message as one that came in a datagram.
func (s *Server) Handle(ctx context.Context, msg []byte) []byte { return s.handle(ctx, msg, 0) }

// ReadReply reads what came for query, and what of it answers the question.
func ReadReply(query, msg []byte, name string, qtype uint16) (kind int, ttl time.Duration, records int, err error) {
	m, err := reply(query, msg)
	if err != nil {
		return 0, 0, 0, err
	}
	a, _, err := read(m, name, qtype)
	return int(a.kind), a.ttl, len(a.addrs) + len(a.rrs), err
}

// What tests know of the inside.
var (
	NewQuery  = newQuery
	Canonical = canonical
	Shape     = shape
	ErrForged = errForged
	ErrTCP    = errTCP
)

// Bounds, for tests.
const (
	MaxSlots     = maxSlots
	MaxConns     = maxConns
	MaxCached    = maxCached
	MaxPinned    = maxPinned
	MaxNames     = maxNames
	MaxQuestion  = maxQuestion
	MaxDatagram  = maxDatagram
	MaxRecords   = maxRecords
	NewNameBytes = newNameBytes
	NewMissing   = newMissing
	TypeNone     = wire.TypeNone
)

// Flush forgets every answer. Pins stay.
func (s *Server) Flush() { s.cache.flush() }

func (c *cache) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = newLRU[key, entry](maxCached)
	c.flushes++
}
