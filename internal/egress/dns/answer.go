package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	wire "github.com/miekg/dns"
)

// Bounds of one answer.
const (
	maxChain   = 8  // other names on the way
	maxRecords = 32 // addresses, or records of other types
)

var errChain = errors.New("the name is another name of too many others, or of itself")

// read takes from a message what answers a question, and nothing else: the
// names that name is another name of, and the records of the type at their
// end. more is where to go on asking: the end of a chain about which the
// message says nothing.
func read(m *wire.Msg, name string, qtype uint16) (a answer, more string, err error) {
	at, alias := index(m.Answer, qtype)
	a.ttl = maxTTL
	end := name
	for len(at[end]) == 0 {
		link, ok := alias[end]
		if !ok {
			break
		}
		target, ok := canonical(link.Target)
		if !ok {
			return answer{}, "", errors.New("the name is another name of what can be no name")
		}
		if a.chain = append(a.chain, target); len(a.chain) > maxChain {
			return answer{}, "", errChain
		}
		a.ttl = min(a.ttl, seconds(link.Hdr.Ttl))
		end = target
	}
	records := at[end]
	switch {
	case len(records) > 0:
		a.take(records)
	case m.Rcode == wire.RcodeNameError:
		a.kind = noName
	default:
		a.kind = noData
		if len(a.chain) > 0 && authority(m) == nil {
			more = end
		}
	}
	if a.kind != found && more == "" {
		a.ttl = min(a.ttl, negativeTTL(m))
	}
	a.ttl = max(a.ttl, minTTL)
	return a, more, nil
}

// index sorts an answer section by owner: records of the type, and aliases,
// the first of each owner. Records of other classes and types are left out.
func index(rrs []wire.RR, qtype uint16) (at map[string][]wire.RR, alias map[string]*wire.CNAME) {
	at, alias = map[string][]wire.RR{}, map[string]*wire.CNAME{}
	for _, rr := range rrs {
		h := rr.Header()
		if h.Class != wire.ClassINET || h.Rrtype != qtype && h.Rrtype != wire.TypeCNAME {
			continue
		}
		owner, ok := canonical(h.Name)
		if !ok {
			continue
		}
		if h.Rrtype == qtype {
			at[owner] = append(at[owner], rr)
		} else if c, ok := rr.(*wire.CNAME); ok && alias[owner] == nil {
			alias[owner] = c
		}
	}
	return at, alias
}

// take keeps the records at the end of the chain.
func (a *answer) take(records []wire.RR) {
	for _, rr := range records[:min(len(records), maxRecords)] {
		a.ttl = min(a.ttl, seconds(rr.Header().Ttl))
		var addr netip.Addr
		switch rr := rr.(type) {
		case *wire.A:
			addr, _ = netip.AddrFromSlice(rr.A.To4())
		case *wire.AAAA:
			addr, _ = netip.AddrFromSlice(rr.AAAA.To16())
		default:
			a.rrs = append(a.rrs, rr)
			continue
		}
		if addr.IsValid() {
			a.addrs = append(a.addrs, addr)
		}
	}
	if len(a.addrs)+len(a.rrs) == 0 {
		a.kind = noData
	}
}

// authority returns the record that says until when there is nothing.
func authority(m *wire.Msg) *wire.SOA {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*wire.SOA); ok {
			return soa
		}
	}
	return nil
}

func negativeTTL(m *wire.Msg) time.Duration {
	soa := authority(m)
	if soa == nil {
		return minTTL
	}
	return min(seconds(soa.Hdr.Ttl), seconds(soa.Minttl), maxNegative)
}

// seconds reads a TTL. One with the highest bit set counts as none.
func seconds(ttl uint32) time.Duration {
	if ttl > 1<<31-1 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

// rcodeName is an rcode's name, or its number.
func rcodeName(rcode int) string {
	if n, ok := wire.RcodeToString[rcode]; ok {
		return n
	}
	return fmt.Sprintf("RCODE%d", rcode)
}
