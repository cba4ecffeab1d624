package manifest

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

var keyProviders = []string{sandbox.KeyStatic, sandbox.KeyAgent, sandbox.KeySecret}

// checkRemotes looks at each remote, and at what they are together.
func (c *composed) checkRemotes(p *problems) {
	names := slices.Sorted(maps.Keys(c.Remotes))
	if len(names) > sandbox.MaxRemotes {
		p.add(c.place("remotes"), "", "remotes: %d, where %d may be", len(names), sandbox.MaxRemotes)
	}
	repositories := map[string]string{}
	for _, name := range names {
		c.checkRemote(name, p)
		at, problem := gitremote.Parse(c.Remotes[name].URL)
		if problem != "" {
			continue // which was said
		}
		if other := repositories[at.Repository()]; other != "" {
			from := c.from["remotes."+name]
			p.add(source{from.bottle, from.path + ".url"}.place(), "leave one out",
				"remotes.%s is the same repository as remotes.%s, and what one may push the other might not", name, other)
		}
		repositories[at.Repository()] = name
	}
}

// checkRemote looks at a remote, and says which key it has where it does not.
func (c *composed) checkRemote(name string, p *problems) {
	r := c.Remotes[name]
	place := func(path string) Place {
		from := c.from["remotes."+name]
		return source{from.bottle, from.path + path}.place()
	}
	what := "remotes." + name
	if !gitremote.ValidName(name) {
		p.add(place(""), gitremote.NameForm, "%s is no name of a remote", quoted(name))
		return
	}
	if r.URL == "" {
		p.add(place(""), "url: ssh://git@host/path", "%s has no url", what)
		return
	}
	a, problem := gitremote.Parse(r.URL)
	if problem != "" {
		p.add(place(".url"), gitremote.Forms, "%s.url: %s", what, problem)
		return
	}
	c.checkKey(what, &r.Key, a, place, p)
	checkPush(what, &r.Push, place, p)
	for _, line := range gitremote.Keys(r.KnownHostKey) {
		if !gitremote.IsKey(line) {
			p.add(place(".known_host_key"), gitremote.KeyForm, "%s.known_host_key: it is no key of a host", what)
		} else if !a.SSH {
			p.add(place(".known_host_key"), "leave it out", "%s.known_host_key: keys of hosts are of SSH, and it is reached by HTTPS", what)
		}
	}
	c.Remotes[name] = r
}

func (c *composed) checkKey(what string, k *Key, a gitremote.Place, place func(string) Place, p *problems) {
	if k.Provider == "" && (a.SSH || k.Path != "") {
		k.Provider = sandbox.KeyStatic
	}
	what += ".key"
	switch k.Provider {
	case "": // HTTPS without a credential
		if *k != (Key{}) {
			p.add(place(".key"), "provider: "+strings.Join(keyProviders, ", "), "%s: nothing says what it is", what)
		}
		return
	case sandbox.KeySecret:
		if !sandbox.ValidSecret(k.Name) || k.Path != "" {
			p.add(place(".key"), "key: {provider: secret, name: DEPLOY_KEY}", "%s: a provider secret has the name of one, and no path", what)
		}
	case sandbox.KeyStatic, sandbox.KeyAgent:
		c.checkKeyPath(what, k, place, p)
	default:
		p.add(place(".key.provider"), strings.Join(keyProviders, ", "), "%s.provider: there is no provider %s of keys", what, quoted(k.Provider))
	}
	switch {
	case a.SSH && k.Username != "":
		p.add(place(".key.username"), "leave it out", "%s.username: the URL has that for SSH", what)
	case !a.SSH && k.Provider == sandbox.KeyAgent:
		p.add(place(".key.provider"), "secret, or static", "%s.provider: an agent is for SSH, and it is reached by HTTPS", what)
	}
}

func (c *composed) checkKeyPath(what string, k *Key, place func(string) Place, p *problems) {
	switch {
	case k.Name != "":
		p.add(place(".key.name"), "leave it out", "%s.name: it is of a provider secret", what)
	case k.Path == "" && k.Provider == sandbox.KeyAgent: // SSH_AUTH_SOCK
	case k.Path == "":
		p.add(place(".key"), "key: {path: ~/.ssh/id_ed25519}", "%s: the key has no path", what)
	case !strings.HasPrefix(k.Path, "/") && !strings.HasPrefix(k.Path, "~/"):
		p.add(place(".key.path"), "an absolute path, or one below ~/", "%s.path: %s is a relative path, which leads elsewhere from each directory", what, quoted(k.Path))
	case strings.ContainsFunc(k.Path, unicode.IsControl) || slices.Contains(strings.Split(k.Path, "/"), ".."):
		p.add(place(".key.path"), "", "%s.path: %s is no path that says where it leads", what, quoted(k.Path))
	}
}

// checkPush looks at what may be pushed.
func checkPush(what string, q *Push, place func(string) Place, p *problems) {
	for _, f := range [][2]string{
		{"deletions", q.Deletions}, {"forced", q.Forced}, {"secrets", q.Secrets}, {"held", q.Held}, {"binaries", q.Binaries}, {"unscannable", q.Unscannable},
	} {
		if f[1] != "" && f[1] != "allow" && f[1] != "deny" && f[1] != "ask" {
			p.add(place(".push."+f[0]), "allow, deny or ask", "%s.push.%s: %s is none", what, f[0], quoted(f[1]))
		}
	}
	for i, pattern := range q.Protected {
		if problem := gitremote.CheckPattern(pattern); problem != "" {
			p.add(place(fmt.Sprintf(".push.protected[%d]", i)), gitremote.PatternForm, "%s.push.protected: %s: %s", what, quoted(pattern), problem)
		}
	}
	if q.MaxCommits < 0 || q.MaxRefs < 0 {
		p.add(place(".push"), "", "%s.push: a limit below nothing", what)
	}
}

// request is a remote as a create has it. Paths are as they were written.
func (r *Remote) request(name string) api.Remote {
	q := &r.Push
	return api.Remote{
		Name: name, URL: r.URL, KnownHostKey: r.KnownHostKey, Key: api.RemoteKey(r.Key),
		Push: api.RemotePush{
			ReadOnly: q.ReadOnly, Protected: slices.Clone(q.Protected), Deletions: q.Deletions, Forced: q.Forced, Secrets: q.Secrets,
			Held: q.Held, Binaries: q.Binaries, Unscannable: q.Unscannable,
			MaxBlob: int64(q.MaxBlob), MaxPush: int64(q.MaxPush), MaxCommits: q.MaxCommits, MaxRefs: q.MaxRefs,
		},
	}
}

// RemotesOf are the remotes of a plan for a user with that home and that SSH agent, "" for none.
func (p *Plan) RemotesOf(home, agent string) ([]api.Remote, error) {
	all := slices.Clone(p.Create.Remotes)
	for i := range all {
		k := &all[i].Key
		if rest, ok := strings.CutPrefix(k.Path, "~/"); ok {
			k.Path = path.Join(home, rest)
		}
		if k.Provider != sandbox.KeyAgent || k.Path != "" {
			continue
		}
		if k.Path = agent; agent == "" {
			return nil, sandbox.Errorf(sandbox.Invalid, "the remote %s of the bottle %s is known by an SSH agent, and there is none: SSH_AUTH_SOCK says nothing", all[i].Name, p.Bottle).
				WithHint(`eval "$(ssh-agent)" && ssh-add`)
		}
	}
	return all, nil
}
