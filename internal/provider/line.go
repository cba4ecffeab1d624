package provider

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// placed says of a mistake in a file in which line it is, as far as what it says of
// itself leads to one: it begins with a field, such as config.dir, or with a table and
// what that is known by, such as access.way key.
func placed(b []byte, err error) error {
	if line := lineOf(b, err.Error()); line > 0 {
		return fmt.Errorf("line %d: %w", line, err)
	}
	return err
}

// lineOf is the line that a mistake is about; 0: that is not known.
func lineOf(b []byte, said string) (line int) {
	about, _, _ := strings.Cut(said, ": ")
	field, name, _ := strings.Cut(about, " ")
	name = strings.Trim(name, `"`)
	var p unstable.Parser
	p.Reset(b)
	table, best := "", 0
	for p.NextExpression() {
		e := p.Expression()
		var parts []string
		at := 0
		for k := e.Key(); k.Next(); {
			if at == 0 {
				at = p.Shape(k.Node().Raw).Start.Line
			}
			parts = append(parts, string(k.Node().Data))
		}
		key := strings.Join(parts, ".")
		if e.Kind != unstable.KeyValue {
			table = key
		} else if table != "" {
			key = table + "." + key
		}
		good := 0
		switch {
		case name != "" && e.Kind == unstable.KeyValue && table == field && string(e.Value().Data) == name:
			good = 3
		case key == field:
			good = 2
		case strings.HasPrefix(key, field+"."), strings.HasPrefix(field, key+"."):
			good = 1
		}
		if good > best {
			line, best = at, good
		}
	}
	return line
}
