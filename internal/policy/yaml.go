package policy

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// parseYAML reads the part of YAML that has one meaning: mappings, lists and
// scalars. Anchors and aliases make a small text large, tags and merge keys
// make it say what it does not show.
func parseYAML(text []byte) (n *node, err error) {
	// The parser is a library's, and its input somebody else's.
	defer func() {
		if recover() != nil {
			n, err = nil, &Error{Problem: "the policy is neither YAML nor JSON"}
		}
	}()
	// Keys that are there twice are found by decode, which looks at each once
	// where the parser compares all of them.
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxError(err)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, &Error{Where: lineOf(doc.Body), Problem: "a second document: a policy is one"}
		}
		body = doc.Body
	}
	if body == nil {
		return nil, &Error{Problem: "the policy is empty", Hint: "rules: [], to allow nothing"}
	}
	return fromYAML(body, 0)
}

func syntaxError(err error) error {
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) && syntax.Token != nil {
		return &Error{
			Where:   fmt.Sprintf("line %d", syntax.Token.Position.Line),
			Problem: "neither YAML nor JSON", // the parser's own words may repeat the text
		}
	}
	return &Error{Problem: "the policy is neither YAML nor JSON"}
}

func lineOf(n ast.Node) string {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return fmt.Sprintf("line %d", t.Position.Line)
	}
	return ""
}

func fromYAML(a ast.Node, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, &Error{Where: lineOf(a), Problem: "nested deeper than any policy is"}
	}
	t := a.GetToken()
	if t == nil || t.Position == nil {
		return nil, &Error{Problem: "the policy is neither YAML nor JSON"}
	}
	n := &node{line: t.Position.Line}
	switch a := a.(type) {
	case *ast.MappingNode:
		n.kind = aMap
		for _, v := range a.Values {
			if err := n.addPair(v, depth); err != nil {
				return nil, err
			}
		}
	case *ast.MappingValueNode:
		n.kind = aMap
		return n, n.addPair(a, depth)
	case *ast.SequenceNode:
		n.kind = aList
		for _, v := range a.Values {
			item, err := fromYAML(v, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
	case *ast.StringNode:
		n.kind, n.text = aText, a.Value
	case *ast.LiteralNode:
		n.kind, n.text = aText, a.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.kind, n.text = aNumber, t.Value
	case *ast.BoolNode:
		n.kind, n.text = aBool, fmt.Sprint(a.Value)
	case *ast.NullNode:
		n.kind = aNull
	default:
		return nil, &Error{Where: lineOf(a), Problem: "anchors, aliases, merge keys, tags and directives are not read", Hint: "write it out"}
	}
	return n, nil
}

func (n *node) addPair(v *ast.MappingValueNode, depth int) error {
	key, ok := v.Key.(*ast.StringNode)
	if !ok {
		return &Error{Where: lineOf(v), Problem: "a key that is no plain text", Hint: "write it out, without anchors, merge keys and tags"}
	}
	value, err := fromYAML(v.Value, depth+1)
	if err != nil {
		return err
	}
	n.pairs = append(n.pairs, pair{key.Value, key.GetToken().Position.Line, value})
	return nil
}
