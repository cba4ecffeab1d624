package dns

import (
	"time"

	wire "github.com/miekg/dns"
)

// maxText bounds the words in an extended error.
const maxText = 200

// pack makes the answer to q. It holds what out says and nothing of what the
// guest sent but the question. limit is the length of the longest answer, or 0
// for what the guest takes in a datagram.
func (q question) pack(out outcome, limit int) []byte {
	m := &wire.Msg{MsgHdr: wire.MsgHdr{
		Id: q.id, Response: true, RecursionDesired: q.rd, RecursionAvailable: true, CheckingDisabled: q.cd, Rcode: out.rcode,
	}}
	if q.asked.Name != "" {
		m.Question = []wire.Question{q.asked}
		m.Answer = q.records(out)
	}
	if q.edns {
		m.Extra = []wire.RR{options(out)}
	}
	if limit == 0 {
		limit = min(int(q.size), maxDatagram)
	}
	m.Truncate(limit)
	b, err := m.Pack()
	if err != nil {
		// A record from outside can't be written again.
		m.Answer, m.Rcode = nil, wire.RcodeServerFailure
		if b, err = m.Pack(); err != nil {
			return nil
		}
	}
	return b
}

// records are the answer section: the chain from the question's name on, and
// what is at its end.
func (q question) records(out outcome) (rrs []wire.RR) {
	owner, ttl := q.asked.Name, uint32((out.ttl+time.Second-1)/time.Second)
	head := func(rrtype uint16) wire.RR_Header {
		return wire.RR_Header{Name: owner, Rrtype: rrtype, Class: wire.ClassINET, Ttl: ttl}
	}
	for _, target := range out.chain {
		rrs = append(rrs, &wire.CNAME{Hdr: head(wire.TypeCNAME), Target: target + "."})
		owner = target + "."
	}
	for _, a := range out.addrs {
		if a.Is4() {
			rrs = append(rrs, &wire.A{Hdr: head(wire.TypeA), A: a.AsSlice()})
		} else {
			rrs = append(rrs, &wire.AAAA{Hdr: head(wire.TypeAAAA), AAAA: a.AsSlice()})
		}
	}
	for _, rr := range out.rrs {
		rr = wire.Copy(rr)
		*rr.Header() = head(rr.Header().Rrtype)
		rrs = append(rrs, rr)
	}
	return rrs
}

// options are ours: how long a datagram may be, and why something went wrong.
func options(out outcome) *wire.OPT {
	opt := &wire.OPT{Hdr: wire.RR_Header{Name: ".", Rrtype: wire.TypeOPT}}
	opt.SetUDPSize(maxDatagram)
	if out.ede != noEDE {
		opt.Option = []wire.EDNS0{&wire.EDNS0_EDE{InfoCode: uint16(out.ede), ExtraText: out.text[:min(len(out.text), maxText)]}}
	}
	return opt
}
