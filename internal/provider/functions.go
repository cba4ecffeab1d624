package provider

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
)

// functions are those that texts may call. Whoever asks the daemon for a set-up writes them: what they make is
// bounded, and what could grow without end is none of them.
var functions = template.FuncMap{
	"json": func(s string) (string, error) {
		b, err := json.Marshal(s)
		return short(string(b), err)
	},
	"last":   func(n int, s string) string { return s[max(0, len(s)-max(0, n)):] },
	"jwt":    unsignedToken,
	"printf": plainPrintf,
	"print":  refused, "println": refused, "html": refused, "js": refused, "urlquery": refused,
}

// maxMade bounds what a function makes, in bytes.
const maxMade = 16 << 10

func short(s string, err error) (string, error) {
	if err == nil && len(s) > maxMade {
		return "", fmt.Errorf("it becomes longer than %d KiB", maxMade>>10)
	}
	return s, err
}

func refused(...any) (string, error) { return "", errors.New("there is no such function here") }

// plainPrintf puts texts in the places of %s, and knows nothing else.
func plainPrintf(format string, args ...any) (string, error) {
	parts := strings.Split(format, "%s")
	wrong := strings.Contains(strings.Join(parts, ""), "%") || len(parts) != len(args)+1
	var b strings.Builder
	b.WriteString(parts[0])
	for i, a := range args {
		text, ok := a.(string)
		if wrong = wrong || !ok; wrong || b.Len() > maxMade {
			break
		}
		b.WriteString(text + parts[i+1])
	}
	if wrong {
		return "", errors.New("printf: it takes %s, as often as there are texts for it")
	}
	return short(b.String(), nil)
}

// maxCalls bounds how much is done for one text.
const maxCalls = 128

// checkTree refuses what a text has no use for, and could be made to take for ever.
func checkTree(t *template.Template) error {
	if len(t.Templates()) > 1 {
		return errors.New("define and block are not for here")
	}
	return new(treeCheck).node(t.Tree.Root)
}

// treeCheck counts the calls of one text.
type treeCheck struct{ calls int }

func (c *treeCheck) node(n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		return c.list(n)
	case *parse.ActionNode:
		return c.pipe(n.Pipe)
	case *parse.PipeNode:
		return c.pipe(n)
	case *parse.ChainNode:
		return c.node(n.Node)
	case *parse.IfNode:
		return c.branch(&n.BranchNode)
	case *parse.WithNode:
		return c.branch(&n.BranchNode)
	case *parse.RangeNode, *parse.TemplateNode, *parse.BreakNode, *parse.ContinueNode:
		return errors.New("range and template are not for here")
	}
	return nil
}

func (c *treeCheck) list(l *parse.ListNode) error {
	if l == nil {
		return nil
	}
	for _, n := range l.Nodes {
		if err := c.node(n); err != nil {
			return err
		}
	}
	return nil
}

func (c *treeCheck) branch(b *parse.BranchNode) error {
	return errors.Join(c.pipe(b.Pipe), c.list(b.List), c.list(b.ElseList))
}

func (c *treeCheck) pipe(p *parse.PipeNode) error {
	if len(p.Decl) > 0 {
		return errors.New("variables are not for here")
	}
	for _, cmd := range p.Cmds {
		if c.calls++; c.calls > maxCalls {
			return fmt.Errorf("more than %d calls", maxCalls)
		}
		for _, arg := range cmd.Args {
			if err := c.node(arg); err != nil {
				return err
			}
		}
	}
	return nil
}

// unsignedToken is a token with those claims, in the form of one that is signed.
func unsignedToken(claims string) (string, error) {
	if !json.Valid([]byte(claims)) {
		return "", fmt.Errorf("jwt: the claims are no JSON")
	}
	enc := base64.RawURLEncoding.EncodeToString
	return short(enc([]byte(`{"alg":"none","typ":"JWT"}`))+"."+enc([]byte(claims))+"."+enc([]byte("none")), nil)
}
