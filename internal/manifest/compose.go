package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// maxExtends bounds how deep bottles extend others.
const maxExtends = 8

// composed is a bottle over those that it extends.
type composed struct {
	Bottle
	name string
	self *said[Bottle]
	from map[string]source // by the path of what is said: "limits.cpus", "secrets.NAME"
	// rules and presets are whence each of the policy's is.
	rules, presets, services []source
}

// source is the bottle that says something, and its own path for it.
type source struct {
	bottle *said[Bottle]
	path   string
}

func (s source) place() Place {
	if s.bottle == nil {
		return Place{}
	}
	return s.bottle.place(s.path)
}

// links tells of bottles that one extends and that are not there, of circles, and of what is too
// deep, each once.
func (x *Index) links(name string, p *problems) {
	depth := map[string]int{} // -1: on the way
	var way []step
	var walk func(s *said[Bottle]) int
	walk = func(s *said[Bottle]) int {
		depth[s.name] = -1
		deepest := 0
		begun := len(way)
		for i, name := range s.is.Extends {
			way = append(way[:begun], step{s, i})
			at := s.place(fmt.Sprintf("extends[%d]", i))
			if !x.bottle(name, at, p) {
				continue
			}
			d, seen := depth[name]
			switch {
			case seen && d < 0:
				circle(way, name, p)
				continue
			case slices.Contains(s.is.Extends[:i], name):
				p.add(at, "", "%s is there twice", name)
			case !seen:
				d = walk(x.bottles.good[name])
			}
			deepest = max(deepest, d+1)
		}
		way = way[:begun]
		depth[s.name] = deepest
		if deepest == maxExtends+1 {
			p.add(s.place("extends"), "", "%s extends others %d deep: %d is the most", s.name, deepest, maxExtends)
		}
		return deepest
	}
	walk(x.bottles.good[name])
}

// step is that a bottle extends another.
type step struct {
	from *said[Bottle]
	i    int
}

func (s step) to() string { return s.from.is.Extends[s.i] }

// circle tells of a way that has come back to a name: where it leads to the first of its names,
// wherever the way began, and so once.
func circle(way []step, name string, p *problems) {
	begin := slices.IndexFunc(way, func(s step) bool { return s.from.name == name })
	last := slices.MinFunc(way[begin:], func(a, b step) int { return strings.Compare(a.to(), b.to()) })
	p.add(last.from.place(fmt.Sprintf("extends[%d]", last.i)), "leave one of them out",
		"%s extends %s, which extends %s in turn", last.from.name, last.to(), last.from.name)
}

// compose lays a bottle over those that it extends, each of which counts once. There is no
// circle.
func (x *Index) compose(name string) *composed {
	c := &composed{name: name, self: x.bottles.good[name], from: map[string]source{}}
	seen := map[string]bool{}
	var lay func(s *said[Bottle])
	lay = func(s *said[Bottle]) {
		if seen[s.name] {
			return
		}
		seen[s.name] = true
		for _, base := range s.is.Extends {
			lay(x.bottles.good[base])
		}
		c.lay(s)
	}
	lay(c.self)
	c.Extends = c.self.is.Extends
	return c
}

// lay puts what a bottle says over what was said before.
func (c *composed) lay(s *said[Bottle]) {
	b := &s.is
	over(c, s, "isolation", &c.Isolation, b.Isolation)
	if b.Isolation != "" || len(b.Stronger) > 0 {
		c.Stronger = b.Stronger
		c.from["stronger"] = source{s, "stronger"}
	}
	if b.Image+b.Template != "" { // one stands in for the other
		c.Image, c.Template = "", ""
		delete(c.from, "image")
		delete(c.from, "template")
	}
	over(c, s, "image", &c.Image, b.Image)
	over(c, s, "template", &c.Template, b.Template)
	over(c, s, "user", &c.User, b.User)
	over(c, s, "read_only_root", &c.ReadOnly, b.ReadOnly)
	over(c, s, "network", &c.Network, b.Network)
	over(c, s, "limits.cpus", &c.Limits.CPUs, b.Limits.CPUs)
	over(c, s, "limits.memory", &c.Limits.Memory, b.Limits.Memory)
	over(c, s, "limits.pids", &c.Limits.PIDs, b.Limits.PIDs)
	over(c, s, "limits.disk", &c.Limits.Disk, b.Limits.Disk)
	over(c, s, "limits.inodes", &c.Limits.Inodes, b.Limits.Inodes)
	over(c, s, "supervise", &c.Supervise, b.Supervise)
	over(c, s, "git_user.name", &c.GitUser.Name, b.GitUser.Name)
	over(c, s, "git_user.email", &c.GitUser.Email, b.GitUser.Email)
	c.Secrets = c.union(s, "secrets", c.Secrets, b.Secrets)
	c.Caches = c.union(s, "caches", c.Caches, b.Caches)
	c.Env = each(c, s, "env", c.Env, b.Env)
	c.Remotes = each(c, s, "remotes", c.Remotes, b.Remotes)
	if b.Policy != nil {
		c.layPolicy(s, b.Policy)
	}
}

// over replaces what was said by what is, unless that is nothing.
func over[T comparable](c *composed, s *said[Bottle], path string, to *T, v T) {
	var none T
	if v != none {
		*to = v
		c.from[path] = source{s, path}
	}
}

// union adds to a list what it lacks.
func (c *composed) union(s *said[Bottle], path string, to, more []string) []string {
	for i, v := range more {
		if !slices.Contains(to, v) {
			to = append(to[:len(to):len(to)], v)
			c.from[path+"."+v] = source{s, fmt.Sprintf("%s[%d]", path, i)}
		}
	}
	return to
}

// each replaces entries of a mapping, each as a whole.
func each[T any](c *composed, s *said[Bottle], path string, to, more map[string]T) map[string]T {
	out := make(map[string]T, len(to)+len(more))
	for k, v := range to {
		out[k] = v
	}
	for k, v := range more {
		out[k] = v
		c.from[path+"."+k] = source{s, path + "." + k}
	}
	return out
}

// layPolicy adds rules, presets and services; default, dns and ask are those of the last
// bottle that has them.
func (c *composed) layPolicy(s *said[Bottle], more *policy.Policy) {
	more = policy.Clone(more)
	if c.Policy == nil {
		c.Policy = &policy.Policy{}
	}
	p := c.Policy
	c.from["policy"] = source{s, "policy"}
	over(c, s, "policy.version", &p.Version, more.Version)
	over(c, s, "policy.default", &p.Default, more.Default)
	over(c, s, "policy.ask", &p.Ask, more.Ask)
	if len(more.DNS.Types)+len(more.DNS.Upstreams)+more.DNS.QueriesPerMinute > 0 {
		p.DNS = more.DNS
		c.from["policy.dns"] = source{s, "policy.dns"}
	}
	add := func(path string, to *[]string, list []string, whence *[]source) {
		for i, v := range list {
			if !slices.Contains(*to, v) {
				*to = append(*to, v)
				*whence = append(*whence, source{s, fmt.Sprintf("policy.%s[%d]", path, i)})
			}
		}
	}
	add("presets", &p.Presets, more.Presets, &c.presets)
	add("services", &p.Services, more.Services, &c.services)
	for i, r := range more.Rules {
		p.Rules = append(p.Rules, r)
		c.rules = append(c.rules, source{s, fmt.Sprintf("policy.rules[%d]", i)})
	}
}

var indexed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(rules|presets|services)\[(\d+)\](.*)$`) })

// policySource is who says the thing of the policy that an error of package policy names.
func (c *composed) policySource(where string) source {
	if m := indexed().FindStringSubmatch(where); m != nil {
		list := map[string][]source{"rules": c.rules, "presets": c.presets, "services": c.services}[m[1]]
		if i, err := strconv.Atoi(m[2]); err == nil && i < len(list) {
			return source{list[i].bottle, list[i].path + m[3]}
		}
	}
	head, _, _ := strings.Cut(where, ".")
	if s, ok := c.from["policy."+head]; ok {
		return source{s.bottle, "policy." + where}
	}
	if s, ok := c.from["policy"]; ok {
		return s
	}
	return source{c.self, "network"}
}

// place is where what is at path was said, or the bottle itself.
func (c *composed) place(path string) Place {
	if s, ok := c.from[path]; ok {
		return s.place()
	}
	return c.self.place(path)
}
