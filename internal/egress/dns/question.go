package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// maxQuestion is the length of the longest message that is read from a guest:
// a question with the longest name, and many times the options that clients
// send.
const maxQuestion = 1232

// question is what a guest asks.
type question struct {
	id     uint16
	rd, cd bool // flags that an answer repeats
	asked  wire.Question
	edns   bool
	size   uint16 // of the largest datagram that the guest takes
	badver bool   // its options are of a version that nobody knows
}

// errDrop is what gets no answer: there is nobody to give it to, or it might
// go to and fro for ever.
var errDrop = errors.New("no question")

// malformed is a message that gets an answer saying so.
type malformed struct {
	rcode  int
	reason string
}

func (m malformed) Error() string { return m.reason }

// parse reads a guest's message. Its header is looked at before anything is
// unpacked: there is one question, and at most the record with options besides
// it. The options themselves are not looked at.
func parse(msg []byte) (q question, err error) {
	switch {
	case len(msg) < header:
		return q, errDrop
	case msg[2]&0x80 != 0:
		return q, errDrop
	}
	q.id = binary.BigEndian.Uint16(msg)
	q.rd, q.cd, q.size = msg[2]&0x01 != 0, msg[3]&0x10 != 0, wire.MinMsgSize
	counts := [4]uint16{}
	for i := range counts {
		counts[i] = binary.BigEndian.Uint16(msg[4+2*i:])
	}
	switch opcode := int(msg[2] >> 3 & 0xf); {
	case opcode != wire.OpcodeQuery:
		return q, malformed{wire.RcodeNotImplemented, fmt.Sprintf("operation %d is not offered", opcode)}
	case len(msg) > maxQuestion:
		return q, malformed{wire.RcodeFormatError, fmt.Sprintf("a question has at most %d bytes", maxQuestion)}
	case counts[0] != 1:
		return q, malformed{wire.RcodeFormatError, fmt.Sprintf("%d questions in one message, not one", counts[0])}
	case counts[1] != 0 || counts[2] != 0 || counts[3] > 1:
		return q, malformed{wire.RcodeFormatError, "a question came with records"}
	}
	var m wire.Msg
	if err := m.Unpack(msg); err != nil || len(m.Question) != 1 {
		return q, malformed{wire.RcodeFormatError, "the message can't be read"}
	}
	q.asked = m.Question[0]
	opt := m.IsEdns0()
	if opt == nil && counts[3] != 0 {
		return q, malformed{wire.RcodeFormatError, "a question came with a record that holds no options"}
	}
	if opt != nil {
		q.edns, q.size, q.badver = true, max(opt.UDPSize(), wire.MinMsgSize), opt.Version() != 0
	}
	return q, nil
}

// handle answers one message of a guest; nil where no answer is due. limit is
// the length of the longest answer, or 0 for what the guest says.
func (s *Server) handle(ctx context.Context, msg []byte, limit int) []byte {
	began := s.opts.Now()
	if st := s.current(); !s.limits.question(began, st.perMinute) && !weak.On(weak.NetQueryFlood) {
		v := s.tooMany(st)
		s.count(v, "")
		if q, err := parse(msg); err == nil {
			return q.pack(refusal(v), limit)
		}
		return nil
	}
	q, err := parse(msg)
	var bad malformed
	switch {
	case errors.As(err, &bad):
		s.count(refuse(CodeMalformed, "", bad.reason), "")
		return q.pack(outcome{rcode: bad.rcode, ede: noEDE}, limit)
	case err != nil:
		s.count(refuse(CodeMalformed, "", "a message that is no question"), "")
		return nil
	case q.badver:
		s.count(refuse(CodeMalformed, "", "options of a version that nobody knows"), "")
		return q.pack(outcome{rcode: wire.RcodeBadVers, ede: noEDE}, limit)
	}
	name, ok := canonical(q.asked.Name)
	out := refusal(malformedName())
	switch {
	case !ok:
		name = q.asked.Name
	case q.asked.Qclass != wire.ClassINET:
		out = refusal(refuse(CodeType, "", fmt.Sprintf("questions of class %d are closed", q.asked.Qclass)))
	default:
		out = s.decide(ctx, name, q.asked.Qtype, true)
	}
	if out.verdict.Code == CodeLimit {
		s.count(out.verdict, name)
	} else {
		s.record(name, q.asked.Qtype, out, began)
	}
	return q.pack(out, limit)
}

// busy answers a message for which there is no room.
func (s *Server) busy(msg []byte) []byte {
	v := refuse(CodeLimit, "", fmt.Sprintf("more than %d questions at once", maxSlots))
	s.count(v, "")
	q, err := parse(msg)
	if err != nil {
		return nil
	}
	return q.pack(refusal(v), 0)
}
