package launch

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// ParsePublish reads [HOSTPORT:]PORT. A HOSTPORT of 0, or none, is any that is free.
func ParsePublish(s string) (api.Publish, error) {
	bad := func(why string) (api.Publish, error) {
		return api.Publish{}, fmt.Errorf("%q is not a port: %s; use PORT or HOSTPORT:PORT, such as 8080:3000", s, why)
	}
	host, port, both := strings.Cut(s, ":")
	if !both {
		host, port = "0", s
	}
	if strings.Contains(port, ":") {
		return bad("it has an address, and a port is open on the loopback alone")
	}
	out := api.Publish{}
	for _, one := range []struct {
		text string
		into *int
		from uint64
	}{{host, &out.HostPort, 0}, {port, &out.Port, 1}} {
		n, err := strconv.ParseUint(one.text, 10, 16)
		if err != nil || n < one.from || strconv.FormatUint(n, 10) != one.text {
			return bad(fmt.Sprintf("%.20q is no number from %d to 65535", one.text, one.from))
		}
		*one.into = int(n)
	}
	return out, nil
}

// ParsePorts reads what ParsePublish does, of one sandbox: each once.
func ParsePorts(list []string) (out []api.Publish, err error) {
	var all []sandbox.Publish
	for _, s := range list {
		p, err := ParsePublish(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
		all = append(all, sandbox.Publish{Port: p.Port, HostPort: p.HostPort})
	}
	if err := sandbox.CheckPublish(all); err != nil {
		return nil, err
	}
	return out, nil
}
