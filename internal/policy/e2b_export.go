package policy

// shownSecret is what stands for the value of a header: it can't be read again.
const shownSecret = "[secret]"

// ToE2B says in E2B's words what a policy that FromE2B made lets through.
// Values of headers are not told. Of another policy it says what can be said:
// the hosts and addresses that its rules name.
func ToE2B(p Policy) E2BNetwork {
	var n E2BNetwork
	if p.Default != DefaultPublic {
		n.DenyOut = append(n.DenyOut, "0.0.0.0/0")
	}
	for _, r := range p.Rules {
		switch {
		case len(r.Secrets) > 0:
			n.addHeaders(r)
		case r.Action == ActionDeny:
			n.DenyOut = append(n.DenyOut, r.Addresses...)
		case r.Protocol == ProtocolUDP: // the rule for TCP says the same
		default:
			n.AllowOut = append(append(n.AllowOut, r.Hosts...), r.Addresses...)
		}
	}
	n.AllowOut, n.DenyOut = distinct(n.AllowOut), distinct(n.DenyOut)
	return n
}

func (n *E2BNetwork) addHeaders(r Rule) {
	if n.Rules == nil {
		n.Rules = map[string][]E2BRule{}
	}
	headers := map[string]string{}
	for _, s := range r.Secrets {
		if s.Header != "" {
			headers[s.Header] = shownSecret
		}
	}
	for _, h := range r.Hosts {
		n.Rules[h] = append(n.Rules[h], E2BRule{Transform: &E2BTransform{Headers: headers}})
	}
}
