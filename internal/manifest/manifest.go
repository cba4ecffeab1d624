package manifest

import (
	"maps"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Manifest is one agent and its bottle, with nothing left open: what is extended is laid
// in, the provider is known, and every default stands there.
type Manifest struct {
	Name     string
	Agent    Agent
	Bottle   Bottle
	Provider *provider.Provider

	agent  *said[Agent]
	bottle *composed
	reach  reach
}

// Manifest resolves the agent of that name: its own file, its bottle with those that it extends, and
// its provider count.
func (x *Index) Manifest(agent string) (*Manifest, error) {
	var p problems
	s := x.agent(agent, &p)
	if s == nil {
		return nil, p.result()
	}
	m := x.resolve(s, &p)
	if err := p.result(); err != nil {
		return nil, err
	}
	return m, nil
}

// resolve resolves an agent; nil where that can't be, and why is added.
func (x *Index) resolve(s *said[Agent], p *problems) *Manifest {
	m := &Manifest{Name: s.name, Agent: s.is, agent: s}
	switch name := s.is.Bottle; {
	case name == "":
		p.add(s.place("bottle"), "bottle: NAME", "the agent %s is in no bottle", s.name)
	case x.bottle(name, s.place("bottle"), p):
		c := x.checkBottle(name)
		p.join(&c.problems)
		m.bottle = c.is
	}
	m.Provider = x.checkAgent(s, p)
	if m.bottle == nil || p.any() {
		return nil
	}
	var err error
	if m.reach, err = m.bottle.reach(s); err != nil {
		for _, e := range Problems(err) {
			p.err(e)
		}
		return nil
	}
	m.Agent.Provider = m.Provider.Name
	m.Agent.Files = slices.Clone(m.Agent.Files)
	for i := range m.Agent.Files {
		orElse(&m.Agent.Files[i].Mode, "0644")
	}
	orElse(&m.Agent.GitUser.Name, m.bottle.GitUser.Name)
	orElse(&m.Agent.GitUser.Email, m.bottle.GitUser.Email)
	m.Bottle = m.bottle.Bottle
	m.Bottle.defaults()
	return m
}

func orElse[T comparable](to *T, v T) {
	var none T
	if *to == none {
		*to = v
	}
}

// defaults says what nobody has said.
func (b *Bottle) defaults() {
	orElse(&b.Isolation, sandbox.DefaultIsolation)
	if b.Template == "" {
		orElse(&b.Image, sandbox.DefaultImage)
	}
	orElse(&b.User, sandbox.DefaultUser)
	no := false
	orElse(&b.ReadOnly, &no)
	orElse(&b.Supervise, &no)
	orElse(&b.Limits.CPUs, sandbox.DefaultCPUs)
	orElse(&b.Limits.Memory, sandbox.DefaultMemory)
	orElse(&b.Limits.PIDs, sandbox.DefaultPIDs)
	orElse(&b.Limits.Disk, sandbox.DefaultDisk)
}

// create is the request that makes its sandbox, without values of variables: those stay
// out of whatever is printed. Of limits it has those that were said: what a request names
// is enforced or fails.
func (m *Manifest) create(slug string) api.CreateRequest {
	b, l := &m.Bottle, m.bottle.Limits
	req := api.CreateRequest{
		Name: slug, Isolation: b.Isolation, Stronger: slices.Clone(b.Stronger),
		Image: b.Image, Template: b.Template, User: b.User,
		Network: m.reach.network, Policy: policy.Clone(m.reach.policy),
		ReadOnlyRoot: *b.ReadOnly, Caches: slices.Clone(b.Caches),
		Limits: api.Limits{CPUs: l.CPUs, Memory: int64(l.Memory), PIDs: l.PIDs, Disk: int64(l.Disk), Inodes: l.Inodes},
	}
	for _, name := range slices.Sorted(maps.Keys(b.Remotes)) {
		r := b.Remotes[name]
		req.Remotes = append(req.Remotes, r.request(name))
	}
	if network, p, err := (sandbox.Own{Remotes: req.Remotes}).Network(req.Network, req.Policy); err == nil { // it was looked at
		req.Network, req.Policy = network, p
	}
	for _, name := range m.reach.secrets {
		req.Secrets = append(req.Secrets, api.SandboxSecret{Name: name})
	}
	return req
}

// unreached are the ways of the provider's models that the policy lets nobody to, and
// whether that is all of them.
func (m *Manifest) unreached() (ways []string, all bool) {
	if m.reach.policy == nil {
		for i := range m.Provider.Access.Ways {
			ways = append(ways, m.Provider.Access.Ways[i].Reaches)
		}
		slices.Sort(ways)
		return slices.Compact(ways), len(ways) > 0
	}
	set, err := policy.Compile(*m.reach.policy, m.reach.secrets)
	if err != nil {
		return nil, false // it compiled before
	}
	for i := range m.Provider.Access.Ways {
		w := &m.Provider.Access.Ways[i]
		rules, err := w.Policy()
		if err != nil || slices.ContainsFunc(rules, func(r policy.Rule) bool {
			return slices.ContainsFunc(r.Hosts, func(h string) bool {
				return !strings.HasPrefix(h, "*.") && !set.Name(h).Allowed()
			})
		}) {
			ways = append(ways, w.Reaches)
		}
	}
	all = len(ways) > 0 && len(ways) == len(m.Provider.Access.Ways)
	slices.Sort(ways)
	return slices.Compact(ways), all
}
