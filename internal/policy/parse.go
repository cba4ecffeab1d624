package policy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/text/tree"
)

// MaxSize is the most bytes of a policy's text.
const MaxSize = 1 << 20

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

// The tree of a text: see package tree.
type (
	node = tree.Node
	pair = tree.Pair
)

// parseTree reads JSON where it is that, and YAML where not.
func parseTree(text []byte) (*node, error) {
	if len(text) > MaxSize {
		return nil, &Error{Problem: fmt.Sprintf("%d bytes of policy: %d are the most", len(text), MaxSize)}
	}
	n, err := tree.Parse(text, "policy", maxEntries)
	if e, ok := errors.AsType[*tree.Error](err); ok {
		out := &Error{Problem: e.Problem, Hint: e.Hint}
		if e.Line > 0 {
			out.Where = fmt.Sprintf("line %d", e.Line)
		}
		return nil, out
	}
	if n == nil {
		return nil, &Error{Problem: "the policy is empty", Hint: "rules: [], to allow nothing"}
	}
	return n, nil
}

// decode puts a node into a Go value of the same shape, by the json tags.
func decode(n *node, to reflect.Value, where string, p *Errors) {
	wrong := func(want string) {
		p.Addf(placed(n, where), want, "%s where something else is wanted", described(n, where))
	}
	switch to.Kind() { //nolint:exhaustive // the schema has no others, and a test decodes all of it
	case reflect.Struct:
		if n.Kind != tree.Map {
			wrong("a mapping of " + strings.Join(fieldNames(to.Type()), ", "))
			return
		}
		decodeStruct(n, to, where, p)
	case reflect.Slice:
		if n.Kind != tree.List {
			wrong("a list: [...]")
			return
		}
		if len(n.Items) > maxEntries {
			p.Addf(placed(n, where), "", "%d of them: %d are the most", len(n.Items), maxEntries)
			return
		}
		if len(n.Items) == 0 {
			return // an empty list says what none does
		}
		to.Set(reflect.MakeSlice(to.Type(), len(n.Items), len(n.Items)))
		for i, item := range n.Items {
			decode(item, to.Index(i), at(where, i), p)
		}
	case reflect.String:
		if n.Kind != tree.Text && (n.Kind != tree.Number || !decimal(n.Text)) {
			wrong("a text, in quotes if need be")
			return
		}
		to.SetString(n.Text)
	case reflect.Bool:
		if n.Kind != tree.Bool {
			wrong("true or false")
			return
		}
		to.SetBool(n.Text == "true")
	default:
		var i int64
		if _, err := fmt.Sscanf(n.Text, "%d", &i); n.Kind != tree.Number || err != nil || !decimal(n.Text) || to.OverflowInt(i) {
			wrong("a whole number")
			return
		}
		to.SetInt(i)
	}
}

func decodeStruct(n *node, to reflect.Value, where string, p *Errors) {
	seen := map[string]bool{}
	for _, pair := range n.Pairs {
		inner := pair.Key
		if where != "" {
			inner = where + "." + pair.Key
		}
		field, ok := fieldByTag(to, pair.Key)
		switch {
		case !ok:
			p.Addf(fmt.Sprintf("line %d", pair.Line), "", "%s%s is not of the schema: it has %s", stray(n, "a field", pair.Key, fieldNames(to.Type())), inWhere(where), strings.Join(fieldNames(to.Type()), ", "))
		case seen[pair.Key]:
			p.Addf(fmt.Sprintf("line %d", pair.Line), "say it once", "%s is there twice", inner)
		default:
			decode(pair.Value, field, inner, p)
		}
		seen[pair.Key] = true
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
func stray(n *node, kind, key string, known []string) string {
	for _, name := range known {
		if alike(key, name) || slices.ContainsFunc(n.Pairs, func(p pair) bool { return p.Key == name }) {
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

func placed(n *node, path string) string {
	if path == "" {
		return fmt.Sprintf("line %d", n.Line)
	}
	return fmt.Sprintf("line %d: %s", n.Line, path)
}

// described is the node at a path of the schema for an error: its text, or what
// kind of thing it is. The text of what is no policy at all is not told, as it
// may be anybody's.
func described(n *node, path string) string {
	switch {
	case n.Kind != tree.Number && n.Kind != tree.Bool && n.Kind != tree.Text, path == "":
		return string(n.Kind)
	}
	return Quoted(n.Text)
}

// decimal reports whether a number is written as people write whole ones.
func decimal(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s == "0" || s != "" && s[0] != '0' && len(s) < 19 && strings.Trim(s, "0123456789") == ""
}
