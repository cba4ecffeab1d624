package sandbox

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

// What a sandbox's git reaches by its git gate.
type (
	Remote     = api.Remote
	RemoteKey  = api.RemoteKey
	RemotePush = api.RemotePush
)

// Where the key of a remote is.
const (
	KeyStatic = "static" // a file
	KeyAgent  = "agent"  // the socket of an SSH agent
	KeySecret = "secret" // one of the owner's secrets
)

// MaxRemotes is how many a sandbox may have.
const MaxRemotes = 16

const (
	maxRemoteURL = 2048
	maxKnownKeys = 64 << 10
)

func cloneRemotes(all []Remote) []Remote {
	all = slices.Clone(all)
	for i := range all {
		all[i].Push.Protected = slices.Clone(all[i].Push.Protected)
	}
	return all
}

func (s Spec) checkRemotes() *Error {
	if len(s.Remotes) > MaxRemotes {
		return Errorf(Invalid, "remotes: more than %d", MaxRemotes)
	}
	seen, repositories := map[string]bool{}, map[string]string{}
	for i := range s.Remotes {
		r := &s.Remotes[i]
		name := strings.ToLower(r.Name)
		if !gitremote.ValidName(r.Name) || seen[name] {
			return Errorf(Invalid, "remote %s: that is no name of one, or is there twice", refText(r.Name)).WithHint("%s", gitremote.NameForm)
		}
		seen[name] = true
		if err := checkRemote(r); err != nil {
			return err
		}
		at, _ := gitremote.Parse(r.URL) // it was looked at
		if other := repositories[at.Repository()]; other != "" {
			return Errorf(Invalid, "remotes %s and %s are one repository, and what one may push the other might not", other, r.Name).WithHint("leave one out")
		}
		repositories[at.Repository()] = r.Name
	}
	return nil
}

func checkRemote(r *Remote) *Error {
	at, problem := gitremote.Parse(r.URL)
	if problem == "" && len(r.URL) > maxRemoteURL {
		problem = "it is too long"
	}
	if problem == "" {
		if _, _, err := policy.CleanHost(at.Host); err != nil {
			problem = err.Error()
		}
	}
	if problem != "" {
		return Errorf(Invalid, "remote %s: its URL: %s", r.Name, problem).WithHint("%s", gitremote.Forms)
	}
	for _, line := range gitremote.Keys(r.KnownHostKey) {
		switch {
		case !at.SSH:
			return Errorf(Invalid, "remote %s: known_host_key: keys of hosts are of SSH, and it is reached by HTTPS", r.Name).WithHint("leave it out")
		case len(r.KnownHostKey) > maxKnownKeys || !gitremote.IsKey(line):
			return Errorf(Invalid, "remote %s: known_host_key: it is no key of a host", r.Name).WithHint("%s", gitremote.KeyForm)
		}
	}
	return checkRemoteKey(r, at.SSH)
}

func checkRemoteKey(r *Remote, ssh bool) *Error {
	k := r.Key
	bad := func(format string, args ...any) *Error {
		return Errorf(Invalid, "remote "+r.Name+": key: "+format, args...)
	}
	switch k.Provider {
	case "":
		if ssh || k != (RemoteKey{}) {
			return bad("nothing says where it is").WithHint("provider: %s, %s or %s", KeyStatic, KeyAgent, KeySecret)
		}
	case KeyStatic, KeyAgent:
		if !path.IsAbs(k.Path) || !goodPath(k.Path) || k.Name != "" {
			return bad("a provider %s has an absolute path, and no name", k.Provider)
		}
	case KeySecret:
		if !ValidSecret(k.Name) || k.Path != "" {
			return bad("a provider %s has the name of a secret, and no path", k.Provider)
		}
	default:
		return bad("there is no provider %s", refText(k.Provider)).WithHint("%s, %s or %s", KeyStatic, KeyAgent, KeySecret)
	}
	switch {
	case !ssh && k.Provider == KeyAgent:
		return bad("an agent is for SSH, and it is reached by HTTPS")
	case ssh && k.Username != "":
		return bad("a username is for HTTPS: the URL has that for SSH")
	case len(k.Username) > maxOwner || strings.ContainsFunc(k.Username, func(c rune) bool { return c <= ' ' || c == ':' || c == 0x7f }):
		return bad("the username is none")
	}
	return nil
}

// RuleRemotes begins the IDs of the rules that close the hosts of remotes.
const RuleRemotes = "git-gate/"

// otherDoors are names of forges at which they take SSH on the port of HTTPS.
var otherDoors = map[string]string{"github.com": "ssh.github.com", "gitlab.com": "altssh.gitlab.com", "bitbucket.org": "altssh.bitbucket.org"}

// pushes are the requests by which git, or its extension for large files, sends something by HTTPS.
func pushes() []policy.Match {
	path := func(regex string) []policy.Value { return []policy.Value{{Type: "regex", Value: regex}} }
	return []policy.Match{
		{Paths: path(`(?i).*/git-receive-pack`)},
		{Paths: path(`(?i).*/info/refs`), Query: []policy.Field{{Name: "service", Value: "git-receive-pack"}}},
		{Paths: path(`(?i).*/info/lfs(/.*)?`)},
	}
}

// closing are rules that close the hosts of remotes for SSH and for pushes.
func closing(remotes []Remote) (rules []policy.Rule) {
	seen := map[string]bool{}
	add := func(id, host string, r policy.Rule) {
		name, addr, err := policy.CleanHost(host)
		key := fmt.Sprint(name, addr, r.Ports, len(r.Matches))
		if err != nil || seen[key] { // the former was looked at
			return
		}
		seen[key] = true
		r.ID, r.Action = id, policy.ActionDeny
		if addr.IsValid() {
			r.Addresses = []string{netip.PrefixFrom(addr, addr.BitLen()).Addr().String()}
		} else {
			r.Hosts = []string{name}
		}
		rules = append(rules, r)
	}
	for i := range remotes {
		at, _ := gitremote.Parse(remotes[i].URL)
		host, ports := at.Host, []string{gitremote.SSHPort}
		if at.SSH && at.Port != gitremote.SSHPort {
			ports = append(ports, at.Port)
		}
		id := fmt.Sprintf("%s%.40s", RuleRemotes, strings.ToLower(remotes[i].Name))
		add(id+"/ssh", host, policy.Rule{Ports: ports})
		add(id+"/push", host, policy.Rule{Matches: pushes()})
		for forge, door := range otherDoors {
			switch strings.ToLower(host) {
			case forge:
				add(id+"/other", door, policy.Rule{})
			case door:
				add(id+"/forge", forge, policy.Rule{Ports: ports[:1]})
				add(id+"/forge-push", forge, policy.Rule{Matches: pushes()})
			}
		}
	}
	return rules
}
