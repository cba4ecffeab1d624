package learn

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

const (
	// MaxExact is how many paths a rule names one by one, for a host and a method.
	MaxExact = 16
	maxValue = 1024 // bytes that a policy's value has at most
)

// Types of a path's comparison.
const (
	exact  = policy.MatchExact
	prefix = "prefix"
	regex  = "regex"
)

// values describes paths, which are clean: as they are, up to MaxExact; else, in this
// order, until no more than that are left:
//
//  1. segments that look like a version, a number, a hash or a UUID become an expression
//     for their form, where that makes several paths one;
//  2. paths that have whole first segments in common become a prefix: the longest
//     first, and of equally long ones the one with the most paths;
//  3. paths with the same number of segments become one expression, in which any text
//     stands where they differ, but for what begins or ends all of them;
//  4. all become the prefix "/".
func values(paths map[string]bool) []policy.Value {
	all := slices.Sorted(maps.Keys(paths))
	if len(all) <= MaxExact {
		return valuesOf(plain(all))
	}
	formed := byForm(all)
	for _, groups := range [][]group{formed, byPrefix(formed), byShape(all)} {
		if len(groups) <= MaxExact && !slices.ContainsFunc(groups, func(g group) bool { return len(g.value.Value) > maxValue }) {
			return prune(groups)
		}
	}
	return []policy.Value{{Type: prefix, Value: "/"}}
}

// group are paths that one value describes.
type group struct {
	value policy.Value
	paths []string
	// literal are the first segments, up to the first that is an expression.
	literal []string
}

func valuesOf(groups []group) []policy.Value {
	out := make([]policy.Value, len(groups))
	for i, g := range groups {
		out[i] = g.value
	}
	slices.SortFunc(out, func(a, b policy.Value) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Value, b.Value))
	})
	return out
}

func plain(paths []string) []group {
	out := make([]group, len(paths))
	for i, p := range paths {
		out[i] = group{policy.Value{Type: exact, Value: p}, []string{p}, segments(p)}
	}
	return out
}

func segments(path string) []string { return strings.Split(strings.TrimPrefix(path, "/"), "/") }

// forms are what segments look like that change from one request to the next, each with
// the expression for it.
var forms = sync.OnceValue(func() (out []*regexp.Regexp) {
	for _, f := range []string{
		`[0-9]+`,
		`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`,
		`[0-9a-f]{64}`, `[0-9a-f]{40}`, `[0-9a-f]{32}`, `[0-9a-f]{128}`, `[0-9a-f]{96}`, `[0-9a-f]{56}`, `[0-9a-f]{60}`,
		`v?[0-9]+(\.[0-9]+)+([-+.][0-9A-Za-z.+-]+)?`,
	} {
		out = append(out, regexp.MustCompile(`\A(?:`+f+`)\z`))
	}
	return out
})

// form is the expression for what a segment looks like; "" where it looks like nothing
// but itself.
func form(segment string) string {
	if !strings.ContainsAny(segment, "0123456789") {
		return "" // each form has one, or as good as
	}
	for _, re := range forms() {
		if re.MatchString(segment) {
			return strings.TrimSuffix(strings.TrimPrefix(re.String(), `\A(?:`), `)\z`)
		}
	}
	return ""
}

// byForm joins paths that differ in the forms of their segments alone.
func byForm(paths []string) []group {
	groups := map[string]*group{}
	for _, p := range paths {
		var b strings.Builder
		literal, open := []string{}, true
		for _, s := range segments(p) {
			f := form(s)
			open = open && f == ""
			if open {
				literal = append(literal, s)
			}
			if f == "" {
				f = regexp.QuoteMeta(s)
			}
			b.WriteString("/" + f)
		}
		key := b.String()
		if groups[key] == nil {
			groups[key] = &group{value: policy.Value{Type: regex, Value: key}, literal: literal}
		}
		groups[key].paths = append(groups[key].paths, p)
	}
	out := make([]group, 0, len(groups))
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := *groups[key]
		if len(g.paths) == 1 {
			g = plain(g.paths)[0]
		}
		out = append(out, g)
	}
	return out
}

// byPrefix joins groups below common first segments until they are few enough.
func byPrefix(groups []group) []group {
	deepest := 0
	for _, g := range groups {
		deepest = max(deepest, len(g.literal))
	}
	for depth := deepest; depth > 0 && len(groups) > MaxExact; depth-- {
		groups = joinAt(groups, depth)
	}
	return groups
}

// joinAt joins groups below each prefix of so many segments, the largest first.
func joinAt(groups []group, depth int) []group {
	below := map[string][]int{}
	for i, g := range groups {
		if len(g.literal) >= depth && g.literal[depth-1] != "" {
			key := "/" + strings.Join(g.literal[:depth], "/")
			below[key] = append(below[key], i)
		}
	}
	keys := slices.SortedFunc(maps.Keys(below), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(below[b]), len(below[a])), cmp.Compare(a, b))
	})
	gone := map[int]bool{}
	var joined []group
	for _, key := range keys {
		if len(below[key]) < 2 || len(groups)-len(gone)+len(joined) <= MaxExact {
			break
		}
		g := group{value: policy.Value{Type: prefix, Value: key}, literal: strings.Split(key[1:], "/")}
		for _, i := range below[key] {
			gone[i] = true
			g.paths = append(g.paths, groups[i].paths...)
		}
		joined = append(joined, g)
	}
	for i, g := range groups {
		if !gone[i] {
			joined = append(joined, g)
		}
	}
	return joined
}

// byShape joins paths with as many segments.
func byShape(paths []string) []group {
	byCount := map[int][]string{}
	for _, p := range paths {
		n := len(segments(p))
		byCount[n] = append(byCount[n], p)
	}
	var out []group
	for _, n := range slices.Sorted(maps.Keys(byCount)) {
		alike := byCount[n]
		if len(alike) == 1 {
			out = append(out, plain(alike)...)
			continue
		}
		columns := make([][]string, n)
		for _, p := range alike {
			for i, s := range segments(p) {
				columns[i] = append(columns[i], s)
			}
		}
		var b strings.Builder
		for _, column := range columns {
			b.WriteString("/" + shape(column))
		}
		out = append(out, group{value: policy.Value{Type: regex, Value: b.String()}, paths: alike})
	}
	return out
}

// shape is an expression for segments that stand in one place.
func shape(column []string) string {
	first := column[0]
	if !slices.ContainsFunc(column, func(s string) bool { return s != first }) {
		return regexp.QuoteMeta(first)
	}
	if f := form(first); f != "" && !slices.ContainsFunc(column, func(s string) bool { return form(s) != f }) {
		return f
	}
	begins := first
	for _, s := range column {
		for !strings.HasPrefix(s, begins) {
			_, n := utf8.DecodeLastRuneInString(begins)
			begins = begins[:len(begins)-n]
		}
	}
	ends := first[len(begins):]
	some := "+"
	for _, s := range column {
		s = s[len(begins):]
		for !strings.HasSuffix(s, ends) {
			_, n := utf8.DecodeRuneInString(ends)
			ends = ends[n:]
		}
	}
	for _, s := range column {
		if len(s) == len(begins)+len(ends) {
			some = "*"
		}
	}
	return regexp.QuoteMeta(begins) + "[^/]" + some + regexp.QuoteMeta(ends)
}

// prune leaves out groups whose paths others describe: the narrowest first.
func prune(groups []group) []policy.Value {
	order := []policy.MatchType{exact, regex, prefix}
	slices.SortStableFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.value.Type), slices.Index(order, b.value.Type)), cmp.Compare(a.value.Value, b.value.Value))
	})
	for i := 0; i < len(groups); {
		rest := slices.Delete(slices.Clone(groups), i, i+1)
		if covered(groups[i].paths, valuesOf(rest)) {
			groups = rest
			continue
		}
		i++
	}
	return valuesOf(groups)
}

// covered reports whether values describe all paths.
func covered(paths []string, values []policy.Value) bool {
	tests := make([]func(string) bool, len(values))
	for i, v := range values {
		switch v.Type {
		case exact:
			tests[i] = func(p string) bool { return p == v.Value }
		case prefix:
			below := strings.TrimSuffix(v.Value, "/") + "/"
			tests[i] = func(p string) bool { return p == v.Value || strings.HasPrefix(p, below) }
		default:
			re, err := regexp.Compile(`\A(?:` + v.Value + `)\z`)
			if err != nil {
				return false
			}
			tests[i] = re.MatchString
		}
	}
	return !slices.ContainsFunc(paths, func(p string) bool {
		return !slices.ContainsFunc(tests, func(t func(string) bool) bool { return t(p) })
	})
}
