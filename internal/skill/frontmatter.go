package skill

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/carboy-sandbox/carboy/internal/text/yamlscan"
)

// maxMeta bounds the YAML of a SKILL.md, in bytes.
const maxMeta = 16 << 10

// maxMetaItems bounds the items of its lists.
const maxMetaItems = 1024

// Meta is what a SKILL.md says of itself; "" is not said.
type Meta struct{ Name, DisplayName, Description string }

const mark = "---"

// ParseFrontMatter splits the text of a SKILL.md. One without YAML between
// two marks has instructions alone. YAML that is no mapping says nothing;
// text that is no YAML is an error.
func ParseFrontMatter(text string) (Meta, string, error) {
	body := strings.TrimPrefix(text, "\ufeff") // as some editors begin a file
	first, rest, ok := strings.Cut(body, "\n")
	if !strings.HasPrefix(first, mark) || strings.TrimSpace(first) != mark || !ok {
		return Meta{}, text, nil
	}
	for at := 0; at < len(rest); {
		line := rest[at:]
		next := len(rest)
		if i := strings.IndexByte(line, '\n'); i >= 0 {
			line, next = line[:i], at+i+1
		}
		if strings.TrimSpace(line) == mark {
			m, err := parseMeta(rest[:at])
			return m, strings.TrimLeft(rest[next:], "\r\n"), err
		}
		at = next
	}
	return Meta{}, text, nil
}

// parseMeta reads the YAML. Of it all, only three texts count: what else is
// there is neither looked at nor expanded.
func parseMeta(text string) (m Meta, err error) {
	if len(text) > maxMeta {
		return m, invalid("Skill front matter exceeds the %d-byte limit", maxMeta)
	}
	// The parser is a library's, and its input somebody else's, perhaps an agent's.
	if yamlscan.Deep([]byte(text)) > 0 || yamlscan.Many([]byte(text), maxMetaItems) > 0 {
		return m, invalid("Skill front matter is nested too deep, or has too many keys or items")
	}
	defer func() {
		if recover() != nil {
			m, err = Meta{}, invalid("Skill front matter is not valid YAML")
		}
	}()
	file, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return m, yamlError(err)
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return m, nil
	}
	var values []*ast.MappingValueNode
	switch body := file.Docs[0].Body.(type) {
	case *ast.MappingNode:
		values = body.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{body}
	}
	for _, v := range values {
		if v.Key == nil || v.Key.GetToken() == nil {
			continue
		}
		to := map[string]*string{"name": &m.Name, "display_name": &m.DisplayName, "description": &m.Description}[v.Key.GetToken().Value]
		if to == nil {
			continue
		}
		if *to, err = scalar(v.Key.GetToken().Value, v.Value); err != nil {
			return Meta{}, err
		}
	}
	return m, nil
}

// scalar is the text of a value.
func scalar(key string, n ast.Node) (string, error) {
	switch v := n.(type) {
	case nil, *ast.NullNode:
		return "", nil
	case *ast.StringNode:
		return v.Value, nil
	case *ast.LiteralNode:
		return v.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, nil
	}
	return "", invalid("Skill front matter: %s must be text", key)
}

func yamlError(err error) error {
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) && syntax.Token != nil {
		line, _, _ := strings.Cut(syntax.Message, "\n")
		return invalid("Skill front matter is not valid YAML, in line %d: %.120s", syntax.Token.Position.Line+1, printable(line))
	}
	return invalid("Skill front matter is not valid YAML")
}

// BuildMarkdown returns the text of a SKILL.md. What is blank is left out.
func BuildMarkdown(m Meta, instructions string) string {
	text := build(m, instructions, plainYAML)
	if got, _, err := ParseFrontMatter(text); err != nil || got != m.solid() {
		text = build(m, instructions, quotedYAML)
	}
	return text
}

// solid is m without what is blank.
func (m Meta) solid() Meta {
	for _, s := range []*string{&m.Name, &m.DisplayName, &m.Description} {
		if strings.TrimSpace(*s) == "" {
			*s = ""
		}
	}
	return m
}

func build(m Meta, instructions string, write func(key, value string) string) string {
	m = m.solid()
	var b strings.Builder
	for _, f := range [][2]string{{"name", m.Name}, {"display_name", m.DisplayName}, {"description", m.Description}} {
		if f[1] != "" {
			b.WriteString(write(f[0], f[1]))
		}
	}
	if b.Len() == 0 {
		return instructions
	}
	return mark + "\n" + b.String() + mark + "\n\n" + instructions
}

// plainYAML writes for readers.
func plainYAML(key, value string) string {
	out, err := yaml.Marshal(yaml.MapSlice{{Key: key, Value: value}})
	if err != nil {
		return quotedYAML(key, value)
	}
	return string(out)
}

// quotedYAML writes what plainYAML can't: JSON's strings are YAML's.
func quotedYAML(key, value string) string {
	out, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return key + ": " + string(out) + "\n"
}
