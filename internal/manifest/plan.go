package manifest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/bottle"
	"github.com/carboy-sandbox/carboy/internal/gitremote"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Services that the gate offers to a bottle.
const (
	ServiceGit       = sandbox.ServiceGit // its remotes
	ServiceSupervise = "supervise"        // questions of the agent to its user
)

// Plan is all that would be done for one agent, and why. It has no value of a secret and
// none of a variable, and can be printed as it is.
type Plan struct {
	Slug     string `json:"slug"` // of the sandbox: the agent's name and five characters
	Agent    string `json:"agent"`
	Bottle   string `json:"bottle"`
	Origin   string `json:"origin"` // whose the agent's file is: "user" or "repository"
	Digest   string `json:"digest"` // SHA-256 of that file: what was shown is known again by it
	Provider string `json:"provider"`

	Create   api.CreateRequest `json:"create"`   // what the daemon is asked for; Env is in Request
	Env      []string          `json:"env"`      // the names alone
	Services []string          `json:"services"` // of the gate
	Remotes  []PlannedRemote   `json:"remotes"`
	GitUser  GitUser           `json:"git_user"`
	Prompt   string            `json:"prompt"`
	Skills   []string          `json:"skills"`
	Files    []File            `json:"files"`
	Steps    []Step            `json:"steps"` // what is done in the sandbox, in this order
	Lines    []Line            `json:"lines"` // all of it in words

	env    map[string]string
	placed map[string]Place // of what a machine may refuse, by the word that its error begins with
}

// PlannedRemote is a remote with all that its URL leaves unsaid.
type PlannedRemote struct {
	Name string `json:"name"`
	Remote
	User     string   `json:"user,omitempty"` // by SSH
	Host     string   `json:"host"`
	Port     string   `json:"port"`
	URLs     []string `json:"urls"`     // by which git inside asks the gate for it
	Forwards bool     `json:"forwards"` // false: the host's key is not known, so that nothing is forwarded
}

// Step is one thing that is done in the sandbox.
type Step struct {
	Do   string   `json:"do"` // as api.SetUpStep has it; "start" is the last
	What string   `json:"what"`
	User string   `json:"user,omitempty"` // who runs Argv
	Argv []string `json:"argv,omitempty"`
}

// Line says one thing of a plan.
type Line struct {
	Topic string `json:"topic"`
	Says  string `json:"says"`
	Why   string `json:"why"`          // who says so
	At    *Place `json:"at,omitempty"` // where; nil: nowhere, as of a default
}

// warning is the topic of lines that warn.
const warning = "warning"

const (
	slugLen    = 5
	slugDigits = "0123456789abcdefghijklmnopqrstuvwxyz"
)

var slugEnd = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-z]{5}$`) })

// NewSlug draws the name of a sandbox for an agent.
func NewSlug(agent string) string {
	end := make([]byte, 0, slugLen)
	for len(end) < slugLen {
		var b [1]byte
		_, _ = rand.Read(b[:]) // it never fails
		if n := int(b[0]); n < 256/len(slugDigits)*len(slugDigits) {
			end = append(end, slugDigits[n%len(slugDigits)])
		}
	}
	return agent + "-" + string(end)
}

// Plan decides all that can be decided before anything runs. slug is one of NewSlug's.
func (m *Manifest) Plan(slug string) (*Plan, error) {
	end, ok := strings.CutPrefix(slug, m.Name+"-")
	if !ok || !slugEnd().MatchString(end) {
		return nil, sandbox.Errorf(sandbox.Invalid, "%q is no name of a sandbox of the agent %s: it has that, a - and five of 0-9 and a-z", slug, m.Name)
	}
	p := &Plan{
		Slug: slug, Agent: m.Name, Bottle: m.bottle.name, Origin: string(m.agent.origin), Digest: m.agent.digest, Provider: m.Provider.Name,
		Create: m.create(slug), Env: slices.Sorted(maps.Keys(m.Bottle.Env)), env: maps.Clone(m.Bottle.Env), placed: map[string]Place{},
		Services: []string{}, Remotes: []PlannedRemote{}, GitUser: m.Agent.GitUser,
		Prompt: m.Agent.Prompt, Skills: append([]string{}, m.Agent.Skills...), Files: append([]File{}, m.Agent.Files...),
	}
	if p.Env == nil {
		p.Env = []string{}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Bottle.Remotes)) {
		r := m.Bottle.Remotes[name]
		a, _ := gitremote.Parse(r.URL) // it was looked at
		p.Remotes = append(p.Remotes, PlannedRemote{
			Name: name, Remote: r, User: a.User, Host: a.Host, Port: a.Port,
			Forwards: !a.SSH || len(gitremote.Keys(r.KnownHostKey)) > 0,
		})
	}
	m.spell(p)
	if len(p.Remotes) > 0 {
		p.Services = append(p.Services, ServiceGit)
	}
	if *m.Bottle.Supervise {
		p.Services = append(p.Services, ServiceSupervise)
	}
	for word, path := range map[string]string{
		"image": "image", "template": "template", sandbox.LimitCPUs: "limits.cpus", sandbox.LimitMemory: "limits.memory",
		sandbox.LimitPIDs: "limits.pids", sandbox.LimitDisk: "limits.disk", sandbox.LimitInodes: "limits.inodes",
	} {
		if from, ok := m.bottle.from[path]; ok {
			p.placed[word] = from.place()
		}
	}
	p.steps()
	m.explain(p)
	return p, nil
}

// Placed adds to an error of the machine's about something that the bottle says where that is said.
func (p *Plan) Placed(err error) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Kind == sandbox.Internal {
		return err
	}
	said := strings.TrimPrefix(e.Msg, "--")
	word, _, _ := strings.Cut(said, " ")
	at, ok := p.placed[strings.TrimSuffix(word, ":")]
	if image := p.Create.Image; !ok && image != sandbox.DefaultImage && image != "" && strings.Contains(e.Msg, image) {
		at, ok = p.placed["image"] // a registry's words begin with its own name
	}
	if !ok {
		return err
	}
	out := *e
	out.Msg = at.Where() + ": " + said
	return &out
}

// Warnings are what a plan warns of, each in one line.
func (p *Plan) Warnings() (list []string) {
	for _, l := range p.Lines {
		if l.Topic == warning {
			list = append(list, l.Says+" ("+l.Why+")")
		}
	}
	return list
}

// Request is what the daemon is asked for, with the values of variables. Values of secrets
// are the daemon's own business.
func (p *Plan) Request() api.CreateRequest {
	req := p.Create
	req.Env = maps.Clone(p.env)
	return req
}

// gitBase is where the gate serves remotes.
const gitBase = "http://gate.carboy.internal/" + ServiceGit

// SetUp is what is done in the sandbox, as far as files say it: what is found out on this machine
// is not in it, nor the provider's file.
func (p *Plan) SetUp() *api.SetUp {
	s := &api.SetUp{
		Agent:     api.Agent{Name: p.Agent, Bottle: p.Bottle, Digest: p.Digest, Provider: p.Provider},
		GitConfig: p.GitConfig(gitBase), GitUser: api.GitUser(p.GitUser),
		Prompt: p.Prompt, Skills: p.Skills, Work: &api.SetUpWork{},
	}
	for _, f := range p.Files {
		s.Files = append(s.Files, api.SetUpWrite(f))
	}
	return s
}

// OfRepository reports whether the agent's file is a repository's, and not the user's own.
func (p *Plan) OfRepository() bool { return p.Origin == string(ofRepository) }

// Runnable says what of a plan can't be done yet, by its name: nothing that was written is
// left out in silence.
func (p *Plan) Runnable() error {
	for _, service := range p.Services {
		if service == ServiceSupervise {
			return sandbox.Errorf(sandbox.Unsupported, "the bottle %s is supervised, and what carries an agent's questions is not there yet", p.Bottle).
				WithHint("ask in its policy holds requests for you: leave supervise out of the bottle")
		}
	}
	return nil
}

// steps are what is done in the sandbox once it is there, as its user, whose configuration of
// git it is.
func (p *Plan) steps() {
	p.Steps = []Step{}
	for _, st := range bottle.Steps(p.SetUp(), p.Create.Network != "" && p.Create.Network != sandbox.NetworkOff) {
		s := Step{Do: st.Do, What: st.What, User: p.Create.User, Argv: st.Argv}
		switch st.Do {
		case bottle.DoRemotes:
			names := make([]string, len(p.Remotes))
			for i := range p.Remotes {
				names[i] = p.Remotes[i].Name
			}
			s.What = "git asks the gate for " + strings.Join(names, ", ")
		case bottle.DoWorkspace:
			s.What = "a copy-on-write view of the directory, and git is ready in it"
		case bottle.DoProvider:
			s.What = "what " + p.Provider + " needs: its directories, files and checks"
		}
		p.Steps = append(p.Steps, s)
	}
	p.Steps = append(p.Steps, Step{Do: bottle.DoStart, What: p.Provider, User: p.Create.User})
}

// GitConfig is what git is told in the sandbox, so that it asks the gate, at base, in the
// place of each remote; "" without any.
func (p *Plan) GitConfig(base string) string {
	var b strings.Builder
	for i := range p.Remotes {
		r := &p.Remotes[i]
		fmt.Fprintf(&b, "[url %s]\n", gitQuote(strings.TrimSuffix(base, "/")+"/"+r.Name+".git"))
		for _, url := range r.URLs {
			fmt.Fprintf(&b, "\tinsteadOf = %s\n", gitValue(url))
		}
	}
	return b.String()
}

// gitQuote is a text in quotes, by git's rules.
func gitQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// gitValue is a value as it is, where git reads it so.
func gitValue(s string) string {
	if strings.ContainsAny(s, "\"\\#; \t") {
		return gitQuote(s)
	}
	return s
}
