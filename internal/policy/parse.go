package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/text/yamlscan"
)

// MaxSize is the most bytes of a policy's text.
const MaxSize = 1 << 20

const maxDepth = 20 // of mappings and lists within each other

// Parse reads a policy in YAML or JSON. It is strict: a field that is not of
// the schema, one that is there twice, a second document, an anchor or a tag
// is an error, with its line, and all of them are told together; see
// Problems. What the values mean is for Compile.
func Parse(text []byte) (Policy, error) {
	var p Policy
	root, err := parseTree(text)
	if err != nil {
		return Policy{}, err
	}
	var errs Errors
	decode(root, reflect.ValueOf(&p).Elem(), "", &errs)
	if err := errs.Err(); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// node is a value of either language.
type node struct {
	kind  kindOf
	text  string // of a scalar
	pairs []pair
	items []*node
	line  int
}

type pair struct {
	key   string
	line  int
	value *node
}

type kindOf string

const (
	aMap    kindOf = "a mapping"
	aList   kindOf = "a list"
	aText   kindOf = "a text"
	aNumber kindOf = "a number"
	aBool   kindOf = "true or false"
	aNull   kindOf = "nothing"
)

// parseTree reads JSON where it is that, and YAML where not.
func parseTree(text []byte) (*node, error) {
	switch {
	case len(text) > MaxSize:
		return nil, &Error{Problem: fmt.Sprintf("%d bytes of policy: %d are the most", len(text), MaxSize)}
	case !utf8.Valid(text):
		return nil, &Error{Problem: "the policy is not UTF-8"}
	case len(bytes.TrimSpace(text)) == 0:
		return nil, &Error{Problem: "the policy is empty", Hint: "rules: [], to allow nothing"}
	}
	if line := yamlscan.Deep(text); line > 0 {
		return nil, &Error{Where: fmt.Sprintf("line %d", line), Problem: "nested deeper than any policy is"}
	}
	if json.Valid(text) {
		return parseJSON(text)
	}
	if line := yamlscan.Many(text, maxEntries); line > 0 {
		return nil, &Error{Where: fmt.Sprintf("line %d", line), Problem: "more keys or items than any policy has"}
	}
	return parseYAML(text)
}

func parseJSON(text []byte) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	p := jsonParser{text: text, dec: d}
	return p.value(0)
}

type jsonParser struct {
	text []byte
	dec  *json.Decoder
	at   int64 // up to which lines were counted
	line int
}

// token is the next one, and its line.
func (p *jsonParser) token() (json.Token, int, error) {
	t, err := p.dec.Token()
	end := p.dec.InputOffset()
	p.line += bytes.Count(p.text[p.at:end], []byte{'\n'})
	p.at = end
	return t, p.line + 1, err
}

func (p *jsonParser) value(depth int) (*node, error) {
	t, line, err := p.token()
	if err != nil {
		return nil, &Error{Problem: "the policy is no JSON"}
	}
	if depth > maxDepth {
		return nil, &Error{Where: fmt.Sprintf("line %d", line), Problem: "nested deeper than any policy is"}
	}
	n := &node{line: line}
	switch t := t.(type) {
	case json.Delim:
		return n, p.container(n, t, depth)
	case string:
		n.kind, n.text = aText, t
	case json.Number:
		n.kind, n.text = aNumber, t.String()
	case bool:
		n.kind, n.text = aBool, fmt.Sprint(t)
	default:
		n.kind = aNull
	}
	return n, nil
}

func (p *jsonParser) container(n *node, open json.Delim, depth int) error {
	n.kind = aList
	if open == '{' {
		n.kind = aMap
	}
	for p.dec.More() {
		var key string
		if open == '{' {
			t, _, err := p.token()
			if err != nil {
				return &Error{Problem: "the policy is no JSON"}
			}
			key, _ = t.(string)
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return err
		}
		if open == '{' {
			n.pairs = append(n.pairs, pair{key, v.line, v})
		} else {
			n.items = append(n.items, v)
		}
	}
	if _, _, err := p.token(); err != nil {
		return &Error{Problem: "the policy is no JSON"}
	}
	return nil
}

// decode puts a node into a Go value of the same shape, by the json tags.
func decode(n *node, to reflect.Value, where string, p *Errors) {
	wrong := func(want string) {
		p.Addf(n.where(where), want, "%s where something else is wanted", n.described(where))
	}
	switch to.Kind() { //nolint:exhaustive // the schema has no others, and a test decodes all of it
	case reflect.Struct:
		if n.kind != aMap {
			wrong("a mapping of " + strings.Join(fieldNames(to.Type()), ", "))
			return
		}
		decodeStruct(n, to, where, p)
	case reflect.Slice:
		if n.kind != aList {
			wrong("a list: [...]")
			return
		}
		if len(n.items) > maxEntries {
			p.Addf(n.where(where), "", "%d of them: %d are the most", len(n.items), maxEntries)
			return
		}
		if len(n.items) == 0 {
			return // an empty list says what none does
		}
		to.Set(reflect.MakeSlice(to.Type(), len(n.items), len(n.items)))
		for i, item := range n.items {
			decode(item, to.Index(i), at(where, i), p)
		}
	case reflect.String:
		if n.kind != aText && (n.kind != aNumber || !decimal(n.text)) {
			wrong("a text, in quotes if need be")
			return
		}
		to.SetString(n.text)
	case reflect.Bool:
		if n.kind != aBool {
			wrong("true or false")
			return
		}
		to.SetBool(n.text == "true")
	default:
		var i int64
		if _, err := fmt.Sscanf(n.text, "%d", &i); n.kind != aNumber || err != nil || !decimal(n.text) || to.OverflowInt(i) {
			wrong("a whole number")
			return
		}
		to.SetInt(i)
	}
}

func decodeStruct(n *node, to reflect.Value, where string, p *Errors) {
	seen := map[string]bool{}
	for _, pair := range n.pairs {
		inner := pair.key
		if where != "" {
			inner = where + "." + pair.key
		}
		field, ok := fieldByTag(to, pair.key)
		switch {
		case !ok:
			p.Addf(fmt.Sprintf("line %d", pair.line), "", "%s%s is not of the schema: it has %s", n.stray("a field", pair.key, fieldNames(to.Type())), inWhere(where), strings.Join(fieldNames(to.Type()), ", "))
		case seen[pair.key]:
			p.Addf(fmt.Sprintf("line %d", pair.line), "say it once", "%s is there twice", inner)
		default:
			decode(pair.value, field, inner, p)
		}
		seen[pair.key] = true
	}
}

func inWhere(where string) string {
	if where == "" {
		return ""
	}
	return " in " + where
}

func fieldByTag(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if tag(v.Type().Field(i)) == key {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func tag(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = tag(t.Field(i))
	}
	return names
}

// stray is a key for an error that is none of known: by its name where the
// mapping has one of them, or this one looks like one. Else the text may be no
// policy at all but somebody's secrets, and the key is the kind of thing.
func (n *node) stray(kind, key string, known []string) string {
	for _, name := range known {
		if alike(key, name) || slices.ContainsFunc(n.pairs, func(p pair) bool { return p.key == name }) {
			return Quoted(key)
		}
	}
	return kind
}

// alike reports whether key may be name, typed wrongly: it begins as that does,
// and is as long but for a letter.
func alike(key, name string) bool {
	return key != "" && strings.EqualFold(key[:1], name[:1]) && max(len(key), len(name))-min(len(key), len(name)) <= 1
}

func (n *node) where(path string) string {
	if path == "" {
		return fmt.Sprintf("line %d", n.line)
	}
	return fmt.Sprintf("line %d: %s", n.line, path)
}

// described is the node at a path of the schema for an error: its text, or what
// kind of thing it is. The text of what is no policy at all is not told, as it
// may be anybody's.
func (n *node) described(path string) string {
	switch {
	case n.kind != aNumber && n.kind != aBool && n.kind != aText, path == "":
		return string(n.kind)
	}
	return Quoted(n.text)
}

// decimal reports whether a number is written as people write whole ones.
func decimal(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s == "0" || s != "" && s[0] != '0' && len(s) < 19 && strings.Trim(s, "0123456789") == ""
}
