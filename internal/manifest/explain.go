package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// explainer writes the lines of a plan.
type explainer struct {
	m *Manifest
	p *Plan
}

// explain says all of a plan, a line for each thing, with who says it and where.
func (m *Manifest) explain(p *Plan) {
	e := explainer{m, p}
	a := m.agent
	whose := "your agent " + m.Name
	if a.origin == ofRepository {
		whose = "the repository's agent " + m.Name
	}
	e.said("agent", m.Name+", in the bottle "+m.bottle.name, whose, a.place("bottle"))
	if _, ok := a.places["provider"]; ok {
		e.said("provider", m.Provider.Name, whose, a.place("provider"))
	} else {
		e.said("provider", m.Provider.Name, "the default", Place{})
	}
	e.said("name", p.Slug, "the agent's name, and five characters that are drawn for each sandbox", Place{})
	e.walls()
	e.network()
	e.git(whose)
	if *m.Bottle.Supervise {
		e.bottle("supervised", "the agent may ask you for more", "supervise")
	} else {
		e.bottle("supervised", "no: what is refused stays refused", "supervise")
	}
	for i, f := range p.Files {
		e.said("file", fmt.Sprintf("%s, mode %s, %d bytes", f.Path, f.Mode, len(f.Content)), whose, a.place(fmt.Sprintf("files[%d]", i)))
	}
	for i, s := range p.Skills {
		e.said("skill", s, whose, a.place(fmt.Sprintf("skills[%d]", i)))
	}
	if p.Prompt != "" {
		e.said("prompt", fmt.Sprintf("%d bytes: %s", len(p.Prompt), firstLine(p.Prompt)), whose, a.place("prompt"))
	}
	if err := p.Runnable(); err != nil {
		e.said("not yet", err.Error(), "carboy up refuses it", Place{})
	}
	e.said("runs", cmp.Or(m.Provider.Program, m.Provider.Name), "the provider "+m.Provider.Name, Place{File: m.Provider.From})
	e.reached()
}

func (e *explainer) said(topic, says, why string, at Place) {
	l := Line{Topic: topic, Says: says, Why: why}
	if at.File != "" {
		l.At = &at
	}
	e.p.Lines = append(e.p.Lines, l)
}

// bottle says what a bottle says at path, or that nobody does.
func (e *explainer) bottle(topic, says, path string) {
	from, ok := e.m.bottle.from[path]
	if !ok {
		e.said(topic, says, "the default", Place{})
		return
	}
	e.said(topic, says, "the bottle "+from.bottle.name, from.place())
}

func (e *explainer) walls() {
	b := &e.m.Bottle
	wall := b.Isolation
	if len(b.Stronger) > 0 {
		wall += ", or " + strings.Join(b.Stronger, ", ")
	}
	e.bottle("wall", wall, "isolation")
	if b.Template != "" {
		e.bottle("template", b.Template, "template")
	} else {
		e.bottle("image", b.Image, "image")
	}
	e.bottle("user", b.User, "user")
	if *b.ReadOnly {
		e.bottle("root", "read-only", "read_only_root")
	}
	e.bottle("processors", strconv.FormatFloat(b.Limits.CPUs, 'g', -1, 64), "limits.cpus")
	e.bottle("memory", term.FormatSize(int64(b.Limits.Memory)), "limits.memory")
	e.bottle("processes", strconv.FormatInt(b.Limits.PIDs, 10), "limits.pids")
	e.bottle("disk", term.FormatSize(int64(b.Limits.Disk)), "limits.disk")
	if b.Limits.Inodes > 0 {
		e.bottle("inodes", strconv.FormatInt(b.Limits.Inodes, 10), "limits.inodes")
	}
	for _, name := range slices.Sorted(maps.Keys(b.Env)) {
		e.bottle("variable", name, "env."+name)
	}
	for _, tool := range b.Caches {
		e.bottle("cache", tool, "caches."+tool)
	}
}

func (e *explainer) network() {
	r := e.m.reach
	switch {
	case r.network == sandbox.NetworkOff:
		e.bottle("network", "off", "network")
	case r.network == sandbox.NetworkPolicy && r.own:
		e.said("network", "nothing but what follows", "the agent "+e.m.Name, e.m.agent.place("policy"))
	case r.network == sandbox.NetworkOn:
		e.bottle("network", "on: the public internet, but for what rules are about", "network")
	default:
		path := "network"
		if _, ok := e.m.bottle.from[path]; !ok {
			path = "policy"
		}
		e.bottle("network", "nothing but what follows", path)
	}
	if r.own {
		e.said("policy", "the agent's own, proved to allow nothing that the bottle does not", "the agent "+e.m.Name, e.m.agent.place("policy"))
	}
	if e.p.Create.Policy != nil {
		e.rules(e.p.Create.Policy)
	}
	for _, name := range r.secrets {
		e.bottle("secret", name+", by its placeholder", "secrets."+name)
	}
	for _, name := range e.m.Bottle.Secrets {
		if !slices.Contains(r.secrets, name) {
			e.said("secret", name+" is left out: the agent's policy has no place for it", "the agent "+e.m.Name, e.m.agent.place("policy"))
		}
	}
}

// rules says what each rule of the policy does, and each of its presets.
func (e *explainer) rules(p *policy.Policy) {
	own, c := e.m.reach.own, e.m.bottle
	place := func(where string) (string, Place) {
		if own {
			return "the agent " + e.m.Name, e.m.agent.place("policy." + where)
		}
		from := c.policySource(where)
		return "the bottle " + from.bottle.name, from.place()
	}
	rest := len(p.Rules)
	if own {
		rest = len(e.m.agent.is.Policy.Rules) // those behind them are the bottle's denials
	}
	set, err := policy.Compile(*p, e.m.reach.secrets)
	if err != nil {
		return // it compiled before
	}
	compiled := set.Policy()
	for i := range p.Rules {
		why, at := place(fmt.Sprintf("rules[%d]", i))
		says := policy.Describe(&compiled.Rules[i])
		if strings.HasPrefix(p.Rules[i].ID, sandbox.RuleRemotes) {
			why, at = "its remotes are reached by the git gate alone", Place{}
			if len(p.Rules[i].Matches) > 0 {
				says = "deny pushes by HTTPS, and git's large files, at " + strings.Join(slices.Concat(p.Rules[i].Hosts, p.Rules[i].Addresses), ", ")
			}
		} else if i >= rest {
			why, at = "the bottle "+c.name+" denies it", c.place("policy")
		}
		if p.Rules[i].ID == policy.RuleResolvers {
			says = "deny what resolves names past the gate, by address"
		}
		e.said("rule", says, why, at)
	}
	for i, name := range p.Presets {
		why, at := place(fmt.Sprintf("presets[%d]", i))
		for _, preset := range policy.Presets() {
			if preset.Name == name {
				name += ": " + preset.Summary
			}
		}
		e.said("preset", name, why, at)
	}
	for i, name := range p.Services {
		if name == ServiceGit && len(e.p.Remotes) > 0 {
			continue // which the line of the gate says
		}
		why, at := place(fmt.Sprintf("services[%d]", i))
		e.said("service", name, why, at)
	}
}

func (e *explainer) git(whose string) {
	for i := range e.p.Remotes {
		r := &e.p.Remotes[i]
		says := r.Name + " is " + r.URL
		switch r.Key.Provider {
		case sandbox.KeyStatic:
			says += ", by the key " + r.Key.Path + " (static)"
		case sandbox.KeySecret:
			says += ", by the secret " + r.Key.Name
		case sandbox.KeyAgent:
			says += ", by the SSH agent " + cmp.Or(r.Key.Path, "of SSH_AUTH_SOCK")
		}
		e.bottle("remote", says, "remotes."+r.Name)
		for _, key := range gitremote.Keys(r.KnownHostKey) {
			from := e.m.bottle.from["remotes."+r.Name]
			e.said("remote", r.Name+" trusts "+net.JoinHostPort(r.Host, r.Port)+" by its host key "+gitremote.Fingerprint(key), "known_host_key", source{from.bottle, from.path + ".known_host_key"}.place())
		}
		if !r.Forwards {
			from := e.m.bottle.from["remotes."+r.Name]
			e.said("remote", r.Name+" refuses to forward: the key of "+r.Host+" is not known, and none is taken on trust",
				"no known_host_key", source{from.bottle, from.path + ".known_host_key"}.place())
		}
		from := e.m.bottle.from["remotes."+r.Name]
		e.said("remote", r.Name+" "+r.Push.says(), "push, and its defaults", source{from.bottle, from.path + ".push"}.place())
	}
	for _, f := range [][3]string{{"git_user.name", e.p.GitUser.Name, "name"}, {"git_user.email", e.p.GitUser.Email, "e-mail"}} {
		if f[1] == "" {
			continue
		}
		if _, claimed := e.m.agent.places[f[0]]; claimed {
			e.said("git user", f[2]+" "+f[1]+", claimed", whose, e.m.agent.place(f[0]))
		} else {
			e.bottle("git user", f[2]+" "+f[1], f[0])
		}
	}
	services := "none"
	if len(e.p.Services) > 0 {
		services = strings.Join(e.p.Services, ", ")
	}
	e.said("gate", "offers "+services, "git where there are remotes, supervise where it is asked for", Place{})
}

// reached warns of models that the policy lets nobody to.
func (e *explainer) reached() {
	ways, all := e.m.unreached()
	if all {
		e.said(warning, e.m.Provider.Name+" reaches none of its models: "+strings.Join(ways, ", "), "no rule of the policy is about them", Place{})
	}
}

// firstLine is the beginning of a text, to be told by.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(line); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return line
}

// Text says all of it in words, a line for each thing.
func (p *Plan) Text() string {
	topics, says := 0, 0
	for _, l := range p.Lines {
		topics = max(topics, len(l.Topic))
		if n := len([]rune(term.Escape(l.Says))); n <= 60 {
			says = max(says, n)
		}
	}
	var b strings.Builder
	for _, l := range p.Lines {
		why := l.Why
		if l.At != nil {
			why += ", " + l.At.Where()
		}
		fmt.Fprintf(&b, "%-*s  %-*s  (%s)\n", topics, l.Topic, says, term.Escape(l.Says), term.Escape(why))
	}
	return b.String()
}
