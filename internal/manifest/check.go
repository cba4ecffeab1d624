package manifest

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/carboy-sandbox/carboy/internal/cache"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// check looks at everything that files say, also at bottles in which nobody runs.
func (x *Index) check(p *problems) {
	x.links(p)
	if len(p.list) > 0 {
		return // what is said of others is not to be followed
	}
	bottles := map[string]*composed{}
	for _, name := range x.Bottles() {
		c := x.compose(name)
		c.check(p)
		bottles[name] = c
	}
	for _, name := range x.Agents() {
		s := x.agents[name]
		c := bottles[s.is.Bottle]
		switch {
		case s.is.Bottle == "":
			p.add(s.place("bottle"), "bottle: NAME", "the agent %s is in no bottle", name)
		case c == nil:
			p.add(s.place("bottle"), x.nearest(s.is.Bottle), "there is no bottle %s", quoted(s.is.Bottle))
		}
		x.checkAgent(s, p)
		if c == nil || len(p.list) > 0 {
			continue
		}
		if _, err := c.reach(s); err != nil {
			p.err(err)
		}
	}
}

// check looks at a bottle as a whole, and fills in what nobody has said.
func (c *composed) check(p *problems) {
	for i, wall := range slices.Concat([]string{c.Isolation}, c.Stronger) {
		path := "isolation"
		if i > 0 {
			path = "stronger"
		}
		if wall != "" && !sandbox.ValidWall(wall) {
			p.add(c.place(path), "gvisor or process", "%s: %s is no wall", path, quoted(wall))
		}
	}
	first := cmp.Or(c.Isolation, sandbox.DefaultIsolation)
	for _, wall := range c.Stronger {
		if sandbox.ValidWall(wall) && sandbox.ValidWall(first) && !sandbox.WeakerWall(first, wall) {
			p.add(c.place("stronger"), "leave it out", "stronger: %s is not stronger than %s", wall, first)
		}
	}
	if c.Image != "" && c.Template != "" {
		p.add(c.place("template"), "leave one of them out", "a bottle has an image or a template")
	}
	c.checkWord("image", c.Image, p)
	c.checkWord("template", c.Template, p)
	c.oneOf("user", c.User, p, "user", "root")
	c.oneOf("network", c.Network, p, sandbox.NetworkOff, sandbox.NetworkPolicy, sandbox.NetworkOn)
	for _, name := range c.Secrets {
		if !sandbox.ValidSecret(name) {
			p.add(c.place("secrets."+name), "letters, digits and _, and no digit first: API_TOKEN", "secrets: one is no name of a secret") // nor repeated: it may be one
		}
	}
	for _, tool := range c.Caches {
		if e, ok := errors.AsType[*cache.Error](cache.Check([]string{tool})); ok {
			p.add(c.place("caches."+tool), e.Hint(), "%v", e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if name == "" || strings.ContainsAny(name, "= \t\r\n\x00") || strings.ContainsRune(c.Env[name], 0) {
			p.add(c.place("env."+name), "", "env: %s can't be a variable", quoted(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Remotes)) {
		c.checkRemote(name, p)
	}
	checkGitUser(c.GitUser, c.place, p)
	if len(p.list) == 0 {
		c.checkPolicy(p)
	}
}

func (c *composed) oneOf(path, v string, p *problems, known ...string) {
	if v != "" && !slices.Contains(known, v) {
		p.add(c.place(path), strings.Join(known, " or "), "%s: %s is none", path, quoted(v))
	}
}

func (c *composed) checkWord(path, v string, p *problems) {
	if len(v) > 255 || strings.ContainsFunc(v, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		p.add(c.place(path), "", "%s: %s is none", path, quoted(v))
	}
}

func checkGitUser(u GitUser, place func(path string) Place, p *problems) {
	for path, v := range map[string]string{"git_user.name": u.Name, "git_user.email": u.Email} {
		if len(v) > 255 || strings.ContainsFunc(v, func(r rune) bool { return unicode.IsControl(r) || r == '<' || r == '>' }) {
			p.add(place(path), "one line without < and >", "%s: %s is none", path, quoted(v))
		}
	}
}

// checkPolicy decides about the network, and reads the policy as the daemon will.
func (c *composed) checkPolicy(p *problems) {
	supervised := c.Supervise != nil && *c.Supervise
	gate := len(c.Remotes) > 0 || supervised
	if supervised && c.Network == sandbox.NetworkOff {
		p.add(c.place("network"), "leave network out: without rules nothing else is reached", "supervision is reached through the gate, and network is off")
		return
	}
	if gate && c.Policy == nil && c.Network == sandbox.NetworkOff {
		c.Network = ""
	}
	if gate && c.Policy == nil && c.Network == "" {
		c.Policy = &policy.Policy{}
	}
	network, resolved, err := sandbox.ResolveNetwork(c.Network, c.Policy)
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		p.add(c.place("network"), e.Hint, "%s", e.Msg)
		return
	}
	if network == "" {
		network = sandbox.DefaultNetwork
	}
	c.Network, c.Policy = network, resolved
	c.compile(p)
}

// compile holds the policy and the secrets against each other.
func (c *composed) compile(p *problems) {
	var placed []string
	if c.Policy != nil {
		set, err := policy.Compile(*c.Policy, c.Secrets)
		policyProblems(err, func(where string) Place { return c.policySource(where).place() }, p)
		if err != nil {
			return
		}
		placed = set.Secrets()
	}
	for _, name := range c.Secrets {
		if !slices.Contains(placed, name) {
			p.add(c.place("secrets."+name), "secrets: [{name: "+name+", header: Authorization}] in a rule of the policy, or a preset that knows it",
				"no rule has a place for the secret %s", name)
		}
	}
}

// policyProblems adds what package policy says, where it is in the files.
func policyProblems(err error, place func(where string) Place, p *problems) {
	for _, e := range policy.Problems(err) {
		hint := e.Hint
		if name, ok := strings.CutPrefix(hint, "--secret "); ok {
			hint = "secrets: [" + name + "], in the bottle"
		}
		what := "policy"
		if e.Where != "" {
			what += "." + e.Where
		}
		p.add(place(e.Where), hint, "%s: %s", what, e.Problem)
	}
}
