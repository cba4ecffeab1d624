package tool

import (
	"context"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/tools"
)

const (
	// maxCost is how many steps may be taken without a look at the clock: some
	// tens of milliseconds.
	maxCost = 2 << 20
)

// matcher finds the lines that match an expression, and no line makes it take
// longer than the deadline: RE2 has no catastrophe, but a large expression on
// a long line takes its time too.
type matcher struct {
	ctx      context.Context // of the one call that this is for
	deadline time.Time
	re       *regexp.Regexp
	steps    int    // of one character, at most
	literal  []byte // which each match begins with
	whole    bool   // literal is all that there is to match
}

func newMatcher(ctx context.Context, expr string, deadline time.Time) (*matcher, error) {
	switch {
	case expr == "":
		return nil, failf(tools.ToolInvalid, "pattern is empty")
	case utf8.RuneCountInString(expr) > tools.MaxPattern:
		return nil, failf(tools.ToolInvalid, "regex patterns may contain at most %d characters", tools.MaxPattern)
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, invalidRegex(err)
	}
	tree = tree.Simplify()
	prog, err := syntax.Compile(tree)
	if err != nil {
		return nil, invalidRegex(err)
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, invalidRegex(err)
	}
	literal, _ := re.LiteralPrefix()
	if strings.Contains(literal, "\n") {
		return nil, failf(tools.ToolInvalid, "the pattern has a line end, and lines are searched one by one")
	}
	return &matcher{
		ctx: ctx, deadline: deadline, re: re, steps: len(prog.Inst), literal: []byte(literal),
		whole: literal != "" && tree.Op == syntax.OpLiteral && tree.Flags&syntax.FoldCase == 0,
	}, nil
}

func invalidRegex(err error) error {
	return failf(tools.ToolInvalid, "Invalid regex: %v (the syntax is RE2's, without look-around and back-references)", err)
}

// over reports whether there is no more time.
func (m *matcher) over() bool {
	return m.ctx.Err() != nil || time.Now().After(m.deadline)
}

// match reports whether a line matches, and whether it was looked at to its
// end.
func (m *matcher) match(line []byte) (found, looked bool) {
	if m.whole {
		return true, true // the caller has found it
	}
	if len(line) == 0 || m.steps <= maxCost/len(line) {
		return m.re.Match(line), true
	}
	r := m.hurry(line)
	found = m.re.MatchReader(r)
	return found && !r.late, !r.late
}

func (m *matcher) hurry(line []byte) *hurried {
	return &hurried{m: m, b: line, every: max(1, maxCost/m.steps)}
}

// hurried reads a line until the time is over.
type hurried struct {
	m     *matcher
	b     []byte
	every int // how many characters are between two looks at the clock
	n     int // characters that were read
	late  bool
}

var _ io.RuneReader = (*hurried)(nil)

// ReadRune implements io.RuneReader.
func (h *hurried) ReadRune() (rune, int, error) {
	if h.n++; h.n%h.every == 0 && h.m.over() {
		h.late = true
	}
	if len(h.b) == 0 || h.late {
		return 0, 0, io.EOF
	}
	r, n := utf8.DecodeRune(h.b)
	h.b = h.b[n:]
	return r, n, nil
}
