package sandbox

import (
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Traffic says how requests from outside reach a sandbox's ports. The guest
// agent's is not among them: it always asks for the sandbox's token.
type Traffic struct {
	// Restricted lets in only who shows Sandbox.TrafficToken.
	Restricted bool `json:"restricted,omitempty"`
	// MaskHost is what servers inside read as the Host of a request instead of
	// its own, with portPlaceholder for the port; "": its own. A name or an
	// address, with or without a port.
	MaskHost string `json:"mask_host,omitempty"`
	// AutoResume starts a sandbox that is stopped when a request for it comes
	// which it would let in.
	AutoResume bool `json:"auto_resume,omitempty"`
}

// portPlaceholder stands in Traffic.MaskHost for the port of a request.
const portPlaceholder = "${PORT}"

const maxHost = 253 // characters, as in DNS

var hostName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`) })

// HostFor returns MaskHost for a port, "" where there is none.
func (t Traffic) HostFor(port int) string {
	return strings.ReplaceAll(t.MaskHost, portPlaceholder, strconv.Itoa(port))
}

func (t Traffic) check() *Error {
	if t.MaskHost == "" || validHostPort(t.HostFor(65535)) {
		return nil
	}
	return Errorf(Invalid, "mask_host %s: not a host's name", refText(t.MaskHost)).
		WithHint("localhost, or localhost:%s", portPlaceholder)
}

// validHostPort reports whether s is a name or an address as a Host header
// has it, with or without a port.
func validHostPort(s string) bool {
	host := s
	if h, port, err := net.SplitHostPort(s); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
		if host = h; strings.Contains(h, ":") {
			return net.ParseIP(h) != nil
		}
	}
	if in, ok := strings.CutPrefix(host, "["); ok {
		in, ok = strings.CutSuffix(in, "]")
		return ok && strings.Contains(in, ":") && net.ParseIP(in) != nil
	}
	return len(host) <= maxHost && hostName().MatchString(host)
}
