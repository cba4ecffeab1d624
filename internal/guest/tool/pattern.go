package tool

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/tools"
)

// pattern matches paths.
type pattern struct{ re *regexp.Regexp }

func (p *pattern) match(rel string) bool { return p.re.MatchString(rel) }

// newPattern reads a pattern of GlobRequest. It becomes an expression of RE2,
// so that none takes long to match: doublestar goes through all combinations of
// alternatives, has ** for whole names alone, and refuses a [ without its end.
func newPattern(text string) (*pattern, error) {
	switch {
	case text == "":
		return nil, failf(tools.ToolInvalid, "pattern is empty")
	case utf8.RuneCountInString(text) > tools.MaxPattern:
		return nil, failf(tools.ToolInvalid, "patterns may contain at most %d characters", tools.MaxPattern)
	case strings.HasPrefix(text, "/"):
		return nil, failf(tools.ToolInvalid, "pattern %q: it can't begin with a slash; say in path where to look", short(text))
	}
	for part := range strings.SplitSeq(text, "/") {
		if part == ".." {
			return nil, failf(tools.ToolEscapes, "pattern %q escapes the directory by \"..\"", short(text))
		}
	}
	g := globber{in: strings.TrimSuffix(strings.TrimPrefix(text, "./"), "/")}
	expr, err := g.translate()
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, failf(tools.ToolInvalid, "pattern %q can't be used", short(text))
	}
	return &pattern{re}, nil
}

// globber turns a pattern into a regular expression.
type globber struct {
	in  string
	i   int
	out strings.Builder
	or  int // open braces
}

func (g *globber) translate() (string, error) {
	g.out.WriteString(`(?s)^(?:.*/)?`)
	for g.i < len(g.in) {
		c, rest := g.in[g.i], g.in[g.i:]
		switch {
		case strings.HasPrefix(rest, "**/") && g.atStart():
			g.i += 3
			g.out.WriteString(`(?:.*/)?`)
			continue
		case strings.HasPrefix(rest, "**"):
			g.i += 2
			g.out.WriteString(`.*`)
			continue
		case c == '*':
			g.out.WriteString(`[^/]*`)
		case c == '?':
			g.out.WriteString(`[^/]`)
		case c == '[':
			if g.class() {
				continue
			}
			g.out.WriteString(`\[`)
		case c == '{' && strings.Contains(rest, "}"):
			g.or++
			g.out.WriteString(`(?:`)
		case c == '}' && g.or > 0:
			g.or--
			g.out.WriteString(`)`)
		case c == ',' && g.or > 0:
			g.out.WriteString(`|`)
		default:
			g.literal()
			continue
		}
		g.i++
	}
	if g.or > 0 {
		return "", failf(tools.ToolInvalid, "pattern %q: a { has no }", short(g.in))
	}
	g.out.WriteString(`$`)
	return g.out.String(), nil
}

// atStart reports whether a name begins here.
func (g *globber) atStart() bool {
	return g.i == 0 || strings.IndexByte("/{,", g.in[g.i-1]) >= 0
}

// literal takes one character as it is; a backslash has the next one taken so.
func (g *globber) literal() {
	if g.in[g.i] == '\\' && g.i+1 < len(g.in) {
		g.i++
	}
	_, n := utf8.DecodeRuneInString(g.in[g.i:])
	g.out.WriteString(regexp.QuoteMeta(g.in[g.i : g.i+n]))
	g.i += n
}

// class takes a [set], if what begins here is one.
func (g *globber) class() bool {
	body := g.in[g.i+1:]
	not := strings.HasPrefix(body, "!") || strings.HasPrefix(body, "^")
	if not {
		body = body[1:]
	}
	end := strings.IndexByte(body, ']')
	if end == 0 { // the first ] of a set is one of its characters
		if end = strings.IndexByte(body[1:], ']'); end >= 0 {
			end++
		}
	}
	if end <= 0 || strings.IndexByte(body[:end], '/') >= 0 {
		return false
	}
	set := body[:end]
	g.i = len(g.in) - len(body) + end + 1
	g.out.WriteByte('[')
	if not {
		g.out.WriteString(`^/`)
	}
	for _, r := range set {
		if r == '-' { // of a range, or itself where it can't be
			g.out.WriteByte('-')
			continue
		}
		g.out.WriteString(regexp.QuoteMeta(string(r)))
	}
	g.out.WriteByte(']')
	return true
}
