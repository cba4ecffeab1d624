package mcpgateway

import (
	"strings"
	"sync"
)

// kind is what has a name of its own.
type kind int

const (
	kindTool kind = iota
	kindPrompt
	kindResource
	kindTemplate
	kinds
)

// shownName is what clients know something by, and what it is called where it
// comes from.
type shownName struct {
	b    *backend
	name string
}

// registry says which server has what. The first that has a name keeps it; for
// others it is prefixed.
type registry struct {
	mu    *sync.Mutex
	names [kinds]map[string]shownName
}

func newRegistry() registry {
	r := registry{mu: &sync.Mutex{}}
	for k := range r.names {
		r.names[k] = map[string]shownName{}
	}
	return r
}

// claim finds a name for what b calls name, and reports false where there is
// none left.
func (r *registry) claim(k kind, b *backend, name string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, try := range []string{name, prefixed(k, b, name)} {
		if has, ok := r.names[k][try]; !ok || has.b == b && has.name == name {
			r.names[k][try] = shownName{b, name}
			return try, true
		}
	}
	return "", false
}

// prefixed makes an address another by its scheme, and any other name by what
// is before it.
func prefixed(k kind, b *backend, name string) string {
	if k == kindResource || k == kindTemplate {
		return scheme(b.short) + "+" + name
	}
	return b.short + "_" + name
}

// scheme makes of a name one that a URI's scheme may begin with.
func scheme(name string) string {
	return "s" + strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// shown is what clients know b's name by; itself, where they do not.
func (r *registry) shown(k kind, b *backend, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := prefixed(k, b, name); r.names[k][p] == (shownName{b, name}) {
		return p
	}
	return name
}

// find returns whose a shown name is.
func (r *registry) find(k kind, name string) (shownName, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.names[k][name]
	return n, ok
}

// release gives up all names of b that are not among keep, and returns them.
func (r *registry) release(k kind, b *backend, keep map[string]bool) (gone []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, n := range r.names[k] {
		if n.b == b && !keep[name] {
			delete(r.names[k], name)
			gone = append(gone, name)
		}
	}
	return gone
}
