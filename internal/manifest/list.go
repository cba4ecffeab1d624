package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Listing is what there is, in order of names.
type Listing struct {
	Bottles []ListedBottle `json:"bottles"`
	Agents  []ListedAgent  `json:"agents"`
}

// ListedBottle is a bottle, and where it is said.
type ListedBottle struct {
	Name    string   `json:"name"`
	Extends []string `json:"extends"`
	At      Place    `json:"at"`
	Error   string   `json:"error,omitempty"` // why nobody can run in it
}

// ListedAgent is an agent, and where it is said.
type ListedAgent struct {
	Name     string `json:"name"`
	Bottle   string `json:"bottle"`
	Provider string `json:"provider"`
	Origin   string `json:"origin"` // "user", "repository", or "file" for one that was named
	At       Place  `json:"at"`
	Error    string `json:"error,omitempty"` // why it can't be run
}

// List is what the index has, the bad among it.
func (x *Index) List() Listing {
	l := Listing{Bottles: []ListedBottle{}, Agents: []ListedAgent{}}
	for _, name := range all(&x.bottles) {
		if f := x.bottles.bad[name]; f != nil {
			l.Bottles = append(l.Bottles, ListedBottle{name, []string{}, f.at, f.short()})
			continue
		}
		b := x.bottles.good[name]
		l.Bottles = append(l.Bottles, ListedBottle{name, append([]string{}, b.is.Extends...), b.at, x.checkBottle(name).short()})
	}
	for _, name := range all(&x.agents) {
		l.Agents = append(l.Agents, x.listAgent(&x.agents, name))
	}
	for _, name := range all(&x.shipped) {
		if !x.agents.has(name) {
			l.Agents = append(l.Agents, x.listAgent(&x.shipped, name))
		}
	}
	slices.SortFunc(l.Agents, func(a, b ListedAgent) int { return cmp.Compare(a.Name, b.Name) })
	return l
}

func (x *Index) listAgent(k *kept[Agent], name string) ListedAgent {
	if f := k.bad[name]; f != nil {
		return ListedAgent{Name: name, Origin: string(f.origin), At: f.at, Error: f.short()}
	}
	a := k.good[name]
	var p problems
	if x.agent(name, &p) != nil {
		x.resolve(a, &p)
	}
	return ListedAgent{name, a.is.Bottle, cmp.Or(a.is.Provider, defaultProvider), string(a.origin), a.at, p.short()}
}

// all are the names of what there is, good or bad, in order.
func all[T any](k *kept[T]) []string {
	names := append(k.names(), slices.Collect(maps.Keys(k.bad))...)
	slices.Sort(names)
	return names
}

// short is the first mistake, and how many more there are.
func (p *problems) short() string {
	if !p.any() {
		return ""
	}
	text := p.list[0].Error()
	if n := len(p.list) - 1 + p.more; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}
