package ignore

import "strings"

// wildmatch reports whether pattern matches text, by the rules of git: * and ? don't
// match a slash, ** between slashes matches any number of directories, [...] is a
// set, a backslash takes what follows literally.
func wildmatch(pattern, text string) bool {
	w := wild{pattern: pattern, text: text}
	if strings.Count(pattern, "*") > 2 {
		w.failed = make([]uint64, (len(pattern)+1)*(len(text)+1)/64+1)
	}
	return w.from(0, 0)
}

// wild is one comparison.
type wild struct {
	pattern, text string
	failed        []uint64 // bits: from(p, t) is known to be false; nil: not kept
}

// fails reports whether nothing is known to match from p and t on.
func (w *wild) fails(p, t int) bool {
	bit := p*(len(w.text)+1) + t
	return w.failed != nil && w.failed[bit/64]&(1<<(bit%64)) != 0
}

// note keeps that nothing does.
func (w *wild) note(p, t int) {
	if w.failed != nil {
		bit := p*(len(w.text)+1) + t
		w.failed[bit/64] |= 1 << (bit % 64)
	}
}

func (w *wild) from(p, t int) bool {
	if w.fails(p, t) {
		return false
	}
	ok := w.compare(p, t)
	if !ok {
		w.note(p, t)
	}
	return ok
}

func (w *wild) compare(p, t int) bool {
	for ; p < len(w.pattern); p++ {
		c := w.pattern[p]
		if c == '*' {
			return w.star(p, t)
		}
		if t == len(w.text) {
			return false
		}
		switch c {
		case '?':
			if w.text[t] == '/' {
				return false
			}
		case '[':
			end, ok := set(w.pattern, p, w.text[t])
			if !ok || w.text[t] == '/' {
				return false
			}
			p = end
		case '\\':
			if p++; p == len(w.pattern) || w.pattern[p] != w.text[t] {
				return false
			}
		default:
			if c != w.text[t] {
				return false
			}
		}
		t++
	}
	return t == len(w.text)
}

// star compares from a star at p on.
func (w *wild) star(p, t int) bool {
	first := p
	for p < len(w.pattern) && w.pattern[p] == '*' {
		p++
	}
	slashes := false
	rest := w.pattern[p:]
	// Git takes what comes before the first special character off both sides, so that
	// this is where a pattern begins.
	bound := first == strings.IndexAny(w.pattern, `*?[\`) || w.pattern[first-1] == '/'
	if p-first > 1 && bound &&
		(rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`)) {
		slashes = true
		if rest != "" && rest[0] == '/' && w.from(p+1, t) {
			return true // no directory at all
		}
	}
	// The last star's own bit says that what comes after it is nowhere from there on. Nothing
	// else begins at it, unless it is the only one, of which that is true as well.
	from := t
	for ; !w.fails(p-1, t); t++ {
		if w.from(p, t) {
			return true
		}
		if t == len(w.text) || !slashes && w.text[t] == '/' {
			t++
			break
		}
	}
	for t--; t >= from; t-- {
		w.note(p-1, t)
	}
	return false
}

// set reports whether c is in the set that begins at pattern[p], and where that ends.
func set(pattern string, p int, c byte) (end int, ok bool) {
	p++
	negated := p < len(pattern) && (pattern[p] == '!' || pattern[p] == '^')
	if negated {
		p++
	}
	var last byte // the lower end of a range, if there is one
	for first := true; ; first = false {
		if p >= len(pattern) {
			return 0, false
		}
		b := pattern[p]
		switch {
		case b == ']' && !first:
			return p, ok != negated
		case b == '-' && last != 0 && p+1 < len(pattern) && pattern[p+1] != ']':
			p++
			if pattern[p] == '\\' {
				if p++; p >= len(pattern) {
					return 0, false
				}
			}
			ok = ok || last <= c && c <= pattern[p]
			b = 0
		case b == '[' && p+1 < len(pattern) && pattern[p+1] == ':':
			i := strings.IndexByte(pattern[p+2:], ']')
			if i < 0 {
				return 0, false
			}
			name, isClass := strings.CutSuffix(pattern[p+2:p+2+i], ":")
			if !isClass {
				ok = ok || c == '[' // no class: a bracket, and what follows
				break
			}
			in := classes[name]
			if in == nil {
				return 0, false
			}
			ok = ok || in(c)
			p += 2 + i
			b = 0
		case b == '\\':
			if p++; p >= len(pattern) {
				return 0, false
			}
			b = pattern[p]
			ok = ok || b == c
		default:
			ok = ok || b == c
		}
		last = b
		p++
	}
}

// classes are those of POSIX, for ASCII as git has them.
var classes = map[string]func(byte) bool{
	"alnum":  func(c byte) bool { return letter(c) || digit(c) },
	"alpha":  letter,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < 0x20 || c == 0x7f },
	"digit":  digit,
	"graph":  func(c byte) bool { return c > 0x20 && c < 0x7f },
	"lower":  func(c byte) bool { return 'a' <= c && c <= 'z' },
	"print":  func(c byte) bool { return c >= 0x20 && c < 0x7f },
	"punct":  func(c byte) bool { return c > 0x20 && c < 0x7f && !letter(c) && !digit(c) },
	"space":  func(c byte) bool { return strings.IndexByte(" \t\n\r", c) >= 0 },
	"upper":  func(c byte) bool { return 'A' <= c && c <= 'Z' },
	"xdigit": func(c byte) bool { return digit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' },
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func digit(c byte) bool { return '0' <= c && c <= '9' }
