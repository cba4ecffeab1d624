package policy

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// Step is one question that something from a sandbox raises, and its answer.
type Step struct {
	Question string  `json:"question"` // "resolve api.example.com", "connect to api.example.com:443"
	Verdict  Verdict `json:"verdict"`
}

// maxTried bounds the work of a test: bytes of a request by the size of the expressions that
// each of them may be held against.
const maxTried = 100_000_000

// Test decides as the gate would about something that a sandbox might do, step
// by step up to the refusal, or to the last: "dns:api.example.com", "POST
// https://api.example.com/v1/x" (GET where no method is named), and tls, tcp
// or udp as in "tcp://db.example.com:5432". A name is taken to have the given
// address, or a public one where that is not valid. Nothing is resolved, and
// nothing is sent. An error, an *Error, means that the question could not be
// read.
func (s *Set) Test(what string, addr netip.Addr) ([]Step, error) {
	if name, ok := strings.CutPrefix(what, "dns:"); ok {
		return []Step{{"resolve " + Printable(name), s.Name(name)}}, nil
	}
	t, err := parseTarget(what)
	if err != nil {
		return nil, err
	}
	if s.expressions*len(what) > maxTried {
		return nil, &Error{
			Where: Quoted(what), Hint: "a shorter path",
			Problem: fmt.Sprintf("%d bytes: of a policy with such expressions %d are the most", len(what), maxTried/s.expressions),
		}
	}
	if t.name == GateHost {
		return []Step{{t.method + " " + GateHost, s.ownPage(&t)}}, nil
	}
	run := tester{set: s, target: t}
	switch {
	case t.addr.IsValid():
		run.dest = s.newDest(t.addr, t.port, t.udp())
	case addr.IsValid():
		run.dest = s.newDest(addr, t.port, t.udp())
	default:
		run.dest = dest{unknown: true, port: t.port, udp: t.udp()}
	}
	run.all()
	return run.steps, nil
}

// target is what Test is asked about.
type target struct {
	scheme, method string
	name           string // clean; "" where it is an address
	addr           netip.Addr
	port           uint16
	url            *url.URL
}

func (t *target) udp() bool { return t.scheme == "udp" }

func parseTarget(what string) (target, error) {
	const hint = "GET https://api.example.com/v1, tcp://db.example.com:5432 or dns:api.example.com"
	bad := func(problem string) (target, error) {
		return target{}, &Error{Where: Quoted(what), Problem: problem, Hint: hint}
	}
	t := target{method: "GET"}
	rest := strings.TrimSpace(what)
	if method, after, ok := strings.Cut(rest, " "); ok {
		t.method, rest = method, strings.TrimSpace(after)
	}
	bare := !strings.ContainsAny(rest, ".:/[") // a word, and no host that anybody reaches
	if bare && token(t.method) {
		return target{}, &Error{Where: Quoted(what), Problem: "is neither a URL nor HOST:PORT nor a host name with a dot", Hint: presetHint(rest) + hint}
	}
	if !strings.Contains(rest, "://") {
		rest = "https://" + rest
	}
	u, err := url.Parse(rest)
	if err != nil || u.Host == "" || u.User != nil || len(rest) > 8*maxText {
		return bad("is no URL")
	}
	if !token(t.method) {
		return bad("has no method")
	}
	t.scheme, t.url = u.Scheme, u
	port, known := map[string]string{"http": "80", "https": "443", "tls": "443", "tcp": "", "udp": ""}[u.Scheme]
	if !known {
		return bad("has a scheme that is none of http, https, tls, tcp and udp")
	}
	if p := u.Port(); p != "" {
		port = p
	}
	n, ok := portNumber(port)
	if !ok {
		return bad("has no port")
	}
	t.port = n
	if t.name, t.addr, err = CleanHost(u.Hostname()); err != nil {
		return bad(err.Error())
	}
	return t, nil
}

// tester goes through the gate's questions.
type tester struct {
	set    *Set
	target target
	dest   dest
	steps  []Step
}

// ask notes an answer, and reports whether there is more to ask.
func (t *tester) ask(question string, v Verdict) bool {
	t.steps = append(t.steps, Step{question, v})
	return v.Allowed()
}

func (t *tester) all() {
	name, d := t.target.name, &t.dest
	if name != "" {
		if !t.ask("resolve "+name, t.set.Name(name)) {
			return
		}
		if !d.unknown && !t.ask("answer "+d.raw.String(), t.set.Address(d.raw)) {
			return
		}
	}
	what := net.JoinHostPort(name, strconv.Itoa(int(d.port)))
	if name == "" {
		what = where("", d)
	}
	v := t.connect(name, d)
	if !t.ask("connect to "+what, v) || v.Mode != ModeSniff {
		return
	}
	tls := t.target.scheme == "https" || t.target.scheme == "tls"
	question := "open TLS to " + what
	if !tls {
		question = "send to " + what
	}
	if v = t.set.streamTo(name, true, tls, d); !t.ask(question, v) || v.Mode != ModeInspect || t.target.scheme == "tls" {
		return
	}
	r := Request{Name: name, TLS: tls, Method: t.target.method, URL: t.target.url, Header: map[string][]string{}}
	t.ask(t.target.method+" "+what, t.set.request(&r, d))
}

func (t *tester) connect(name string, d *dest) Verdict {
	if d.unknown {
		return t.set.connectTo(name, d)
	}
	c := Conn{UDP: d.udp, Addr: netip.AddrPortFrom(d.raw, d.port)}
	if name != "" {
		c.Names = []string{name}
	}
	return t.set.Connect(c)
}
