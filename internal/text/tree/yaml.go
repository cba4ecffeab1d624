package tree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// parseYAML reads the part of YAML that has one meaning: mappings, lists and
// scalars. Anchors and aliases make a small text large, tags and merge keys
// make it say what it does not show. A text of nothing is nil.
func parseYAML(text []byte, what string) (n *Node, err error) {
	// The parser is a library's, and its input somebody else's.
	defer func() {
		if recover() != nil {
			n, err = nil, neither(what)
		}
	}()
	// Keys that are there twice are found by who reads the tree, which looks at each
	// once where the parser compares all of them.
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		if line, column := tab(text); line > 0 {
			return nil, &Error{Line: line, Column: column, Problem: "a tab", Hint: "YAML indents by spaces"}
		}
		return nil, syntaxError(err, what)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, at(doc.Body, &Error{Problem: fmt.Sprintf("a second document: a %s is one", what)})
		}
		body = doc.Body
	}
	if body == nil {
		return nil, nil
	}
	return fromYAML(body, what, 0)
}

func neither(what string) error {
	return &Error{Problem: fmt.Sprintf("the %s is neither YAML nor JSON", what)}
}

func syntaxError(err error, what string) error {
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) && syntax.Token != nil {
		// The parser's own words may repeat the text.
		return &Error{Line: syntax.Token.Position.Line, Column: syntax.Token.Position.Column, Problem: "neither YAML nor JSON"}
	}
	return neither(what)
}

// tab is where the first line is indented by one; 0: none is.
func tab(text []byte) (line, column int) {
	for l := range bytes.Lines(text) {
		line++
		if i := bytes.IndexByte(l[:len(l)-len(bytes.TrimLeft(l, " \t"))], '\t'); i >= 0 && len(bytes.TrimSpace(l)) > 0 {
			return line, i + 1
		}
	}
	return 0, 0
}

// at puts e where a part of the text is.
func at(n ast.Node, e *Error) *Error {
	if t := n.GetToken(); t != nil && t.Position != nil {
		e.Line, e.Column = t.Position.Line, t.Position.Column
	}
	return e
}

func fromYAML(a ast.Node, what string, depth int) (*Node, error) {
	t := a.GetToken()
	if t == nil || t.Position == nil {
		return nil, neither(what)
	}
	n := &Node{Line: t.Position.Line, Column: t.Position.Column}
	if depth > maxDepth {
		return nil, tooDeep(what, n.Line, n.Column)
	}
	switch a := a.(type) {
	case *ast.MappingNode:
		n.Kind = Map
		for _, v := range a.Values {
			if err := n.addPair(v, what, depth); err != nil {
				return nil, err
			}
		}
		n.atFirst()
	case *ast.MappingValueNode:
		n.Kind = Map
		err := n.addPair(a, what, depth)
		n.atFirst()
		return n, err
	case *ast.SequenceNode:
		n.Kind = List
		for _, v := range a.Values {
			item, err := fromYAML(v, what, depth+1)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, item)
		}
	case *ast.StringNode:
		n.Kind, n.Text = Text, a.Value
	case *ast.LiteralNode:
		n.Kind, n.Text = Text, a.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.Kind, n.Text = Number, t.Value
	case *ast.BoolNode:
		n.Kind, n.Text = Bool, fmt.Sprint(a.Value)
	case *ast.NullNode:
		n.Kind = Null
	default:
		return nil, at(a, &Error{Problem: "anchors, aliases, merge keys, tags and directives are not read", Hint: "write it out"})
	}
	return n, nil
}

func (n *Node) addPair(v *ast.MappingValueNode, what string, depth int) error {
	key, ok := v.Key.(*ast.StringNode)
	if !ok {
		return at(v, &Error{Problem: "a key that is no plain text", Hint: "write it out, without anchors, merge keys and tags"})
	}
	value, err := fromYAML(v.Value, what, depth+1)
	if err != nil {
		return err
	}
	p := key.GetToken().Position
	n.Pairs = append(n.Pairs, Pair{key.Value, p.Line, p.Column, value})
	return nil
}

// atFirst has a mapping begin where its first key does: the parser says where its colon is.
func (n *Node) atFirst() {
	if len(n.Pairs) > 0 && (n.Pairs[0].Line < n.Line || n.Pairs[0].Line == n.Line && n.Pairs[0].Column < n.Column) {
		n.Line, n.Column = n.Pairs[0].Line, n.Pairs[0].Column
	}
}
