package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Bounds of an env file.
const (
	maxEnvFile = 1 << 20 // bytes
	maxEnvLine = 128 << 10
)

// checkEnvName refuses names that no environment can hold or no shell can
// show. It never repeats a name that may really be a value.
func checkEnvName(name string) error {
	switch {
	case name == "":
		return errors.New("a variable's name is empty")
	case !utf8.ValidString(name):
		return errors.New("a variable's name is not valid UTF-8")
	}
	for _, r := range name {
		if r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return errors.New("a variable's name can't hold spaces, control characters or =")
		}
	}
	return nil
}

// checkEnvValue says nothing of the value itself: it may be a secret.
func checkEnvValue(name, value string) error {
	switch {
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("the value of %s holds a NUL byte", name)
	case !utf8.ValidString(value):
		return fmt.Errorf("the value of %s is not valid UTF-8", name)
	}
	return nil
}

// parseEnvArg reads K=V, or K, whose value lookup knows.
func parseEnvArg(s string, lookup func(string) (string, bool)) (name, value string, err error) {
	name, value, given := strings.Cut(s, "=")
	if err := checkEnvName(name); err != nil {
		return "", "", err
	}
	if !given {
		var ok bool
		if value, ok = lookup(name); !ok {
			return "", "", fmt.Errorf("%s is not set here: set it, or give a value with --env %s=VALUE", name, name)
		}
	}
	return name, value, checkEnvValue(name, value)
}

// parseEnvFile reads lines of KEY=VALUE into env. Empty lines and lines that
// start with # are skipped; a value is everything after the first =, as it
// stands. Anything else is an error that names the line, and not its text.
func parseEnvFile(r io.Reader, env map[string]string) error {
	sc := bufio.NewScanner(io.LimitReader(r, maxEnvFile+1))
	sc.Buffer(make([]byte, 0, 4096), maxEnvLine)
	sc.Split(splitLines)
	seen := map[string]int{}
	n, size := 0, 0
	for sc.Scan() {
		n++
		size += len(sc.Bytes()) + 1
		line := sc.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, err := parseEnvLine(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if first := seen[name]; first != 0 {
			return fmt.Errorf("line %d: %s was set on line %d already", n, name, first)
		}
		seen[name] = n
		env[name] = value
	}
	if err := sc.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("line %d: longer than %s", n+1, term.FormatSize(maxEnvLine))
		}
		return err
	}
	if size > maxEnvFile+1 {
		return fmt.Errorf("larger than %s", term.FormatSize(maxEnvFile))
	}
	return nil
}

// splitLines is bufio.ScanLines without its forgiveness of a carriage return.
func splitLines(data []byte, atEOF bool) (int, []byte, error) {
	for i, c := range data {
		if c == '\n' {
			return i + 1, data[:i], nil
		}
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func parseEnvLine(line string) (name, value string, err error) {
	name, value, ok := strings.Cut(line, "=")
	switch {
	case !ok:
		return "", "", errors.New("not KEY=VALUE")
	case strings.HasPrefix(name, "export "):
		return "", "", errors.New("starts with export: write KEY=VALUE alone")
	case strings.HasSuffix(line, "\r"):
		return "", "", errors.New("ends with a carriage return: save the file with plain line ends")
	}
	if err := checkEnvName(name); err != nil {
		return "", "", err
	}
	return name, value, checkEnvValue(name, value)
}

// Env is what a user said of a command's variables.
type Env struct {
	Base  map[string]string // below all else
	Vars  []string          // KEY[=VALUE]
	Files []string          // names of files with lines of KEY=VALUE
}

// Collect returns the variables: Base, then files in their order, then --env in its.
func (e *Env) Collect(lookup func(string) (string, bool)) (map[string]string, error) {
	if len(e.Vars)+len(e.Files)+len(e.Base) == 0 {
		return nil, nil
	}
	env := map[string]string{}
	maps.Copy(env, e.Base)
	for _, name := range e.Files {
		if err := readEnvFile(name, env); err != nil {
			return nil, usage.Path("--env-file "+shell.Word(name), "", err)
		}
	}
	for _, v := range e.Vars {
		name, value, err := parseEnvArg(v, lookup)
		if err != nil {
			return nil, usage.Errorf("--env: %v", err)
		}
		env[name] = value
	}
	return env, nil
}

func readEnvFile(name string, env map[string]string) error {
	f, err := beneath.OpenInput(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	return parseEnvFile(f, env)
}

// parseLabel reads K=V.
func parseLabel(s string) (name, value string, err error) {
	name, value, ok := strings.Cut(s, "=")
	switch {
	case !ok || name == "":
		return "", "", fmt.Errorf("%q is not a label: use KEY=VALUE", s)
	case !utf8.ValidString(s):
		return "", "", fmt.Errorf("%q is not valid UTF-8", s)
	}
	return name, value, nil
}
