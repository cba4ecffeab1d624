package ingress

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The headers by which E2B's SDKs say which sandbox they mean, and which let
// them in.
const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
	headerToken   = "X-Access-Token"
	headerTraffic = "E2b-Traffic-Access-Token"
)

const (
	// sharedHost is the name below the domain under which every sandbox is
	// reached by headers.
	sharedHost = "sandbox"
	// clientSuffix ends an ID as old clients write it: with the client's, which
	// is the same for all of ours.
	clientSuffix = "-carboy"
)

// target is a port of a sandbox, as a request names it.
type target struct {
	id   string // not yet known to exist, nor to be an ID
	port int
}

// target returns what a request is for where that is a guest, not the API. A
// target that can't be, or that its name and its headers do not agree on, is
// one with port 0.
func (in *Ingress) target(r *http.Request) (target, bool) {
	byName, named := parseHost(r.Host, in.o.Domain)
	ids, ports := r.Header.Values(headerSandbox), r.Header.Values(headerPort)
	if len(ids) == 0 && len(ports) == 0 {
		return byName, named
	}
	t, ok := parseHeaders(ids, ports)
	if !ok || named && t != byName {
		return target{}, true
	}
	return t, true
}

// parseHeaders reads the headers that name a target. Without a port it is the
// guest agent's.
func parseHeaders(ids, ports []string) (target, bool) {
	if len(ids) != 1 || len(ports) > 1 {
		return target{}, false
	}
	t := target{port: sandbox.GuestPort}
	if t.id = parseID(ids[0]); t.id == "" {
		return target{}, false
	}
	if len(ports) == 1 {
		t.port = parsePort(ports[0])
	}
	return t, t.port != 0
}

// parseHost reads PORT-ID.DOMAIN, with or without a port after it. A name that
// is of that form, but of no sandbox, is a target with port 0.
func parseHost(hostport, domain string) (target, bool) {
	if domain == "" {
		return target{}, false
	}
	host := HostName(hostport)
	name, ok := strings.CutSuffix(host, "."+domain)
	if !ok {
		return target{}, false
	}
	p, id, ok := strings.Cut(name, "-")
	if !ok || p == "" || strings.Trim(p, "0123456789") != "" || strings.Contains(id, ".") {
		return target{}, false
	}
	t := target{id: parseID(id), port: parsePort(p)}
	if t.id == "" || t.port == 0 {
		return target{}, true
	}
	return t, true
}

// parseID returns the ID that s spells, or "". An underscore is not allowed in
// a host's name: some clients want a hyphen instead.
func parseID(s string) string {
	s = strings.TrimSuffix(s, clientSuffix)
	if rest, ok := strings.CutPrefix(s, "sb-"); ok {
		s = "sb_" + rest
	}
	if !sandbox.ValidID(s) {
		return ""
	}
	return s
}

// parsePort returns 0 for what is no port in plain decimal.
func parsePort(s string) int {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s[0] == '0' || s[0] == '+' {
		return 0
	}
	return int(n)
}

// HostName returns a Host header's name, lower case, without its port.
func HostName(hostport string) string {
	host := strings.ToLower(hostport)
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}
