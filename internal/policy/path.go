package policy

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// CleanPath decodes a request's path once and says whether it means one thing
// only: a path that a server could read in another way than this package did
// can't be held against a rule. problem says what is wrong with it, "" where
// nothing is. u must be as it came from the wire: Path, and RawPath where
// that is not Path's own encoding. A path that is empty is "/".
func CleanPath(u *url.URL) (path, problem string) {
	if weak.On(weak.NetPathsRaw) {
		return u.Path, ""
	}
	raw := u.EscapedPath()
	if raw == "" {
		return "/", ""
	}
	if problem := rawProblem(raw); problem != "" {
		return "", problem
	}
	path, err := url.PathUnescape(raw)
	if err != nil {
		return "", "has a broken escape"
	}
	if problem := pathProblem(path); problem != "" {
		return "", problem
	}
	return path, ""
}

// rawProblem looks at what decoding would hide: a separator that was escaped
// is one to some servers and none to others.
func rawProblem(raw string) string {
	for i := 0; i+2 < len(raw); i++ {
		if raw[i] != '%' {
			continue
		}
		switch strings.ToLower(raw[i+1 : i+3]) {
		case "2f":
			return "has an escaped slash"
		case "2e":
			return "has an escaped dot"
		}
	}
	return ""
}

// pathProblem judges a path that is decoded. It holds for paths of rules too.
func pathProblem(path string) string {
	if !strings.HasPrefix(path, "/") {
		return "does not begin with a slash"
	}
	if !utf8.ValidString(path) {
		return "is not UTF-8"
	}
	for i := range len(path) {
		switch c := path[i]; {
		case c < 0x20 || c == 0x7f:
			return "has a control character"
		case c == '\\':
			return "has a backslash"
		case c == ';':
			return "has parameters"
		case c == '%' && i+2 < len(path) && isHex(path[i+1]) && isHex(path[i+2]):
			return "is escaped twice"
		}
	}
	for i, segment := range strings.Split(path[1:], "/") {
		switch {
		case segment == "." || segment == "..":
			return "has a segment of dots"
		case segment == "" && i != strings.Count(path, "/")-1:
			return "has an empty segment"
		}
	}
	return ""
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// underPrefix reports whether path is prefix or lies below it, by whole
// segments. A final slash of the prefix means nothing.
func underPrefix(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}
