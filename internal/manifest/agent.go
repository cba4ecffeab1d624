package manifest

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/provider"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// defaultProvider is whom an agent without a word about it runs.
const defaultProvider = "claude"

// Bounds of an agent.
const (
	maxSkills    = 64
	maxWritten   = 64
	filesAllowed = 0o777
)

var skillName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`) })

// checkAgent looks at what an agent's file says by itself, and finds its program.
func (x *Index) checkAgent(s *said[Agent], p *problems) *provider.Provider {
	a := &s.is
	of, err := x.provider(s)
	switch {
	case err != nil:
		p.err(err)
	case a.Prompt != "" && of.Run.PromptMode == "":
		p.add(s.place("prompt"), "leave it out, or take another provider", "%s takes no prompt", of.Name)
	case len(a.Skills) > 0 && of.Config.Skills == "":
		p.add(s.place("skills"), "leave them out, or take another provider", "%s takes no skills", of.Name)
	}
	if len(a.Skills) > maxSkills || len(a.Files) > maxWritten {
		p.add(s.at, "", "more than %d skills or %d files", maxSkills, maxWritten)
		return of
	}
	for i, name := range a.Skills {
		at := s.place(fmt.Sprintf("skills[%d]", i))
		switch {
		case !skillName().MatchString(name):
			p.add(at, "letters, digits, - and _, at most 64", "%s is no name of a skill", quoted(name))
		case slices.Contains(a.Skills[:i], name):
			p.add(at, "name it once", "the skill %s is there twice", name)
		}
	}
	checkGitUser(a.GitUser, s.place, p)
	for i := range a.Files {
		f := &a.Files[i]
		at := s.place(fmt.Sprintf("files[%d].path", i))
		if problem := f.problem(); problem != "" {
			p.add(at, "a path below the home, such as ~/notes.md, and an octal mode", "files[%d]: %s", i, problem)
		} else if slices.ContainsFunc(a.Files[:i], func(o File) bool { return o.Path == f.Path }) {
			p.add(at, "name it once", "the file %s is there twice", quoted(f.Path))
		}
	}
	return of
}

// problem says what is wrong with a file; "" where nothing is.
func (f *File) problem() string {
	below, ok := strings.CutPrefix(f.Path, "~/")
	switch {
	case !ok || path.Clean("/"+below) != "/"+below || below == "" || len(f.Path) > 1024:
		return quoted(f.Path) + " is no file below the home"
	case strings.ContainsFunc(f.Path, unicode.IsControl):
		return quoted(f.Path) + " has a control character"
	}
	if f.Mode == "" {
		return ""
	}
	if n, err := strconv.ParseUint(f.Mode, 8, 32); err != nil || n > filesAllowed {
		return quoted(f.Mode) + " is no mode of a file"
	}
	return ""
}

// provider is the program that an agent runs.
func (x *Index) provider(s *said[Agent]) (*provider.Provider, error) {
	name := s.is.Provider
	if name == "" {
		name = defaultProvider
	}
	dir := ""
	if x.config != "" {
		dir = filepath.Join(x.config, agentsDir)
	}
	found, err := provider.Find(dir, name)
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind == sandbox.NotFound {
		hint := e.Hint
		if !strings.HasPrefix(hint, "did you mean") {
			hint = "carboy agent ls"
		}
		return nil, &Error{Place: s.place("provider"), Problem: "there is no provider " + quoted(name), Hint: hint}
	}
	if err != nil {
		out := &Error{Place: s.place("provider"), Problem: err.Error()}
		if e, ok := errors.AsType[*sandbox.Error](err); ok {
			out.Hint = e.Hint
		}
		return nil, out
	}
	return found, nil
}

// reach is what an agent may reach.
type reach struct {
	network string
	policy  *policy.Policy
	secrets []string
	own     bool // by a policy of the agent's own
}

// reach is what an agent may reach in its bottle: what the bottle allows, or what a policy
// of its own leaves of that, which is proved to be no more.
func (c *composed) reach(s *said[Agent]) (reach, error) {
	own := s.is.Policy
	if own == nil {
		return reach{network: c.Network, policy: c.Policy, secrets: c.Secrets}, nil
	}
	var p problems
	place := func(where string) Place { return s.place("policy." + where) }
	wide := policy.Policy{}
	if c.Policy != nil {
		wide = *c.Policy
	}
	within, err := policy.Within(*own, wide, c.Secrets)
	if found := policy.Problems(err); len(found) > 0 {
		for _, e := range found {
			if m := indexed().FindStringSubmatch(e.Where); m != nil && m[1] == "rules" {
				if i, err := strconv.Atoi(m[2]); err == nil && i >= len(own.Rules) {
					e.Where = "presets" // whose rules stand behind
				}
			}
			e.Problem = strings.ReplaceAll(e.Problem, "the wider policy", "the bottle "+c.name)
		}
		policyProblems(err, place, &p)
		return reach{}, p.result()
	}
	if c.Policy == nil { // and so the agent's allows nothing
		return reach{network: c.Network, own: true}, nil
	}
	set, err := policy.Compile(within, c.Secrets)
	if err != nil {
		return reach{}, &Error{Place: s.place("policy"), Problem: err.Error()}
	}
	network := sandbox.NetworkPolicy
	if policy.Public(within.Default) {
		network = sandbox.NetworkOn
	}
	return reach{network: network, policy: &within, secrets: set.Secrets(), own: true}, nil
}
