package learn

import (
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// overRule is the rule that ends what is open when the command has ended. No host can
// have such a name.
const overRule = "carboy/learning-is-over"

// codeCut is that of what was let through until the policy changed.
const codeCut = "cut"

// Over is a policy with everything denied, for the end of what is open under it.
func Over(p policy.Policy) policy.Policy {
	return policy.With(p, policy.Rule{ID: overRule, Action: policy.ActionDeny, Addresses: []string{"0.0.0.0/0", "::/0"}})
}

// ended are records in which connections that Over cut are what they were until then:
// allowed, by the rule that they name.
func ended(records []api.NetRecord) []api.NetRecord {
	out := slices.Clone(records)
	for i := range out {
		r := &out[i]
		unread := r.Protocol == "tls" || r.Protocol == "tcp" || r.Protocol == "udp"
		if unread && r.Verdict == deny && r.Code == codeCut && r.Rule != overRule && strings.HasSuffix(r.Reason, "denied by rule "+overRule) {
			r.Verdict, r.Code, r.Reason = allow, "", ""
		}
	}
	return out
}
