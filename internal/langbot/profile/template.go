package profile

import (
	"strings"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
)

// DefaultTemplate gives each chat a session of its own.
const DefaultTemplate = "{launcher_type}_{launcher_id}"

// unknown is what a variable that is not there renders as.
const unknown = "unknown"

// SessionID renders a template: "{name}" is the variable of that name, or
// "unknown" where there is none; "{{" and "}}" are braces. The result is as the
// variables make it: nothing of it is cleaned, and a Spec's check may refuse it.
// "" is DefaultTemplate. Braces without a match, and anything but a name in
// them, are errors.
func SessionID(template string, vars map[string]string) (string, error) {
	if template == "" {
		template = DefaultTemplate
	}
	var out strings.Builder
	for rest := template; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			out.WriteString(rest)
			break
		}
		out.WriteString(rest[:i])
		brace := rest[i]
		rest = rest[i+1:]
		if rest != "" && rest[0] == brace {
			out.WriteByte(brace)
			rest = rest[1:]
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if brace == '}' || !closed {
			return "", badTemplate(template, "a brace has no match")
		}
		if name == "" || strings.ContainsAny(name, "{!:.[]") {
			return "", badTemplate(template, "{"+fault.Cut(name)+"} is not the name of a variable")
		}
		value, ok := vars[name]
		if !ok {
			value = unknown
		}
		out.WriteString(value)
		rest = after
	}
	return out.String(), nil
}

func badTemplate(template, why string) *sandbox.Error {
	return fault.Invalid("session id template %q: %s", fault.Cut(template), why).WithHint("such as %s", DefaultTemplate)
}
