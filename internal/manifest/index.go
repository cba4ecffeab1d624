package manifest

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/near"
)

// Sources say where files are looked for.
type Sources struct {
	Config     string // the user's configuration; "": there is none
	Repository string // the top of a repository whose agents count; "": none does
	// Files are further ones, each a bottle's, an agent's or of both, which take the place
	// of others of their names.
	Files []string
}

// Index is what all files say, each by itself.
type Index struct {
	// Notes tell what was found and does not count.
	Notes []string

	config  string
	bottles map[string]*said[Bottle]
	agents  map[string]*said[Agent]
}

// Load reads all files. Every mistake in one of them ends it; Problems has them one by one.
func Load(s Sources) (*Index, error) {
	x, p := newIndex(s.Config), &problems{}
	for _, file := range s.Files {
		x.readFile(file, p)
	}
	if s.Config != "" {
		x.readConfig(p)
	}
	if s.Repository != "" {
		list, notes := readRepository(s.Repository, p)
		x.Notes = append(x.Notes, notes...)
		for _, t := range list {
			x.addAgent(parse[Agent](t.file, t.bytes, t.origin, p), p)
		}
	}
	return x.checked(p)
}

// FromJSON is an index of one object with bottles and agents. config is as in Sources, for
// providers alone.
func FromJSON(file string, b []byte, config string) (*Index, error) {
	x, p := newIndex(config), &problems{}
	if len(b) > maxFile {
		p.add(Place{File: file}, "", "larger than 1 MiB")
	} else {
		parseBoth(text{file, ofUser, b}, x, p)
	}
	return x.checked(p)
}

func newIndex(config string) *Index {
	return &Index{config: config, bottles: map[string]*said[Bottle]{}, agents: map[string]*said[Agent]{}}
}

func (x *Index) readConfig(p *problems) {
	if t := readConfigFile(filepath.Join(x.config, bothFile), p); t != nil {
		parseBoth(*t, x, p)
	}
	for _, t := range readConfig(filepath.Join(x.config, bottlesDir), p) {
		x.addBottle(parse[Bottle](t.file, t.bytes, t.origin, p), p)
	}
	for _, t := range readConfig(filepath.Join(x.config, agentsDir), p) {
		x.addAgent(parse[Agent](t.file, t.bytes, t.origin, p), p)
	}
}

// checked is the index, once everything in it was looked at. Of files that could not all be
// read nothing more is said: what one of them lacks may be in another.
func (x *Index) checked(p *problems) (*Index, error) {
	if len(p.list) == 0 {
		x.check(p)
	}
	if err := p.result(); err != nil {
		return nil, err
	}
	return x, nil
}

var validName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`) })

const nameHint = "a to z, 0 to 9 and -, a letter first, at most 40"

func (x *Index) addBottle(s *said[Bottle], p *problems) {
	switch {
	case s == nil:
	case !validName().MatchString(s.name):
		p.add(s.at, nameHint, "%s is no name of a bottle", quoted(s.name))
	case x.bottles[s.name] != nil && x.bottles[s.name].origin == ofFile && s.origin != ofFile:
	case x.bottles[s.name] != nil:
		p.add(s.at, "keep one of them", "the bottle %s is there twice: %s", s.name, x.bottles[s.name].at.Where())
	default:
		x.bottles[s.name] = s
	}
}

// addAgent adds an agent. One of the user's goes before one of a repository's, which can't
// take its place.
func (x *Index) addAgent(s *said[Agent], p *problems) {
	if s == nil {
		return
	}
	if !validName().MatchString(s.name) {
		p.add(s.at, nameHint, "%s is no name of an agent", quoted(s.name))
		return
	}
	switch other := x.agents[s.name]; {
	case other == nil:
		x.agents[s.name] = s
	case other.origin == ofFile && s.origin != ofFile:
	case other.origin == s.origin:
		p.add(s.at, "keep one of them", "the agent %s is there twice: %s", s.name, other.at.Where())
	default:
		x.Notes = append(x.Notes, s.at.File+": not taken: your own agent "+s.name+" is in "+other.at.File)
	}
}

// Agents are the names of all agents, in order.
func (x *Index) Agents() []string { return slices.Sorted(maps.Keys(x.agents)) }

// Bottles are the names of all bottles, in order.
func (x *Index) Bottles() []string { return slices.Sorted(maps.Keys(x.bottles)) }

// Has reports whether there is an agent of that name.
func (x *Index) Has(agent string) bool { return x.agents[agent] != nil }

// noAgent says that there is none of that name.
func (x *Index) noAgent(name string) error {
	e := sandbox.Errorf(sandbox.NotFound, "agent %.60q: there is none of that name", name)
	if n := near.Of(name, x.Agents()); n != "" {
		return e.WithHint("did you mean %s?", n)
	}
	if len(x.agents) == 0 {
		return e.WithHint("write %s", filepath.Join(x.config, agentsDir, "NAME.md"))
	}
	return e.WithHint("carboy manifest ls")
}

// nearest says, as a hint, which bottle was meant.
func (x *Index) nearest(bottle string) string {
	if n := near.Of(bottle, x.Bottles()); n != "" {
		return "did you mean " + n + "?"
	}
	if len(x.bottles) == 0 {
		return "write " + filepath.Join(x.config, bottlesDir, "NAME.md")
	}
	return "carboy manifest ls"
}
