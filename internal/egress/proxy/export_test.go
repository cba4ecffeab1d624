package proxy

import (
	"net"
	"time"
)

// Strict returns a connection's bytes as they are handed to net/http.
func Strict(c net.Conn, head, body time.Duration, report func(*Refusal)) net.Conn {
	return &strict{Conn: c, headTime: head, bodyTime: body, report: report}
}

// Frame follows the framing over data in pieces, and returns where each
// message that is whole ends, and what was refused.
func Frame(data []byte, piece int) (ends []int, bad *Refusal) {
	s := &strict{report: func(*Refusal) {}, Conn: deaf{}}
	var pending []byte
	at := 0
	for len(data) > 0 && s.refused == nil {
		n := min(piece, len(data))
		pending = append(pending, data[:n]...)
		data = data[n:]
		for len(pending) > 0 && s.refused == nil {
			k := s.followOne(pending)
			if k == 0 {
				break
			}
			at += k
			pending = pending[k:]
			if !s.inBody {
				ends = append(ends, at)
			}
		}
	}
	return ends, s.refused
}

type deaf struct{ net.Conn }

func (deaf) SetReadDeadline(time.Time) error { return nil }

// ParseHost returns the parts of a Host field in their clean form.
func ParseHost(s string) (host string, port uint16, ok bool) {
	a, ok := parseHost(s)
	return a.host(), a.port, ok
}

// Covers reports whether nothing is to be asked under a policy of a revision, where
// nobody has been asked.
func Covers(revision string) bool { return consent{}.covers(revision) }
