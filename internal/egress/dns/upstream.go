package dns

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	wire "github.com/miekg/dns"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// Bounds of what is read from upstreams.
const (
	maxDatagram = 1232      // as announced to them; passes every link unfragmented
	maxMessage  = 16 * 1024 // over TCP
	maxJunk     = 16        // datagrams that answer something else
	maxRounds   = 2         // over all upstreams
)

// header is the length of a message's header.
const header = 12

// errTCP says that the question is to be asked again over TCP: the answer is
// too long for a datagram, or somebody may be forging.
var errTCP = errors.New("ask again over TCP")

// errForged is what does not answer the question that was asked.
var errForged = errors.New("the answer is to another question")

// ask puts a question to the upstreams, the one that answered last first,
// until one knows.
func (s *Server) ask(ctx context.Context, st *settings, name string, qtype uint16) (*wire.Msg, error) {
	if len(st.upstreams) == 0 {
		return nil, errors.New("there is no resolver to ask: name one in the policy's dns.upstreams")
	}
	first := int(s.preferred.Load())
	var last error
	for i := range maxRounds * len(st.upstreams) {
		n := (first + i) % len(st.upstreams)
		m, err := s.attempt(ctx, st.upstreams[n], name, qtype)
		if err == nil {
			s.preferred.Store(int64(n))
			return m, nil
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

// attempt asks one upstream, over UDP and, where that does not do, over TCP.
func (s *Server) attempt(ctx context.Context, to netip.AddrPort, name string, qtype uint16) (*wire.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, s.times.attempt)
	defer cancel()
	m, err := s.exchange(ctx, "udp", to, name, qtype)
	if errors.Is(err, errTCP) {
		m, err = s.exchange(ctx, "tcp", to, name, qtype)
	}
	switch {
	case err != nil:
		return nil, err
	case m.Rcode != wire.RcodeSuccess && m.Rcode != wire.RcodeNameError:
		return nil, fmt.Errorf("the resolver answered %s", rcodeName(m.Rcode))
	}
	return m, nil
}

// exchange sends a question over a connection of its own and reads the
// answer.
func (s *Server) exchange(ctx context.Context, network string, to netip.AddrPort, name string, qtype uint16) (*wire.Msg, error) {
	query, err := newQuery(name, qtype)
	if err != nil {
		return nil, err
	}
	conn, err := s.opts.Dial(ctx, network, to)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if network == "tcp" {
		return overTCP(conn, query)
	}
	return overUDP(conn, query)
}

// newQuery builds a question from nothing but a name and a type. The case of
// the name's letters is random, and so is the id: who forges an answer has to
// guess both, and the port.
func newQuery(name string, qtype uint16) ([]byte, error) {
	var random [2 + 256]byte
	_, _ = rand.Read(random[:]) // it never fails
	mixed := []byte(name + ".")
	for i, c := range mixed {
		if 'a' <= c && c <= 'z' && random[2+i]&1 != 0 {
			mixed[i] = c - 'a' + 'A'
		}
	}
	m := wire.Msg{
		MsgHdr:   wire.MsgHdr{Id: binary.BigEndian.Uint16(random[:]), RecursionDesired: true},
		Question: []wire.Question{{Name: string(mixed), Qtype: qtype, Qclass: wire.ClassINET}},
	}
	m.SetEdns0(maxDatagram, false)
	return m.Pack()
}

func overUDP(conn net.Conn, query []byte) (*wire.Msg, error) {
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	buf := make([]byte, maxDatagram+1)
	for range maxJunk {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		if n > maxDatagram {
			return nil, errTCP // cut off, and longer than we said
		}
		m, err := reply(query, buf[:n])
		if errors.Is(err, errForged) {
			continue // the true one may be on its way
		}
		return m, err
	}
	return nil, errTCP
}

func overTCP(conn net.Conn, query []byte) (*wire.Msg, error) {
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n > maxMessage {
		return nil, fmt.Errorf("the answer has %d bytes, more than %d", n, maxMessage)
	}
	buf := make([]byte, n)
	if _, err := io.ReadFull(conn, buf); err != nil {
		return nil, err
	}
	m, err := reply(query, buf)
	if errors.Is(err, errTCP) {
		return nil, errors.New("the answer is cut off, even over TCP")
	}
	return m, err
}

// reply reads what came for query. It returns errForged for what is not its
// answer and errTCP for one that says to come back over TCP, or has the right
// name in the wrong case, as resolvers do that know nothing of the case being a
// check.
func reply(query, msg []byte) (*wire.Msg, error) {
	if len(msg) < header {
		return nil, errForged
	}
	section := query[header : len(query)-optLen]
	if !weak.On(weak.NetForgedOpen) {
		if err := answers(query, msg, section); err != nil {
			return nil, err
		}
	}
	if truncated := msg[2]&0x02 != 0; truncated {
		return nil, errTCP
	}
	var m wire.Msg
	if err := m.Unpack(msg); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return &m, nil
}

// optLen is the length of the record with our options, at the end of every
// query: no option is in it.
const optLen = 11

// answers reports whether msg is a response to query, whose question is
// section: the same id, and the same question, byte for byte.
func answers(query, msg, section []byte) error {
	response, opcode := msg[2]&0x80 != 0, msg[2]>>3&0xf
	one := binary.BigEndian.Uint16(msg[4:]) == 1
	if !response || opcode != 0 || !bytes.Equal(msg[:2], query[:2]) || !one || len(msg) < header+len(section) {
		return errForged
	}
	got := msg[header : header+len(section)]
	name := len(section) - 4 // the type and the class follow
	switch {
	case !bytes.Equal(got[name:], section[name:]) || !bytes.EqualFold(got[:name], section[:name]):
		return errForged
	case !bytes.Equal(got[:name], section[:name]):
		return errTCP
	}
	return nil
}

// follow asks for a name, and for what it is another name of until there is an
// end.
func (s *Server) follow(ctx context.Context, st *settings, name string, qtype uint16) answer {
	sum := answer{ttl: maxTTL}
	for target := name; ; {
		m, err := s.ask(ctx, st, target, qtype)
		if err != nil {
			return unanswered(err)
		}
		part, more, err := read(m, target, qtype)
		if err != nil {
			return unanswered(err)
		}
		sum.chain = append(sum.chain, part.chain...)
		sum.kind, sum.addrs, sum.rrs, sum.ttl = part.kind, part.addrs, part.rrs, min(sum.ttl, part.ttl)
		if more == "" || specialReason(more) != "" {
			return sum
		}
		if len(sum.chain) > maxChain || more == name || slices.Index(sum.chain, more) < len(sum.chain)-1 {
			return unanswered(errChain)
		}
		target = more
	}
}

// unanswered is the answer where there is none.
func unanswered(err error) answer {
	f := failure{wire.ExtendedErrorCodeNetworkError, err.Error()}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		f = failure{wire.ExtendedErrorCodeNoReachableAuthority, "no resolver answered in time"}
	}
	return answer{kind: failed, ttl: failureTTL, fail: f}
}
