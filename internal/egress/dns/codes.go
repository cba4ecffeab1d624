package dns

import (
	"errors"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// What the resolver refuses for, beside the codes of policy.
const (
	CodeMalformed policy.Code = "bad_request"     // not a question that can be answered
	CodeType      policy.Code = "type_closed"     // a type that the policy does not name
	CodeShape     policy.Code = "name_suspicious" // shaped as if it carried data
	CodeLimit     policy.Code = "limit_reached"   // more questions than agreed
	CodeUpstream  policy.Code = "upstream_failed" // nobody outside answered
)

// What Resolve returns where nothing was refused and there is no address.
var (
	ErrNoName   = errors.New("no such name")
	ErrNoData   = errors.New("the name has no address")
	ErrUpstream = errors.New("the name could not be resolved")
)

// refuse is a verdict of the resolver's own.
func refuse(code policy.Code, rule, reason string) policy.Verdict {
	return policy.Verdict{Mode: policy.ModeRefuse, Code: code, Rule: rule, Reason: reason}
}

// hinted is a verdict that says what would allow it.
func hinted(v policy.Verdict, hint string) policy.Verdict {
	v.Hint = hint
	return v
}
