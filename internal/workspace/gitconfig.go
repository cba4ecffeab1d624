package workspace

import "strings"

// maxGitConfig is how much of a git configuration file is read.
const maxGitConfig = 1 << 20

// gitVariable is one setting: "core.hookspath", or "includeif.gitdir:x.path".
type gitVariable struct{ key, value string }

// parseGitConfig reads the settings of a git configuration file. It skips what
// it can't read: a line too many protects too much at worst.
func parseGitConfig(text string) []gitVariable {
	var out []gitVariable
	section := ""
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			head, rest, ok := strings.Cut(line[1:], "]")
			if !ok {
				continue
			}
			section = gitSection(head)
			line = strings.TrimSpace(rest)
		}
		if line == "" || line[0] == '#' || line[0] == ';' || section == "" {
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		out = append(out, gitVariable{section + "." + strings.ToLower(strings.TrimSpace(name)), gitValue(value)})
	}
	return out
}

// gitSection reads what is between the brackets: a name, and perhaps a quoted
// part whose case counts.
func gitSection(head string) string {
	name, sub, ok := strings.Cut(head, `"`)
	name = strings.ToLower(strings.TrimSpace(name))
	if !ok {
		return name
	}
	return name + "." + strings.TrimSuffix(strings.TrimSpace(sub), `"`)
}

// gitValue takes quotes, escapes and comments out of a value.
func gitValue(s string) string {
	var b strings.Builder
	quoted := false
	s = strings.TrimSpace(s)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case c == '"':
			quoted = !quoted
		case (c == '#' || c == ';') && !quoted:
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return strings.TrimSpace(b.String())
}
