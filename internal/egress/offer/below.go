package offer

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/policy/field"
)

// destination is where WebDAV's COPY and MOVE put what they were called for.
const destination = "destination"

// leavesBase says what has some server take a call for one of what is not below the
// path that is offered; "" where nothing does.
func leavesBase(r *http.Request) string {
	if problem := leadsUp(r.URL.EscapedPath()); problem != "" {
		return "its path " + problem
	}
	for name := range r.Header {
		if name != HeaderPrefix && field.Header(name)&field.Path != 0 || field.Fold(name) == destination {
			return "its field " + name + " names another path to some servers"
		}
	}
	for name := range field.Parameters(r.URL.RawQuery) {
		if field.Parameter(name)&field.Path != 0 {
			return "its parameter " + strings.ReplaceAll(field.Readings(name)[0], "-", "_") + " names another path to some servers"
		}
	}
	return ""
}

// What servers take for another character than it is: those of other widths, which code
// pages and normalisation bring to those of ASCII, and blanks.
var readAs = strings.NewReplacer(
	"\\", "/", "\uff0f", "/", "\u2044", "/", "\u2215", "/", "\u29f8", "/", "\uff3c", "/", "\ufe68", "/", "\u2216", "/", "\u00a5", "/", "\u20a9", "/",
	"\uff0e", ".", "\u2024", ".", "\ufe52", ".", "\u2025", "..", "\u2026", "...", "\u3002", ".", "\uff61", ".",
	"\uff05", "%", "\ufe6a", "%", "\uff1b", ";", "\ufe54", ";", "\uff1a", ":", "\ufe55", ":",
	"\uff1f", "?", "\ufe56", "?", "\uff03", "#", "\ufe5f", "#",
)

// ends are what some servers take for the end of a segment's name: parameters (Tomcat,
// Spring, Jetty), a stream's name (NTFS), a query or a fragment that was escaped, and a
// NUL.
const ends = ";:?#,\x00"

// maxEscapes is how often a path may be escaped, one within the other.
const maxEscapes = 4

// leadsUp says what is wrong with a path, as it was written, that has a segment which some
// server reads as "." or "..", whatever it decodes, how often, and what it leaves out.
func leadsUp(raw string) string {
	for range maxEscapes + 1 {
		decoded := field.Decode(raw)
		if !utf8.ValidString(decoded) {
			return "is not UTF-8"
		}
		decoded = readAs.Replace(decoded)
		for segment := range strings.SplitSeq(decoded, "/") {
			if dots(segment) {
				return "has a segment that some servers take for . or .."
			}
		}
		if decoded == raw {
			return ""
		}
		raw = decoded
	}
	return "is escaped too often"
}

// dots reports whether a segment, decoded, has nothing but dots in its name.
func dots(segment string) bool {
	if i := strings.IndexAny(segment, ends); i >= 0 {
		segment = segment[:i]
	}
	seen := false
	for _, r := range segment {
		switch {
		case r == '.':
			seen = true
		case !unicode.IsSpace(r) && !unicode.Is(unicode.C, r): // Windows leaves blanks out at the end, others a line's end anywhere
			return false
		}
	}
	return seen
}
