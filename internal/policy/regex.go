package policy

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxExpressions bounds the size of all of a policy's expressions together, each counted
// once however often it is there. Some hundreds as people write them come to a tenth; what
// comes to all of it takes some hundred milliseconds of a slow processor and some ten
// megabytes.
const maxExpressions = 100_000

// What reading an expression costs beside its bytes, in the unit of its instructions.
const (
	sizeOfOne   = 10  // of any
	sizeOfTable = 200 // of a table of Unicode's: \p{L}
	runesPerOne = 10  // of a range of which each character is looked up in both cases
	lastFolded  = 0x1e943
)

// expression is RE2 that must match the whole text, in any case where it is folded.
type expression struct {
	text string
	fold bool
}

// wrapped is the expression for whole texts.
func (e expression) wrapped() string {
	if e.fold {
		return `\A(?i:` + e.text + `)\z`
	}
	return `\A(?:` + e.text + `)\z`
}

// regex is an expression that is known to be one. It is compiled for the first text that is
// held against it: most of who compiles a policy only checks it.
type regex struct {
	text string // what is compiled
	once sync.Once
	re   *regexp.Regexp
}

func (r *regex) matches(s string) bool {
	r.once.Do(func() { r.re = regexp.MustCompile(r.text) })
	return r.re.MatchString(s)
}

// expressions are all of a policy, each once; nil: one that is none.
type expressions map[expression]*regex

// measure reads the expressions of rules and adds an error where they are too much to be
// compiled: nothing is compiled yet, and what is behind that point is not read either. Beside
// them it returns their size.
func measure(rules []Rule, p *Errors) (known expressions, size int, ok bool) {
	m := measuring{known: expressions{}}
	for i := range rules {
		for j := range rules[i].Matches {
			if !m.match(at(at("rules", i)+".matches", j), &rules[i].Matches[j], rules[i].Action == ActionDeny) {
				p.Addf(m.largest.where, "repeat it fewer times, as [a-z]+ where the length is of no matter, or say it as a prefix or exactly",
					"the policy's regular expressions come to a size of more than %d, of which %s alone has %d", maxExpressions, Quoted(m.largest.text), m.largest.size)
				return nil, 0, false
			}
		}
	}
	return m.known, m.size, true
}

type measuring struct {
	known   expressions
	size    int
	largest struct {
		where, text string
		size        int
	}
}

func (m *measuring) match(where string, of *Match, deny bool) bool {
	for i, v := range of.Paths {
		if isRegex(v.Type) && !m.add(at(where+".paths", i)+".value", expression{v.Value, deny}) {
			return false
		}
	}
	for i, f := range of.Headers {
		if isRegex(f.Type) && !m.add(at(where+".headers", i)+".value", expression{f.Value, false}) {
			return false
		}
	}
	for i, f := range of.Query {
		if isRegex(f.Type) && !m.add(at(where+".query", i)+".value", expression{f.Value, false}) {
			return false
		}
	}
	return true
}

// add reads one expression, and reports whether it still has room.
func (m *measuring) add(where string, e expression) bool {
	if _, done := m.known[e]; done {
		return true
	}
	size := e.toRead()
	if m.size+size <= maxExpressions {
		re, err := e.parse()
		if m.known[e] = nil; err == nil {
			x := extentOf(re)
			m.known[e] = &regex{text: x.text(e)}
			size += x.size()
		}
	}
	m.size += size
	if size > m.largest.size {
		m.largest.where, m.largest.text, m.largest.size = where, e.text, size
	}
	return m.size <= maxExpressions
}

// parse reads it by itself first: what is wrapped around it must not complete it.
func (e expression) parse() (*syntax.Regexp, error) {
	if _, err := syntax.Parse(e.text, syntax.Perl); err != nil {
		return nil, err
	}
	return syntax.Parse(e.wrapped(), syntax.Perl)
}

// of is an expression of those that were measured; nil where it is none, which is added.
func (known expressions) of(where string, e expression, p *Errors) *regex {
	r := known[e]
	if r == nil {
		p.Addf(where, "RE2, as Go has it", "%s is no regular expression", Quoted(e.text))
	}
	return r
}

func isRegex(t MatchType) bool { return t == matchRegex || t == regexOfHTTPRoute }

// toRead is what it costs to parse an expression, which is known without doing so.
func (e expression) toRead() int {
	n := sizeOfOne + len(e.text) + sizeOfTable*(strings.Count(e.text, `\p`)+strings.Count(e.text, `\P`))
	if !e.fold && !strings.Contains(e.text, "(?") {
		return n
	}
	// The parser looks at each character of a range that is folded. That a hyphen stands
	// for a range is taken for granted, and that one with an escape behind it ends last.
	for i := range len(e.text) {
		if e.text[i] != '-' {
			continue
		}
		first, _ := utf8.DecodeLastRuneInString(e.text[:i])
		last, _ := utf8.DecodeRuneInString(e.text[i+1:])
		if strings.HasPrefix(e.text[i+1:], `\x{`) {
			last = lastFolded
		}
		n += max(0, int(min(last, lastFolded))-int(first)) / runesPerOne
	}
	return n
}

// extent is how large an expression becomes when its repeats are written out, as they are
// when it is compiled.
type extent struct {
	insts, branches int // with repeats written out
	forks, ranges   int // branches, and ranges of its classes, as it stands there
}

// size is in instructions, of some 40 bytes each.
func (x extent) size() int { return x.insts + x.ranges/5 }

// mostTabled is up to where package regexp may try to make tables of which branch each
// character takes: for those it needs time and memory by the third power of them.
const mostTabled = 20_000

// text is what is compiled for an expression. It makes no tables where that does not begin
// with the beginning of a text, but with a group.
func (x extent) text(e expression) string {
	if x.branches*x.forks*(x.forks+x.ranges) > mostTabled {
		return "(" + e.wrapped() + ")"
	}
	return e.wrapped()
}

// extentOf works with numbers alone. The parser bounds how often something is repeated,
// repeats of repeats too, to 1,000.
func extentOf(re *syntax.Regexp) extent {
	var x extent
	for _, sub := range re.Sub {
		s := extentOf(sub)
		x = extent{x.insts + s.insts, x.branches + s.branches, x.forks + s.forks, x.ranges + s.ranges}
	}
	branch := func(n int) { x.insts, x.branches, x.forks = x.insts+n, x.branches+n, x.forks+n }
	switch re.Op {
	case syntax.OpLiteral:
		x.insts += max(1, len(re.Rune))
	case syntax.OpCharClass:
		x.insts, x.ranges = 1, len(re.Rune)/2
	case syntax.OpCapture:
		x.insts += 2
	case syntax.OpConcat:
		x.insts += max(0, 1-len(re.Sub))
	case syntax.OpAlternate:
		branch(max(0, len(re.Sub)-1))
	case syntax.OpPlus, syntax.OpQuest:
		branch(1)
	case syntax.OpStar:
		branch(2) // where it may be empty
	case syntax.OpRepeat:
		times, optional := re.Max, re.Max-re.Min
		if re.Max < 0 {
			times, optional = max(re.Min, 1), 2
		}
		x.insts, x.branches = max(1, times*x.insts+optional), times*x.branches+optional
		x.forks++
	default:
		x.insts = 1
	}
	return x
}
