package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/text/tree"
)

// FromSandboxRuntime makes a policy of the settings of Anthropic's
// sandbox-runtime, as JSON: of network.allowedDomains, deniedDomains and
// allowAllDomains, and of what tlsTerminate excludes. What the rest asks for
// is a Note where a sandbox has it in another way or needs it not, and an
// error, which joins *Error, where it would be lost; a setting that is not
// known is one.
func FromSandboxRuntime(text []byte) (Policy, []Note, error) {
	root, err := parseTree(text)
	if err != nil {
		return Policy{}, nil, err
	}
	im := runtimeImport{policy: Policy{Version: Version}}
	im.settings(root)
	if err := im.errs.Err(); err != nil {
		return Policy{}, nil, err
	}
	if _, err := Compile(im.policy, nil); err != nil {
		return Policy{}, nil, err
	}
	return im.policy, im.notes, nil
}

type runtimeImport struct {
	policy Policy
	notes  []Note
	errs   Errors
	ids    map[string]bool
}

// IsSandboxRuntime reports whether a text looks like settings of
// sandbox-runtime, rather than like a policy.
func IsSandboxRuntime(text []byte) bool {
	root, err := parseTree(text)
	if err != nil || root.Kind != tree.Map {
		return false
	}
	return slices.ContainsFunc(root.Pairs, func(p pair) bool { return p.Key == "network" && p.Value.Kind == tree.Map })
}

// elsewhere are settings that say nothing of the network, or nothing that a
// sandbox of ours would do otherwise.
var elsewhere = map[string]string{
	"filesystem":                   "not carried: a sandbox sees the directories that it is given, see --workspace and --mount",
	"credentials":                  "not carried: a sandbox has none of the caller's, and is given secrets by --secret",
	"ignoreViolations":             "not carried: every refusal is recorded",
	"enableWeakerNestedSandbox":    "not carried: a wall that can't be kept is an error",
	"enableWeakerNetworkIsolation": "not carried: it is about macOS",
	"allowAppleEvents":             "not carried: it is about macOS",
	"allowPty":                     "not carried: terminals work",
	"ripgrep":                      "not carried: nothing is searched for",
	"mandatoryDenySearchDepth":     "not carried: nothing is searched for",
	"seccomp":                      "not carried: system calls are always filtered",
	"bwrapPath":                    "not carried: bubblewrap is not used",
	"socatPath":                    "not carried: socat is not used",
	"javaAgentJarPath":             "not carried: Java is not told of a proxy that it needs not know",
	"windows":                      "not carried: it is about Windows",
	"git":                          "not carried: git's configuration is the image's",

	"network.strictAllowlist":     "not carried: nobody is asked, so what no rule allows is refused",
	"network.allowUnixSockets":    "not carried: sockets of the host are mounted or not there",
	"network.allowAllUnixSockets": "not carried: sockets within the sandbox work, and those of the host are not there",
	"network.allowLocalBinding":   "not carried: a sandbox may listen on addresses of its own",
	"network.allowMachLookup":     "not carried: it is about macOS",
	"network.deniedDomainReasons": "not carried: a refusal names the rule",
}

// lost are settings whose loss would change what leaves the sandbox.
var lost = map[string]string{
	"network.httpProxyPort":  "the gate is the proxy, and can't be replaced",
	"network.socksProxyPort": "the gate is the proxy, and can't be replaced",
	"network.mitmProxy":      "no proxy can be put behind the gate",
	"network.parentProxy":    "no proxy can be put behind the gate",
	"network.filterRequest":  "a function can't be carried",
}

// settings reads the settings. Every name in them is of a list above, or is
// dealt with by itself.
func (im *runtimeImport) settings(root *node) {
	if root.Kind != tree.Map {
		im.errs.Add(placed(root, ""), "settings are a mapping", "{\"network\": {...}}")
		return
	}
	network := im.fields(root, "", "network")
	n := network["network"]
	if n == nil || n.Kind != tree.Map {
		im.errs.Add("network", "is not there", "{\"network\": {\"allowedDomains\": [], \"deniedDomains\": []}}")
		return
	}
	f := im.fields(n, "network.", "allowedDomains", "deniedDomains", "allowAllDomains", "tlsTerminate")
	if all := f["allowAllDomains"]; all != nil && im.isTrue(all, "network.allowAllDomains") {
		im.policy.Default = DefaultPublic
	}
	excluded := im.terminate(f["tlsTerminate"])
	im.allowed(im.list(f["allowedDomains"], "network.allowedDomains"), excluded)
	im.denied(im.list(f["deniedDomains"], "network.deniedDomains"))
}

// fields gives the values of own, notes those that are elsewhere, and refuses
// the rest.
func (im *runtimeImport) fields(n *node, prefix string, own ...string) map[string]*node {
	found := map[string]*node{}
	for _, p := range n.Pairs {
		where := prefix + p.Key
		line := fmt.Sprintf("line %d", p.Line)
		switch {
		case found[p.Key] != nil:
			im.errs.Addf(line, "say it once", "a setting%s is there twice", inWhere(strings.TrimSuffix(prefix, ".")))
		case slices.Contains(own, p.Key):
		case lost[where] != "":
			im.errs.Add(placed(p.Value, where), lost[where], "leave it out")
		case elsewhere[where] != "" && !off(p.Value):
			im.notes = append(im.notes, Note{where, elsewhere[where]})
		case elsewhere[where] == "":
			im.errs.Addf(line, "", "%s%s is not known", stray(n, "a setting", p.Key, own), inWhere(strings.TrimSuffix(prefix, ".")))
		}
		if found[p.Key] == nil {
			found[p.Key] = p.Value
		}
	}
	return found
}

// off reports whether a setting asks for nothing.
func off(n *node) bool {
	switch n.Kind {
	case tree.Null:
		return true
	case tree.Bool:
		return n.Text == "false"
	case tree.List:
		return len(n.Items) == 0
	case tree.Map:
		return !slices.ContainsFunc(n.Pairs, func(p pair) bool { return !off(p.Value) })
	case tree.Text, tree.Number:
	}
	return false
}

func (im *runtimeImport) isTrue(n *node, where string) bool {
	if n.Kind != tree.Bool {
		im.errs.Addf(placed(n, where), "true or false", "%s where something else is wanted", described(n, where))
	}
	return n.Text == "true"
}

func (im *runtimeImport) list(n *node, where string) (out []string) {
	if n == nil {
		return nil
	}
	if n.Kind != tree.List || len(n.Items) > MaxHosts {
		im.errs.Addf(placed(n, where), fmt.Sprintf("a list of at most %d", MaxHosts), "%s where something else is wanted", described(n, where))
		return nil
	}
	for i, item := range n.Items {
		if item.Kind != tree.Text {
			im.errs.Addf(placed(item, at(where, i)), "a text", "%s where something else is wanted", described(item, where))
			continue
		}
		out = append(out, item.Text)
	}
	return out
}

// terminate reads tlsTerminate: what it excludes is passed through here too.
func (im *runtimeImport) terminate(n *node) (excluded []string) {
	const where = "network.tlsTerminate"
	if n == nil || n.Kind != tree.Map {
		im.note("network.allowedDomains", "TLS to them is intercepted, with a certificate that the sandbox trusts; protocol: tls in a rule passes it through")
		return nil
	}
	for _, p := range n.Pairs {
		switch p.Key {
		case "excludeDomains":
			excluded = im.list(p.Value, where+".excludeDomains")
		case "caCertPath", "caKeyPath":
			im.note(where+"."+p.Key, "not carried: each sandbox has an authority of its own, whose key is never on disk")
		case "extraCaCertPaths":
			im.errs.Add(placed(p.Value, where+".extraCaCertPaths"), "files are not read by an import", "put the certificates into roots of a rule, or into the image")
		default:
			im.errs.Addf(fmt.Sprintf("line %d", p.Line), "", "%s in %s is not known", stray(n, "a setting", p.Key, nil), where)
		}
	}
	return excluded
}

func (im *runtimeImport) note(where, text string) { im.notes = append(im.notes, Note{where, text}) }

// destination reads "example.com", "*.example.com:443" or "[2001:db8::1]".
func (im *runtimeImport) destination(where, s string) (r Rule, ok bool) {
	host, port, problem, hint := splitAllow(s)
	if problem != "" {
		im.errs.Add(where, problem, hint)
		return r, false
	}
	if a, err := netip.ParseAddr(host); err == nil {
		r.Addresses = []string{a.String()}
	} else {
		r.Hosts = []string{host}
	}
	if port != "" {
		r.Ports = []string{port}
	}
	return r, true
}

func (im *runtimeImport) allowed(list, excluded []string) {
	anyPort := false
	for i, s := range list {
		where := at("network.allowedDomains", i)
		if host, _, _ := strings.Cut(s, ":"); host == "localhost" {
			im.note(where, "not carried: localhost is the sandbox's own, which needs no rule")
			continue
		}
		r, ok := im.destination(where, s)
		if !ok {
			continue
		}
		switch {
		case slices.ContainsFunc(excluded, func(e string) bool { return covers(e, r.Hosts) }) && (r.Ports == nil || r.Ports[0] == "443"):
			clear := r
			clear.Ports, r.Protocol, r.Ports = []string{"80"}, ProtocolTLS, nil
			if len(strings.Split(s, ":")) == 1 {
				im.add("http/", clear)
			}
		case r.Ports != nil && r.Ports[0] != "443" && r.Ports[0] != "80":
			r.Protocol = ProtocolTCP
		}
		anyPort = anyPort || !strings.Contains(s, ":")
		im.add("", r)
	}
	if anyPort {
		im.note("network.allowedDomains", "those without a port are for ports 443 and 80; write example.com:22 for another")
	}
}

// covers reports whether one pattern of excludeDomains holds for a rule's
// host.
func covers(pattern string, hosts []string) bool {
	if len(hosts) == 0 {
		return false
	}
	have, wild, problem, _ := ParseHost(pattern)
	name, _, bad, _ := ParseHost(hosts[0])
	if problem != "" || bad != "" {
		return false
	}
	isWild := strings.HasPrefix(hosts[0], "*.")
	return have == name && wild == isWild || wild && strings.HasSuffix(name, "."+have)
}

func (im *runtimeImport) denied(list []string) {
	for i, s := range list {
		where := at("network.deniedDomains", i)
		rest, every := strings.CutPrefix(s, "*")
		switch {
		case s == "*":
			im.policy.Default, im.policy.Rules = DefaultDeny, nil
			im.note(where, "everything is denied, so the rest is of no use")
			return
		case every && strings.HasPrefix(rest, ":"):
			im.add("denied/", Rule{
				Action: ActionDeny, Addresses: []string{"0.0.0.0/0", "::/0"}, Ports: []string{rest[1:]},
			})
		default:
			if r, ok := im.destination(where, s); ok {
				r.Action = ActionDeny
				im.add("denied/", r)
			}
		}
	}
}

// add puts a rule in, under a name that says what it was made of.
func (im *runtimeImport) add(prefix string, r Rule) {
	if im.ids == nil {
		im.ids = map[string]bool{}
	}
	id := prefix + strings.ToLower(strings.Join(slices.Concat(r.Hosts, r.Addresses, r.Ports), ":"))
	if idForm().MatchString(id) && id != defaultRule && !im.ids[id] {
		r.ID = id
		im.ids[id] = true
	}
	im.policy.Rules = append(im.policy.Rules, r)
}
