package scan

import (
	"bytes"
	"slices"
	"strings"
)

const (
	maxDepth  = 4         // encodings within encodings
	maxBudget = 256 << 20 // bytes that one text may become, by all of its encodings
	perByte   = 8         // that several may become together, for each of theirs, besides
	maxHits   = 20        // of one text

	pieceSize = 256 << 10
)

// Hit is a secret that was found.
type Hit struct {
	Rule   string
	Why    string
	Line   int    // of the text as it came; 0 for a name
	By     string // the encoding that it was in; "" for none
	Secret []byte // for comparing; never shown
}

// Result is what a text has.
type Result struct {
	Hits   []Hit
	More   bool   // there may be more hits, which were not looked for
	Opaque string // why it can't be looked into, or not whole; "" if it can
}

// Searcher searches several texts, which may become so much together.
type Searcher struct {
	rules        *Rules
	most, budget int64 // bytes that one of them may become, and all that come yet
}

// Searcher makes one for texts of so many bytes in all.
func (r *Rules) Searcher(size int64) *Searcher { return r.searcher(maxBudget, size) }

func (r *Rules) searcher(most, size int64) *Searcher { return &Searcher{r, most, most + perByte*size} }

// Search looks through a text alone. The path is its file's; "" where it is none.
func (r *Rules) Search(text []byte, path string) Result { return r.Searcher(0).Search(text, path) }

// Search looks through one of the texts.
func (all *Searcher) Search(text []byte, path string) Result {
	most := min(all.most, all.budget)
	s := &search{rules: all.rules, path: path, budget: most, seen: map[string]bool{}}
	if path != "" {
		s.names()
	}
	s.text(text, "", 0, lines(text))
	all.budget -= most - max(0, s.budget)
	return Result{slices.DeleteFunc(slices.Clone(s.hits), s.known), len(s.hits) >= maxHits, s.opaque}
}

// search is one through a text.
type search struct {
	rules  *Rules
	path   string
	budget int64
	hits   []Hit
	seen   map[string]bool
	opaque string
	low    []byte // of a piece
}

// known reports whether another hit says as much: what the generic rule found is what another
// did, or what a rule found begins what it found besides.
func (s *search) known(h Hit) bool {
	return slices.ContainsFunc(s.hits, func(o Hit) bool {
		if h.Rule != generic {
			return o.Rule == h.Rule && len(o.Secret) > len(h.Secret) && len(h.Secret) > 0 && bytes.HasPrefix(o.Secret, h.Secret)
		}
		return o.Rule != generic && len(o.Secret) > 0 && (bytes.Contains(o.Secret, h.Secret) || bytes.Contains(h.Secret, o.Secret))
	})
}

// names finds files that are secrets by their names.
func (s *search) names() {
	for _, c := range s.rules.rules {
		if c.regex == nil && c.path != nil && c.path.MatchString(s.path) {
			s.hits = append(s.hits, Hit{Rule: c.id, Why: c.why})
		}
	}
}

// place says on which line of the whole text a byte is.
type place func(at int) int

// lines is the place of bytes of a text as it came.
func lines(text []byte) place {
	at, line := 0, 1
	return func(to int) int {
		if to < at {
			at, line = 0, 1
		}
		line += bytes.Count(text[at:to], []byte("\n"))
		at = to
		return line
	}
}

// text looks through a text, and through what is encoded in it.
func (s *search) text(text []byte, by string, depth int, where place) {
	if len(text) == 0 || len(s.hits) >= maxHits {
		return
	}
	s.match(text, by, where)
	s.encoded(text, by, depth, where)
	s.escaped(text, by, depth, where)
	s.compressed(text, by, depth, where)
	if bytes.IndexByte(text, 0) >= 0 && s.spend(len(text)) {
		// UTF-16 and UTF-32, of whatever order and wherever they begin
		plain, from := withoutZeros(text)
		here := func(at int) int { return where(from(at)) }
		by := join(by, "UTF-16")
		s.match(plain, by, here)
		s.encoded(plain, by, depth, here)
	}
}

// spend takes n bytes of what all encodings may become.
func (s *search) spend(n int) bool {
	if s.budget -= int64(n); s.budget < 0 {
		s.opaque = "it expands to more than can be looked at"
		return false
	}
	return true
}

// withoutZeros leaves out bytes of zero, and says where others were, to some bytes before.
func withoutZeros(text []byte) (plain []byte, from func(int) int) {
	const step = 4096
	plain = make([]byte, 0, len(text))
	var at []int // in text, of each step-th byte of plain
	for i, c := range text {
		if c == 0 {
			continue
		}
		if len(plain)%step == 0 {
			at = append(at, i)
		}
		plain = append(plain, c)
	}
	return plain, func(i int) int {
		if len(at) == 0 {
			return 0
		}
		n := min(i/step, len(at)-1)
		to := at[n]
		for left := i - n*step; to < len(text) && left > 0; to++ {
			if text[to] != 0 {
				left--
			}
		}
		return min(to, len(text))
	}
}

// patterns has all rules look at a text, a piece at a time.
func (s *search) patterns(text []byte, by string, where place) {
	for at := 0; at < len(text); at += pieceSize {
		from, to := max(0, at-maxReach), min(len(text), at+pieceSize+maxReach)
		s.piece(text[from:to], by, func(i int) int { return where(from + i) })
		if to == len(text) || len(s.hits) >= maxHits {
			return
		}
	}
}

// span is a part of a piece.
type span struct{ from, to int }

// piece has rules look at where their words stand.
func (s *search) piece(text []byte, by string, where place) {
	s.low = append(s.low[:0], text...)
	for i, c := range s.low {
		if 'A' <= c && c <= 'Z' {
			s.low[i] = c + 'a' - 'A'
		}
	}
	spans := map[int][]span{}
	s.rules.words.Walk(s.low, func(end, n, word int64) bool {
		leads, value := assignment(s.low[end+1:])
		for _, i := range s.rules.meaning[word] {
			c := s.rules.rules[i]
			if c.assigns && (!leads || c.id == generic && !value) {
				continue
			}
			reach := c.reach
			if c.assigns {
				reach = min(reach, nearReach)
			}
			before := reach
			if c.assigns {
				before = min(reach, maxName)
			}
			from, to := max(0, int(end-n)-before), min(len(text), int(end)+1+reach)
			if of := spans[i]; len(of) > 0 && from <= of[len(of)-1].to {
				of[len(of)-1].to = max(to, of[len(of)-1].to)
			} else {
				spans[i] = append(of, span{from, to})
			}
		}
		return true
	})
	for _, i := range s.rules.bareword {
		spans[i] = []span{{0, len(text)}}
	}
	for i, c := range s.rules.rules { // in their order
		for _, sp := range spans[i] {
			s.rule(c, text, sp, by, where)
		}
	}
}

// nearReach is how much of an assignment is looked at: a name, and the beginning of a value.
const (
	nearReach = 512
	maxName   = 64
)

// assignment reports whether something is assigned to the name that goes on in text, as
// gitleaks' rules have it, and whether what is assigned may be a secret by the rule that knows
// no more of it: it is long enough, and not of letters alone, which that rule excuses. It
// spares most of a program the regular expressions, which say the same.
func assignment(text []byte) (leads, value bool) {
	const (
		maxBetween = 23 // bytes of the name's rest and what is before the sign
		maxSign    = 12 // bytes of the sign and what is before the value
		minValue   = 10
		maxValue   = 150
	)
	word := func(c byte) bool {
		return c == '_' || c == '.' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z'
	}
	at := 0
	for ; at < len(text) && at <= maxBetween && strings.IndexByte("=>:|?,", text[at]) < 0; at++ {
		if c := text[at]; !word(c) && strings.IndexByte(" \t\n\f\r'\"", c) < 0 {
			return false, false
		}
	}
	if at == len(text) || at > maxBetween {
		return false, false
	}
	run, letters := 0, true
	for i, c := range text[at+1 : min(len(text), at+1+maxSign+maxValue)] {
		switch sign := c == '=' || c == '+' || c == '/'; {
		case word(c) || sign:
			run++
			letters = letters && !sign && (c < '0' || c > '9')
		case i > maxSign:
			return true, false
		default:
			run, letters = 0, true
		}
		if run >= minValue && !letters {
			return true, true
		}
	}
	return true, false
}

// rule looks at a part of a piece.
func (s *search) rule(c *rule, text []byte, sp span, by string, where place) {
	if c.regex == nil || c.path != nil && !c.path.MatchString(s.path) {
		return
	}
	part := text[sp.from:sp.to]
	for _, m := range c.regex.FindAllSubmatchIndex(part, -1) {
		secret := part[m[0]:m[1]]
		if c.group > 0 && 2*c.group+1 < len(m) && m[2*c.group] >= 0 {
			secret = part[m[2*c.group]:m[2*c.group+1]]
		} else {
			for g := 2; c.group == 0 && g < len(m); g += 2 {
				if m[g] >= 0 && m[g+1] > m[g] {
					secret = part[m[g]:m[g+1]]
					break
				}
			}
		}
		if c.entropy > 0 && entropy(string(secret)) <= c.entropy {
			continue
		}
		f := found{secret: string(secret), match: string(part[m[0]:m[1]]), line: lineOf(part, m[0], m[1]), path: s.path}
		excused := func(a allowlist) bool { return a.excuses(f, c.id == generic) }
		if c.id == generic && excused(s.rules.excused) || slices.ContainsFunc(c.excuses, excused) {
			continue
		}
		key := c.id + "\x00" + f.secret
		if len(s.hits) >= maxHits || s.seen[key] {
			continue
		}
		s.seen[key] = true
		s.hits = append(s.hits, Hit{Rule: c.id, Why: c.why, Line: where(sp.from + m[0]), By: by, Secret: []byte(f.secret)})
	}
}

// lineOf is the line that a match is on, or those.
func lineOf(text []byte, from, to int) string {
	const most = 4096
	before := text[max(0, from-most):from]
	after := text[to:min(len(text), to+most)]
	before = before[bytes.LastIndexByte(before, '\n')+1:]
	if i := bytes.IndexByte(after, '\n'); i >= 0 {
		after = after[:i]
	}
	return strings.Join([]string{string(before), string(text[from:to]), string(after)}, "")
}
