// Package tree reads a text of YAML or JSON into a tree in which every key and value
// knows its line and column, for readers that say exactly where a mistake is.
//
// It refuses what makes a text say other than it shows, or grow: anchors, aliases, tags,
// merge keys, directives, a second document, deep nesting. Its errors repeat nothing of
// the text.
package tree

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/text/yamlscan"
)

// maxDepth is how many mappings and lists may lie within each other.
const maxDepth = 20

// Node is a value of either language, and where it begins; from 1 on.
type Node struct {
	Kind         Kind
	Text         string // of a text, a number or a truth
	Pairs        []Pair // of a mapping, in order; a key may be there twice
	Items        []*Node
	Line, Column int
}

// Pair is a key and what it has.
type Pair struct {
	Key          string
	Line, Column int
	Value        *Node
}

// Kind is what a value is, in words.
type Kind string

// The kinds.
const (
	Map    Kind = "a mapping"
	List   Kind = "a list"
	Text   Kind = "a text"
	Number Kind = "a number"
	Bool   Kind = "true or false"
	Null   Kind = "nothing"
)

// Error is why a text is no tree. Line is 0 where that is nowhere in it.
type Error struct {
	Line, Column  int
	Problem, Hint string
}

// Error is what is wrong, without the place.
func (e *Error) Error() string { return e.Problem }

// Parse reads a text of which the caller knows that it is not too large. what is the
// word for it, such as "policy", and most bounds the items of its lists. A text of nothing
// has no tree.
func Parse(text []byte, what string, most int) (*Node, error) {
	if !utf8.Valid(text) {
		return nil, &Error{Problem: "the " + what + " is not UTF-8"}
	}
	if line := yamlscan.Deep(text); line > 0 {
		return nil, tooDeep(what, line, 0)
	}
	if json.Valid(text) {
		p := jsonParser{text: text, dec: json.NewDecoder(bytes.NewReader(text)), what: what}
		p.dec.UseNumber()
		return p.value(0)
	}
	if line := yamlscan.Many(text, most); line > 0 {
		return nil, &Error{Line: line, Problem: fmt.Sprintf("more keys or items than any %s has", what)}
	}
	return parseYAML(text, what)
}

func tooDeep(what string, line, column int) error {
	return &Error{Line: line, Column: column, Problem: fmt.Sprintf("nested deeper than any %s is", what)}
}

type jsonParser struct {
	text []byte
	dec  *json.Decoder
	what string

	at           int // up to which lines were counted
	line, column int // how many there were, and characters in the last one
}

// token is the next one, and where it begins.
func (p *jsonParser) token() (t json.Token, line, column int, err error) {
	for start := int(p.dec.InputOffset()); ; start++ {
		if start == len(p.text) || bytes.IndexByte([]byte(" \t\r\n,:"), p.text[start]) < 0 {
			p.advance(start)
			break
		}
	}
	line, column = p.line+1, p.column+1
	if t, err = p.dec.Token(); err != nil {
		err = &Error{Problem: "the " + p.what + " is no JSON"}
	}
	return t, line, column, err
}

// advance counts lines up to an offset, and characters: each once, for all of a text may be
// in one line.
func (p *jsonParser) advance(to int) {
	for ; p.at < to; p.at++ {
		switch c := p.text[p.at]; {
		case c == '\n':
			p.line, p.column = p.line+1, 0
		case utf8.RuneStart(c):
			p.column++
		}
	}
}

func (p *jsonParser) value(depth int) (*Node, error) {
	t, line, column, err := p.token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, tooDeep(p.what, line, column)
	}
	n := &Node{Line: line, Column: column}
	switch t := t.(type) {
	case json.Delim:
		return n, p.container(n, t, depth)
	case string:
		n.Kind, n.Text = Text, t
	case json.Number:
		n.Kind, n.Text = Number, t.String()
	case bool:
		n.Kind, n.Text = Bool, fmt.Sprint(t)
	default:
		n.Kind = Null
	}
	return n, nil
}

func (p *jsonParser) container(n *Node, open json.Delim, depth int) error {
	n.Kind = List
	if open == '{' {
		n.Kind = Map
	}
	for p.dec.More() {
		var pair Pair
		if open == '{' {
			t, line, column, err := p.token()
			if err != nil {
				return err
			}
			pair.Key, _ = t.(string)
			pair.Line, pair.Column = line, column
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		if pair.Value = v; open == '{' {
			n.Pairs = append(n.Pairs, pair)
		} else {
			n.Items = append(n.Items, v)
		}
	}
	_, _, _, err := p.token()
	return err
}
