package interpreter

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	sh "github.com/carboy-sandbox/carboy/internal/text/shell"
)

const maxVariables = 1024

// identifier is what every shell and language takes for a variable's name.
var identifier = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// checkEnv refuses variables that can't be set for one cell.
func checkEnv(env map[string]string) error {
	if len(env) > maxVariables {
		return fmt.Errorf("env_vars: %d are too many; at most %d", len(env), maxVariables)
	}
	for name, value := range env {
		if !identifier().MatchString(name) {
			return fmt.Errorf("env_vars: %.80q: a name is of letters, digits and _", name)
		}
		if strings.ContainsRune(value, 0) {
			return fmt.Errorf("env_vars: %s: the value has a zero byte", name)
		}
	}
	return nil
}

// setting is code in a language that gives variables the values in set, and
// takes away those in unset. It reports false where it does not know how.
func setting(language string, set map[string]string, unset []string) (code string, ok bool) {
	if unset == nil {
		unset = []string{} // null in JSON, otherwise
	}
	each := func(set func(k, v string) string, unset func(k string) string, names []string, values map[string]string) string {
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(values)) {
			b.WriteString(set(k, values[k]) + "\n")
		}
		for _, k := range names {
			b.WriteString(unset(k) + "\n")
		}
		return b.String()
	}
	switch language {
	case "python":
		const environ = `__import__("os").environ`
		return fmt.Sprintf("%s.update(%s)\n([%s.pop(k, None) for k in %s], None)[1]\n",
			environ, literal(set), environ, literal(unset)), true
	case "javascript", "typescript":
		return fmt.Sprintf("Object.assign(process.env, %s); %s.forEach((k) => delete process.env[k])",
			literal(set), literal(unset)), true
	case "bash":
		return each(
			func(k, v string) string { return "export " + k + "=" + sh.Quote(v) },
			func(k string) string { return "unset " + k }, unset, set), true
	case "r":
		return each(
			func(k, v string) string { return "Sys.setenv(" + k + " = " + literal(v) + ")" },
			func(k string) string { return "Sys.unsetenv(" + literal(k) + ")" }, unset, set), true
	case "java": // a process can't change its environment there: E2B's kernel sets properties
		return each(
			func(k, v string) string { return "System.setProperty(" + literal(k) + ", " + literal(v) + ");" },
			func(k string) string { return "System.clearProperty(" + literal(k) + ");" }, unset, set), true
	}
	return "", false
}

// literal writes a value as these languages have it, which is as JSON does.
func literal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return `""` // strings, and lists and maps of them, have a form
	}
	return string(b)
}

// resetting is code that gives the variables in names back what the kernels'
// environment has, KEY=VALUE each.
func resetting(language string, names map[string]string, environ []string) string {
	set := map[string]string{}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		if _, ok := names[k]; ok {
			set[k] = v
		}
	}
	var unset []string
	for _, k := range slices.Sorted(maps.Keys(names)) {
		if _, ok := set[k]; !ok {
			unset = append(unset, k)
		}
	}
	code, _ := setting(language, set, unset)
	return code
}
