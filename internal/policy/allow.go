package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ParseAllow reads what --allow takes, as rules to put behind a policy's own
// (With does): the name of a preset, or [SCHEME://]DESTINATION[:PORT]. The
// destination is a host, a wildcard, an address, IPv6 in brackets where a
// port follows, or a range of addresses. The scheme is http, https, tls (passed
// through unread), tcp or udp. Without a port it is 443 and 80; a port other
// than those, without a scheme, is any bytes over TCP. The error is an *Error.
func ParseAllow(arg string) ([]Rule, error) {
	if preset, ok := presetByName(arg); ok {
		return cloneRules(preset.Rules), nil
	}
	r, problem, hint := parseAllow(arg)
	if problem != "" {
		return nil, &Error{Where: "--allow " + Quoted(arg), Problem: problem, Hint: hint}
	}
	// The argument is the best name for the rule that it made: records say it.
	if id := strings.ToLower(arg); idForm().MatchString(id) && id != defaultRule {
		r.ID = id
	}
	// What only Compile knows is told here, where the argument is at hand.
	if _, err := Compile(Policy{Rules: []Rule{r}}, nil); err != nil {
		first := Problems(err)[0]
		return nil, &Error{Where: "--allow " + Quoted(arg), Problem: first.Problem, Hint: first.Hint}
	}
	return []Rule{r}, nil
}

// schemes are what may stand before a destination, and what they say.
var schemes = map[string]Rule{
	"http":  {Protocol: ProtocolHTTP, Ports: []string{"80"}},
	"https": {Protocol: ProtocolHTTP, Ports: []string{"443"}},
	"tls":   {Protocol: ProtocolTLS},
	"tcp":   {Protocol: ProtocolTCP},
	"udp":   {Protocol: ProtocolUDP},
}

func parseAllow(arg string) (r Rule, problem, hint string) {
	rest := arg
	scheme, after, schemed := strings.Cut(arg, "://")
	if schemed {
		var known bool
		if r, known = schemes[strings.ToLower(scheme)]; !known {
			return r, Quoted(scheme) + " is no scheme", "http, https, tls, tcp or udp"
		}
		r.Ports = slices.Clone(r.Ports)
		rest = strings.TrimSuffix(after, "/")
	}
	if strings.Contains(rest, "@") {
		return r, "a user is named", "only hosts, addresses and ports are"
	}
	host, port, problem, hint := splitAllow(rest)
	if problem != "" {
		return r, problem, hint
	}
	if strings.Contains(host, "/") {
		if prefix, problem, _ := ParsePrefix(host); problem != "" && !prefix.IsValid() {
			return r, "a path is more than --allow can say", "a policy file has matches for paths: --policy FILE"
		}
	}
	if port != "" {
		r.Ports = []string{port}
		if !schemed && port != "443" && port != "80" {
			r.Protocol = ProtocolTCP
		}
	}
	_, isPreset := presetByName(strings.ToLower(host))
	switch _, err := netip.ParseAddr(host); {
	case host == "*":
		return r, "\"*\" names every host", "--network on"
	case host == "":
		return r, "no host is named", "a host, an address or a preset: " + presetNames()
	case isPreset:
		return r, fmt.Sprintf("%s is a preset, which has hosts and ports of its own", Quoted(strings.ToLower(host))), "--allow " + strings.ToLower(host)
	case err == nil || strings.Contains(host, "/"):
		r.Addresses = []string{host}
	default:
		r.Hosts = []string{host}
		if !strings.Contains(host, ".") && port == "" && !schemed {
			return r, Quoted(host) + " is no preset", didYouMean(host) + "one of " + presetNames() + "; a host of one word is written with its port"
		}
	}
	return r, "", ""
}

// splitAllow takes the port off a destination.
func splitAllow(s string) (host, port, problem, hint string) {
	if after, bracketed := strings.CutPrefix(s, "["); bracketed {
		inner, rest, closed := strings.Cut(after, "]")
		if prefix, ok := strings.CutPrefix(rest, "/"); ok { // [2001:db8::]/32:443
			bits, port, _ := strings.Cut(prefix, ":")
			inner, rest = inner+"/"+bits, ""
			if port != "" {
				rest = ":" + port
			}
		}
		port, hasPort := strings.CutPrefix(rest, ":")
		if !closed || !strings.Contains(inner, ":") || rest != "" && (!hasPort || port == "") {
			return "", "", Quoted(s) + " is no IPv6 address and port", "[2001:db8::1]:443"
		}
		return inner, port, "", ""
	}
	if strings.Count(s, ":") > 1 {
		return s, "", "", "" // IPv6: what follows its last colon is part of it
	}
	host, port, hasPort := strings.Cut(s, ":")
	if hasPort && strings.Contains(port, "/") {
		return "", "", "a path is more than --allow can say", "a policy file has matches for paths: --policy FILE"
	}
	if hasPort {
		if _, ok := parsePort(port); !ok {
			return "", "", Quoted(port) + " is no port", "1 to 65535, or a range: 8000-8099"
		}
	}
	return host, port, "", ""
}
