package server

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The headers by which E2B's SDKs say which sandbox they mean.
const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
	headerToken   = "X-Access-Token"
)

// target is a port of a sandbox, as a request names it.
type target struct {
	id   string // not yet known to exist, nor to be an ID
	port int
}

// target returns what a request is for where that is a guest, not the API. A
// target that can't be is one with port 0.
func (s *Server) target(r *http.Request) (target, bool) {
	ids, ports := r.Header.Values(headerSandbox), r.Header.Values(headerPort)
	if len(ids) == 0 {
		return parseHost(r.Host, s.o.Domain)
	}
	if len(ids) > 1 || len(ports) > 1 || !sandbox.ValidID(ids[0]) {
		return target{}, true
	}
	t := target{id: ids[0], port: sandbox.GuestPort}
	if len(ports) == 1 {
		t.port = parsePort(ports[0])
	}
	return t, true
}

// parseHost reads PORT-ID.DOMAIN, with or without a port after it.
func parseHost(hostport, domain string) (target, bool) {
	if domain == "" {
		return target{}, false
	}
	host, _ := splitHost(hostport)
	name, ok := strings.CutSuffix(host, "."+domain)
	if !ok {
		return target{}, false
	}
	port, id, ok := strings.Cut(name, "-")
	if !ok {
		return target{}, false
	}
	// An underscore is not allowed in a host's name; some clients want "-".
	if rest, ok := strings.CutPrefix(id, "sb-"); ok {
		id = "sb_" + rest
	}
	if !sandbox.ValidID(id) {
		return target{}, false
	}
	return target{id: id, port: parsePort(port)}, true
}

// parsePort returns 0 for what is no port in plain decimal.
func parsePort(s string) int {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s[0] == '0' || s[0] == '+' {
		return 0
	}
	return int(n)
}
