package manifest

import (
	"cmp"
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
}

// ListedAgent is an agent, and where it is said.
type ListedAgent struct {
	Name     string `json:"name"`
	Bottle   string `json:"bottle"`
	Provider string `json:"provider"`
	Origin   string `json:"origin"` // "user", "repository", or "file" for one that was named
	At       Place  `json:"at"`
}

// List is what the index has.
func (x *Index) List() Listing {
	l := Listing{Bottles: []ListedBottle{}, Agents: []ListedAgent{}}
	for _, name := range x.Bottles() {
		b := x.bottles[name]
		l.Bottles = append(l.Bottles, ListedBottle{name, append([]string{}, b.is.Extends...), b.at})
	}
	for _, name := range x.Agents() {
		a := x.agents[name]
		l.Agents = append(l.Agents, ListedAgent{name, a.is.Bottle, cmp.Or(a.is.Provider, defaultProvider), string(a.origin), a.at})
	}
	return l
}
