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
func (x *Index) check() {
	for _, name := range x.Bottles() {
		x.mistakes.join(&x.checkBottle(name).problems)
	}
	for _, k := range []*kept[Agent]{&x.agents, &x.shipped} {
		for _, name := range k.names() {
			var p problems
			x.resolve(k.good[name], &p)
			x.mistakes.join(&p)
		}
	}
	for _, name := range x.shipped.names() {
		var at Place
		switch s, f := x.agents.good[name], x.agents.bad[name]; {
		case s != nil:
			at = s.at
		case f != nil:
			at = f.at
		default:
			continue
		}
		x.Notes = append(x.Notes, x.shipped.good[name].at.File+": not taken: your own agent "+name+" is in "+at.File)
	}
}

// checkedBottle is a bottle as a whole, and what is wrong with it.
type checkedBottle struct {
	problems

	is *composed
}

// checkBottle looks at a bottle that can be read, and at those that it extends, once.
func (x *Index) checkBottle(name string) *checkedBottle {
	if c := x.composed[name]; c != nil {
		return c
	}
	c := &checkedBottle{}
	x.composed[name] = c
	if x.links(name, &c.problems); !c.any() { // else what is said of others is not to be followed
		c.is = x.compose(name)
		c.is.check(&c.problems)
	}
	return c
}

// bottle finds a bottle that is named at a place; false: it is not there, and why is added.
func (x *Index) bottle(name string, at Place, p *problems) bool {
	switch f := x.bottles.bad[name]; {
	case x.bottles.good[name] != nil:
		return true
	case f != nil:
		p.join(&f.problems)
	case x.bottles.lost.any():
		p.join(&x.bottles.lost)
	default:
		p.add(at, x.nearest(name), "there is no bottle %s", quoted(name))
	}
	return false
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
	if strings.HasPrefix(c.Image, "/") || strings.HasPrefix(c.Image, ".") || strings.HasPrefix(c.Image, "~") {
		p.add(c.place("image"), "carboy image import --name NAME FILE keeps one by a name", "image: %s is a path, where the name of an image is wanted", quoted(c.Image))
	}
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
	c.checkRemotes(p)
	checkGitUser(c.GitUser, c.place, p)
	c.checkLimits(p)
	if len(p.list) == 0 {
		c.checkPolicy(p)
	}
}

// checkLimits looks whether a sandbox can have the bounds on any machine.
func (c *composed) checkLimits(p *problems) {
	l := sandbox.Limits{CPUs: c.Limits.CPUs, Memory: int64(c.Limits.Memory), PIDs: c.Limits.PIDs, Disk: int64(c.Limits.Disk), Inodes: c.Limits.Inodes}
	if e := l.Check(); e != nil {
		name, _, _ := strings.Cut(e.Msg, " ")
		p.add(c.place("limits."+name), e.Hint, "limits.%s", e.Msg)
	}
}

func (c *composed) oneOf(path, v string, p *problems, known ...string) {
	if v != "" && !slices.Contains(known, v) {
		last := len(known) - 1
		p.add(c.place(path), "", "%s: no such %s %s: %s or %s", path, path, quoted(v), strings.Join(known[:last], ", "), known[last])
	}
}

func (c *composed) checkWord(path, v string, p *problems) {
	if len(v) > 255 || strings.ContainsFunc(v, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		p.add(c.place(path), "", "%s: %s is no name of one", path, quoted(v))
	}
}

func checkGitUser(u GitUser, place func(path string) Place, p *problems) {
	for path, v := range map[string]string{"git_user.name": u.Name, "git_user.email": u.Email} {
		if len(v) > 255 || strings.ContainsFunc(v, func(r rune) bool { return unicode.IsControl(r) || r == '<' || r == '>' }) {
			p.add(place(path), "", "%s: %s can't be used: it has to be one line without < and >", path, quoted(v))
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
