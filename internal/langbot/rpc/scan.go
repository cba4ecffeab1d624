package rpc

// States of a document.
const (
	scanOpen   = iota // it has begun, or is white space
	scanEnded         // its object is whole, and nothing follows
	scanBroken        // it is no JSON object
)

// scanner finds the end of a JSON object that comes in pieces, looking at each
// byte once. It follows strings and brackets alone: what it finds whole may
// still be no JSON, and what is JSON it finds whole.
type scanner struct {
	depth    int
	begun    bool
	inString bool
	escaped  bool
	state    int
}

func (s *scanner) add(b []byte) int {
	for _, c := range b {
		if s.state == scanBroken {
			break
		}
		s.one(c)
	}
	return s.state
}

func (s *scanner) one(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case s.inString:
		switch c {
		case '\\':
			s.escaped = true
		case '"':
			s.inString = false
		}
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
	case s.state == scanEnded, !s.begun && c != '{':
		s.state = scanBroken
	case c == '"':
		s.inString = true
	case c == '{' || c == '[':
		s.begun = true
		s.depth++
	case c == '}' || c == ']':
		if s.depth--; s.depth == 0 {
			s.state = scanEnded
		}
	}
}
