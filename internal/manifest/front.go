package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/text/tree"
)

// mark is the line before front matter, and the one after it.
const mark = "---"

// split cuts a text into its front matter, in which lines keep their numbers, and what
// stands below it. ok is false where there is no front matter, or no end of it: begun says which.
func split(text []byte) (front, body []byte, begun, ok bool) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // as some editors begin a file
	first, rest, more := bytes.Cut(text, []byte("\n"))
	if !isMark(first) {
		return nil, nil, false, false
	}
	if !more {
		return nil, nil, true, false
	}
	for at := 0; at < len(rest); {
		line, next := rest[at:], len(rest)
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line, next = line[:i], at+i+1
		}
		if isMark(line) {
			return append([]byte("\n"), rest[:at]...), rest[next:], true, true
		}
		at = next
	}
	return nil, nil, true, false
}

func isMark(line []byte) bool { return string(bytes.TrimRight(line, " \t\r")) == mark }

// said is what one file says of one bottle or agent.
type said[T any] struct {
	name   string
	origin origin
	at     Place // of it as a whole
	is     T
	places map[string]Place
	digest string // SHA-256 of the file, in hexadecimal
}

// origin is whose a file is.
type origin string

const (
	ofUser       origin = "user"
	ofRepository origin = "repository"
	ofFile       origin = "file" // that was named
)

// place is where path was said, or the nearest above it that was.
func (s *said[T]) place(path string) Place {
	for p := path; p != ""; p = p[:max(0, strings.LastIndexAny(p, ".["))] {
		if at, ok := s.places[p]; ok {
			return at
		}
	}
	return s.at
}

// parse reads the text of one file that says one thing.
func parse[T any](file string, text []byte, o origin, p *problems) *said[T] {
	s := &said[T]{name: nameOf(file), origin: o, at: Place{File: file, Line: 1, Column: 1}, digest: digest(text)}
	front, body := text, []byte(nil)
	if isMarkdown(file) {
		var begun, ok bool
		switch front, body, begun, ok = split(text); {
		case begun && !ok:
			p.add(s.at, "", "the front matter has no end: a line of --- is missing")
			return nil
		case !ok:
			p.add(s.at, "--- on the first line, YAML, and --- on a line of its own", "there is no front matter")
			return nil
		}
	}
	root := parseTree(file, front, p)
	if root == nil {
		return nil
	}
	before := len(p.list) + p.more
	s.fill(root, p)
	s.take(body, 2+bytes.Count(front, []byte("\n")), p)
	if len(p.list)+p.more > before {
		return nil
	}
	return s
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// fill decodes the tree into what it says.
func (s *said[T]) fill(root *tree.Node, p *problems) {
	d := decoding{file: s.at.File, places: map[string]Place{}, problems: p}
	d.value(root, reflect.ValueOf(&s.is).Elem(), "")
	s.places = d.places
}

// take has what stands below the front matter be an agent's prompt. Of a bottle it is for
// people. line is its first one.
func (s *said[T]) take(body []byte, line int, p *problems) {
	a, ok := any(&s.is).(*Agent)
	if !ok || len(bytes.TrimSpace(body)) == 0 {
		return
	}
	if !utf8.Valid(body) {
		p.add(s.at, "", "the text below the front matter is not UTF-8")
		return
	}
	if at, twice := s.places["prompt"]; twice {
		p.add(at, "leave one of them out", "prompt: there is a text below the front matter too")
		return
	}
	a.Prompt = strings.TrimLeft(string(body), "\r\n")
	s.places["prompt"] = Place{s.at.File, line + strings.Count(string(body[:len(body)-len(a.Prompt)]), "\n"), 1}
}

// parseTree reads YAML or JSON; nil where that is a mistake, which is added. A text that
// says nothing is an empty mapping.
func parseTree(file string, text []byte, p *problems) *tree.Node {
	root, err := tree.Parse(text, "file", maxEntries)
	if e, ok := errors.AsType[*tree.Error](err); ok {
		p.add(Place{file, e.Line, e.Column}, e.Hint, "%s", e.Problem)
		return nil
	}
	if root == nil {
		return &tree.Node{Kind: tree.Map, Line: 1, Column: 1}
	}
	return root
}

func isMarkdown(file string) bool { return filepath.Ext(file) == ".md" }

func nameOf(file string) string {
	return strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
}
