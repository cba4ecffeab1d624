package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// GateHost is the gate's own name inside, below which services are called.
const GateHost = "gate.carboy.internal"

// Bounds of the services of a policy.
const (
	MaxServices    = 32
	maxServiceName = 32 // bytes
)

// serviceScheme is what --allow has before the name of a service.
const serviceScheme = "service:"

var serviceForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[a-z](?:-?[a-z0-9])*\z`) })

// reserved are the gate's own pages, and what they may come to be.
var reserved = []string{"healthz", "carboy"}

// ValidService reports whether a program outside may serve under name.
func ValidService(name string) bool { return serviceProblem(name) == "" }

func serviceProblem(name string) string {
	switch {
	case slices.Contains(reserved, name):
		return Quoted(name) + " is the gate's own"
	case len(name) > maxServiceName || !serviceForm().MatchString(name):
		return Quoted(name) + " is no name of a service"
	}
	return ""
}

// serviceHint says what one may be called.
const serviceHint = "a to z, 0 to 9 and single -, a letter first, at most 32"

func compileServices(p *Policy, errs *Errors) {
	for i, name := range p.Services {
		if problem := serviceProblem(name); problem != "" {
			errs.Add(at("services", i), problem, serviceHint)
		}
	}
	p.Services = distinct(p.Services)
}

// WithServices is the policy with further services.
func WithServices(p Policy, names ...string) Policy {
	p = *Clone(&p)
	p.Services = distinct(append(p.Services, names...))
	return p
}

// Allow is the policy with what one --allow says: what ParseAllow reads, or
// service:NAME. The error is an *Error.
func Allow(p Policy, arg string) (Policy, error) {
	name, ok := strings.CutPrefix(arg, serviceScheme)
	if !ok {
		rules, err := ParseAllow(arg)
		if err != nil {
			return Policy{}, err
		}
		return With(p, rules...), nil
	}
	if problem := serviceProblem(name); problem != "" {
		return Policy{}, &Error{Where: "--allow " + Quoted(arg), Problem: problem, Hint: serviceHint}
	}
	return WithServices(p, name), nil
}

// DescribeService is a service in one line, for people.
func DescribeService(name string) string {
	return fmt.Sprintf("allow http://%s/%s/, which a program outside serves", GateHost, Printable(name))
}

// Service decides about a call of a service.
func (s *Set) Service(name string) Verdict {
	if slices.Contains(s.policy.Services, name) {
		return Verdict{Mode: ModeAllow, Reason: "the service " + name + " is among those of the policy"}
	}
	v := refuse(CodeNotAllowed, "%s is no service that this sandbox may call", Quoted(name))
	if ValidService(name) {
		v = v.hint(serviceScheme + name)
	}
	return v
}

// Services are the names of those that may be called, in order.
func (s *Set) Services() []string { return slices.Sorted(slices.Values(s.policy.Services)) }

// ownPage decides about a request for the gate itself.
func (s *Set) ownPage(t *target) Verdict {
	name, _, _ := strings.Cut(strings.TrimPrefix(t.url.EscapedPath(), "/"), "/")
	switch {
	case t.scheme != "http" && t.scheme != "https":
		return refuse(CodeProtocol, "%s has pages and services, over HTTP", GateHost)
	case name == "" || name == "healthz":
		return Verdict{Mode: ModeAllow, Reason: "the gate's own pages are for everybody inside"}
	}
	return s.Service(name)
}
