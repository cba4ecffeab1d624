package boxservice

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Where a runtime is that nobody says more of.
const (
	DefaultPort = "5410"
	// DockerHost is the runtime's name beside a platform that runs in Docker.
	DockerHost = "langbot_box"
	// PlatformDocker says that the program runs in a container.
	PlatformDocker = "docker"

	localHost = "127.0.0.1"
)

// place is where a runtime is: its calls, and its processes' input and output.
type place struct {
	rpc   string // "ws://127.0.0.1:5410/rpc/ws"; "": a child's standard input and output
	relay string // "http://127.0.0.1:5410"
}

// placeOf finds the place that o names. Whether it is a WebSocket tells whether
// the runtime has a file system of its own.
func placeOf(o Options) (place, error) {
	endpoint := strings.TrimSpace(o.Endpoint)
	switch {
	case endpoint != "":
	case o.Platform == PlatformDocker:
		endpoint = "ws://" + DockerHost
	case o.Platform != "":
		return place{}, sandbox.Errorf(sandbox.Invalid, "platform must be %q or empty, not %q", PlatformDocker, o.Platform)
	case o.Standalone:
		endpoint = "ws://" + localHost
	default:
		at, err := childAddr(o.Listen)
		return place{relay: "http://" + at}, err
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = "ws://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return place{}, sandbox.Errorf(sandbox.Invalid, "endpoint must be ws://HOST[:PORT] or wss://HOST[:PORT], without a path or a user")
	}
	host, port := cmp.Or(u.Hostname(), localHost), cmp.Or(u.Port(), DefaultPort)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || !validHost(host) {
		return place{}, sandbox.Errorf(sandbox.Invalid, "endpoint: HOST must be a name or an address, and PORT one of 1 to 65535")
	}
	at := net.JoinHostPort(host, port)
	switch u.Scheme {
	case "ws", "http":
		return place{rpc: "ws://" + at + "/rpc/ws", relay: "http://" + at}, nil
	case "wss", "https":
		return place{rpc: "wss://" + at + "/rpc/ws", relay: "https://" + at}, nil
	}
	return place{}, sandbox.Errorf(sandbox.Invalid, "endpoint must be ws:// or wss://, not %s://", u.Scheme)
}

// childAddr is where a child is reached that listens at an address.
func childAddr(listen string) (string, error) {
	if listen == "" {
		return net.JoinHostPort(localHost, DefaultPort), nil
	}
	host, port, err := net.SplitHostPort(listen)
	if addr, aerr := netip.ParseAddr(host); host == "" || aerr == nil && addr.IsUnspecified() {
		host = localHost
	}
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || !validHost(host) {
		return "", sandbox.Errorf(sandbox.Invalid, "listen must be HOST:PORT, not %q", listen)
	}
	return net.JoinHostPort(host, port), nil
}

var hostPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,252}$`) })

func validHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" || hostPattern().MatchString(host)
}

// headers are what a runtime is told before anything is asked of it. The token
// is in no error.
func headers(o Options) (http.Header, error) {
	h := http.Header{}
	if o.Token != "" {
		if len(o.Token) < rpc.MinToken || strings.ContainsFunc(o.Token, func(r rune) bool { return unicode.IsSpace(r) || r > unicode.MaxASCII || !unicode.IsPrint(r) }) {
			return nil, sandbox.Errorf(sandbox.Invalid, "the control token must have at least %d characters of ASCII, none of them a space", rpc.MinToken)
		}
		h.Set(langbot.HeaderControlToken, o.Token)
	}
	if o.Instance != "" {
		if !rpc.ValidInstance(o.Instance) {
			return nil, sandbox.Errorf(sandbox.Invalid, "instance must be 1 to 128 letters, digits, or one of . _ : -, and begin with a letter or digit, not %q", o.Instance)
		}
		h.Set(langbot.HeaderInstance, o.Instance)
	}
	return h, nil
}
