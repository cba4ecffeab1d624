package manifest

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/home"
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

// Index is what all files say, each by itself. What is wrong with one of them is known of it, and
// fails what needs that one.
type Index struct {
	// Notes tell what was found and does not count.
	Notes []string

	config  string
	bottles kept[Bottle]
	agents  kept[Agent] // the user's, and those of files that were named
	shipped kept[Agent] // the repository's, none of which takes the place of one of the user's

	refused  problems // directories of the configuration
	mistakes problems
	composed map[string]*checkedBottle
}

// Load reads all files. The index is there whatever they say: an error has the mistakes in them,
// and Problems has them one by one.
func Load(s Sources) (*Index, error) {
	x := newIndex(s.Config)
	for _, file := range s.Files {
		x.readFile(file)
	}
	if s.Config != "" {
		x.readConfig()
	}
	if s.Repository != "" {
		var p problems
		list, notes := readRepository(s.Repository, &p)
		x.lose(&p, &x.shipped.lost)
		x.Notes = append(x.Notes, notes...)
		for _, t := range list {
			readOne(x, &x.shipped, t)
		}
	}
	x.check()
	return x, x.mistakes.result()
}

// FromJSON is an index of one object with bottles and agents. config is as in Sources, for
// providers alone.
func FromJSON(file string, b []byte, config string) (*Index, error) {
	x := newIndex(config)
	t := text{file: file, origin: ofUser, bytes: b}
	if len(b) > maxFile {
		t.err = unread(file, unix.EFBIG)
	}
	x.readBoth(t)
	x.check()
	return x, x.mistakes.result()
}

func newIndex(config string) *Index {
	return &Index{
		config: config, composed: map[string]*checkedBottle{},
		bottles: newKept[Bottle]("bottle", "a bottle"), agents: newKept[Agent]("agent", "an agent"), shipped: newKept[Agent]("agent", "an agent"),
	}
}

func (x *Index) readConfig() {
	d, err := home.OpenTrustedDir(x.config)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		x.refused.err(unread(x.config, err))
		x.lose(&x.refused, &x.bottles.lost, &x.agents.lost)
		return
	}
	_ = d.Close() // nothing was read: each file in it is found anew
	if t := readOwn(filepath.Join(x.config, bothFile)); t.err == nil || !t.missing {
		x.readBoth(t)
	}
	readKind(x, &x.bottles, bottlesDir)
	readKind(x, &x.agents, agentsDir)
}

// readKind reads all files of one kind of the configuration.
func readKind[T any](x *Index, k *kept[T], dir string) {
	var p problems
	for _, t := range readConfig(filepath.Join(x.config, dir), &p) {
		readOne(x, k, t)
	}
	x.refused.join(&p)
	x.lose(&p, &k.lost)
}

// lose notes mistakes by which something is not known of names that are nowhere else.
func (x *Index) lose(p *problems, of ...*problems) {
	for _, lost := range of {
		lost.join(p)
	}
	x.mistakes.join(p)
}

// Refused is why directories of the configuration can't be used; nil: they can.
func (x *Index) Refused() error { return x.refused.result() }

// Lost is what is wrong with directories, and with an object of all: it may hide names; nil: all are
// known.
func (x *Index) Lost() error {
	var p problems
	for _, lost := range []*problems{&x.bottles.lost, &x.agents.lost, &x.shipped.lost} {
		p.join(lost)
	}
	return p.result()
}

// Agents are the names of all agents that can be read, in order.
func (x *Index) Agents() []string {
	names := x.agents.names()
	for _, name := range x.shipped.names() {
		if !x.agents.has(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Bottles are the names of all bottles that can be read, in order.
func (x *Index) Bottles() []string { return x.bottles.names() }

// Has reports whether there is an agent of that name, good or bad.
func (x *Index) Has(agent string) bool { return x.agents.has(agent) || x.shipped.has(agent) }

// HasBottle reports whether there is a bottle of that name, good or bad.
func (x *Index) HasBottle(name string) bool { return x.bottles.has(name) }

// agent finds the agent of that name: the user's, or else the repository's. Where the user's may be
// in what could not be read, the repository's is not taken.
func (x *Index) agent(name string, p *problems) *said[Agent] {
	for _, k := range []*kept[Agent]{&x.agents, &x.shipped} {
		if s := k.good[name]; s != nil {
			return s
		}
		if f := k.bad[name]; f != nil {
			p.join(&f.problems)
			return nil
		}
		if k.lost.any() {
			p.join(&k.lost)
			return nil
		}
	}
	p.err(x.noAgent(name))
	return nil
}

// noAgent says that there is none of that name.
func (x *Index) noAgent(name string) error {
	e := sandbox.Errorf(sandbox.NotFound, "agent %.60q: there is none of that name", name)
	if n := near.Of(name, x.Agents()); n != "" {
		return e.WithHint("did you mean %s?", n)
	}
	if len(x.Agents()) == 0 {
		return e.WithHint("carboy init writes one for each coding agent that is installed here, or write %s", filepath.Join(x.config, agentsDir, "NAME.md"))
	}
	return e.WithHint("carboy manifest ls")
}

// nearest says, as a hint, which bottle was meant.
func (x *Index) nearest(bottle string) string {
	if n := near.Of(bottle, x.Bottles()); n != "" {
		return "did you mean " + n + "?"
	}
	if len(x.Bottles()) == 0 {
		return "write " + filepath.Join(x.config, bottlesDir, "NAME.md")
	}
	return "carboy manifest ls"
}
