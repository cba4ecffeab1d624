package manifest

import (
	"maps"
	"regexp"
	"slices"
	"sync"
)

// kept is what files say of one kind of thing, by name.
type kept[T any] struct {
	kind, one string // "agent", "an agent"

	good map[string]*said[T]
	bad  map[string]*fault
	// lost has mistakes by which nothing is known of names that are neither good nor bad.
	lost problems
}

// fault is what is wrong with what a file says of one thing.
type fault struct {
	problems

	origin origin
	at     Place
}

func newKept[T any](kind, one string) kept[T] {
	return kept[T]{kind: kind, one: one, good: map[string]*said[T]{}, bad: map[string]*fault{}}
}

// has reports whether there is one of that name, good or bad.
func (k *kept[T]) has(name string) bool { return k.good[name] != nil || k.bad[name] != nil }

// names are those of what can be read, in order.
func (k *kept[T]) names() []string { return slices.Sorted(maps.Keys(k.good)) }

var validName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`) })

const nameHint = "a to z, 0 to 9 and -, a letter first, at most 40"

// readOne reads a file that says one thing.
func readOne[T any](x *Index, k *kept[T], t text) {
	var p problems
	at := Place{File: t.file}
	if t.err != nil {
		p.err(t.err)
		k.fail(x, nameOf(t.file), t.origin, at, &p)
		return
	}
	if s := parse[T](t.file, t.bytes, t.origin, &p); s != nil {
		k.add(x, s)
		return
	}
	k.fail(x, nameOf(t.file), t.origin, at, &p)
}

// add adds what a file says of one thing. A file that was named takes the place of others.
func (k *kept[T]) add(x *Index, s *said[T]) {
	var p problems
	other := k.good[s.name]
	switch {
	case k.named(s.name, s.origin):
		return
	case !validName().MatchString(s.name):
		p.add(s.at, nameHint, "%s is no name of %s", quoted(s.name), k.one)
	case other != nil:
		p.add(s.at, "keep one of them", "the %s %s is there twice: %s", k.kind, s.name, other.at.Where())
	case k.bad[s.name] == nil:
		k.good[s.name] = s
		return
	}
	k.fail(x, s.name, s.origin, s.at, &p)
}

// named reports whether there is one already by a file that was named, which this one is not.
func (k *kept[T]) named(name string, o origin) bool {
	if o == ofFile {
		return false
	}
	good, bad := k.good[name], k.bad[name]
	return good != nil && good.origin == ofFile || bad != nil && bad.origin == ofFile
}

// fail notes that what is said of a name is not to be followed, whoever else says something of it.
func (k *kept[T]) fail(x *Index, name string, o origin, at Place, p *problems) {
	if k.named(name, o) {
		return
	}
	x.mistakes.join(p)
	if f := k.bad[name]; f != nil {
		f.join(p)
		return
	}
	delete(k.good, name)
	f := &fault{origin: o, at: at}
	f.join(p)
	k.bad[name] = f
}
