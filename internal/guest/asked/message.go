package asked

import (
	"encoding/binary"
	"strconv"
	"strings"
)

const (
	maxMessage = 512 // bytes of a datagram: a question is far shorter
	maxName    = 255 // bytes of a name, as it is sent

	headerSize = 12
)

// question is one that was understood.
type question struct {
	name   string // in lower case, without the last dot; other bytes than a host's escaped as \DDD; cut at maxName
	kind   string // "A"
	answer []byte // that there is no such name
}

// local reports whether it is about the sandbox itself.
func (q question) local() bool {
	return q.name == "localhost" || strings.HasSuffix(q.name, ".localhost")
}

// parse reads a query with one question, and makes its answer. What is no such query,
// an answer among it, is nothing.
func parse(msg []byte) (q question, ok bool) {
	const (
		response, opcode = 1 << 15, 0xf << 11
		desired          = 1 << 8 // recursion
		available        = 1 << 7
		noSuchName       = 3
	)
	if len(msg) < headerSize {
		return q, false
	}
	flags := binary.BigEndian.Uint16(msg[2:])
	if flags&(response|opcode) != 0 || binary.BigEndian.Uint16(msg[4:]) != 1 {
		return q, false
	}
	name, rest, ok := parseName(msg[headerSize:])
	if !ok || len(rest) < 4 {
		return q, false
	}
	end := len(msg) - len(rest) + 4
	q.name, q.kind = name, kindOf(binary.BigEndian.Uint16(rest))
	q.answer = append([]byte(nil), msg[:end]...)
	binary.BigEndian.PutUint16(q.answer[2:], response|flags&desired|available|noSuchName)
	clear(q.answer[6:headerSize]) // one question and nothing else
	return q, true
}

// parseName reads labels up to the root's. A question has no pointers.
func parseName(p []byte) (name string, rest []byte, ok bool) {
	var b strings.Builder
	for sent := 1; ; {
		if len(p) == 0 {
			return "", nil, false
		}
		n := int(p[0])
		if n == 0 {
			name = b.String()
			return name[:min(len(name), maxName)], p[1:], name != ""
		}
		if sent += n + 1; n > 63 || n >= len(p) || sent > maxName {
			return "", nil, false
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		for _, c := range p[1 : n+1] {
			writeByte(&b, c)
		}
		p = p[n+1:]
	}
}

func writeByte(b *strings.Builder, c byte) {
	switch {
	case 'A' <= c && c <= 'Z':
		b.WriteByte(c + 'a' - 'A')
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		b.WriteByte(c)
	default:
		b.WriteString(`\` + string([]byte{'0' + c/100, '0' + c/10%10, '0' + c%10}))
	}
}

// kindOf names the types that programs ask for.
func kindOf(n uint16) string {
	switch n {
	case 1:
		return "A"
	case 28:
		return "AAAA"
	case 12:
		return "PTR"
	case 15:
		return "MX"
	case 16:
		return "TXT"
	case 33:
		return "SRV"
	case 65:
		return "HTTPS"
	}
	return "TYPE" + strconv.Itoa(int(n))
}
