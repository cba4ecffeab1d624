package main

import (
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
)

// places are what a process sees before it does anything, by kind.
type places struct {
	leads  []string // directories that something is mounted in
	points []string // what is mounted on
	dirs   []string // others, from / on
	magic  []string // links of /proc that are followed by what they are
	shown  map[string][]string
}

// enumerate looks around from / to a bounded depth.
func enumerate() places {
	p := places{shown: map[string][]string{}}
	for _, m := range mounts() {
		p.points = append(p.points, m.target)
		for d := m.target; d != "/"; d = path.Dir(d) {
			p.leads = append(p.leads, path.Dir(d))
		}
	}
	p.points, p.leads = unique(p.points), unique(p.leads)
	p.dirs = directories("/", 2, 160)
	for _, dir := range slices.Concat(p.points, p.leads) {
		p.shown[dir] = names(dir)
	}
	for _, pid := range []string{"self", "thread-self", "1"} {
		for _, l := range []string{"root", "cwd", "fd/0", "fd/1"} {
			p.magic = append(p.magic, "/proc/"+pid+"/"+l)
		}
	}
	return p
}

func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// names lists a directory, in order.
func names(dir string) (list []string) {
	for _, e := range entries(dir) {
		list = append(list, e.Name())
	}
	return list
}

// directories lists those below dir, breadth first. Of what a kernel makes up
// it takes the first level alone.
func directories(dir string, depth, most int) (list []string) {
	level := []string{dir}
	for ; depth >= 0 && len(level) > 0; depth-- {
		list = append(list, level...)
		var next []string
		for _, d := range level {
			if depth == 0 || within(d, "/proc") || within(d, "/sys") {
				continue
			}
			kept := 0
			for _, e := range entries(d) {
				if p := path.Join(d, e.Name()); e.IsDir() && !within(p, scratchRoot) && kept < 12 {
					next = append(next, p)
					kept++
				}
			}
		}
		level = next
		if len(list) >= most {
			break
		}
	}
	return list[:min(len(list), most)]
}

func pick[T any](r *rand.Rand, list []T) (one T) {
	if len(list) == 0 {
		return one
	}
	return list[r.IntN(len(list))]
}

// somewhere is any directory that there is.
func (s *sequence) somewhere() string {
	kinds := [][]string{s.places.leads, s.places.leads, s.places.points, s.places.dirs, s.places.magic, s.scratches(), s.covered, s.newDirs()}
	for {
		if list := pick(s.rand, kinds); len(list) > 0 {
			return pick(s.rand, list)
		}
	}
}

func (s *sequence) scratches() (list []string) {
	for _, d := range []string{"a", "b", "m", "n", "w", "x"} {
		list = append(list, s.scratch+"/"+d)
	}
	return list
}

// newDirs are directories that lead to what is new, or are it.
func (s *sequence) newDirs() (list []string) {
	for _, n := range s.news {
		list = append(list, path.Dir(n))
		if fi, err := os.Lstat(n); err == nil && fi.IsDir() {
			list = append(list, n)
		}
	}
	return unique(list)
}

// entry is something that is new or the sequence's own, or else anything in
// any directory.
func (s *sequence) entry() string {
	if len(s.news) > 0 && s.rand.IntN(3) != 0 {
		return pick(s.rand, s.news)
	}
	dir := pick(s.rand, append(s.scratches(), s.covered...))
	if s.rand.IntN(4) == 0 {
		dir = s.somewhere()
	}
	if list := names(dir); len(list) > 0 {
		return path.Join(dir, pick(s.rand, list))
	}
	return path.Join(dir, s.fresh())
}

// fresh is a name of which there are few, so that steps meet again and a box
// does not fill up.
func (s *sequence) fresh() string {
	return "composed-" + string("abcd"[s.rand.IntN(4)])
}

// mayHarm reports whether an entry may be changed or removed: all but what
// the box needs to go on.
func (s *sequence) mayHarm(p string) bool {
	return s.own(p) || slices.Contains(s.news, p) || strings.HasPrefix(path.Base(p), "composed-") ||
		slices.ContainsFunc(s.covered, func(dir string) bool { return within(p, dir) && slices.Contains(s.newDirs(), path.Dir(p)) })
}
