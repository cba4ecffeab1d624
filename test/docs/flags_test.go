package docs

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

var (
	heading  = regexp.MustCompile("(?m)^### `carboy ([a-z ]+?)(?: [^a-z`][^`]*| bash[^`]*)?`$")
	cell     = regexp.MustCompile(`(?m)^\| (.*?) \|`)
	flagName = regexp.MustCompile(`--[a-z][a-z-]*`)
	helpFlag = regexp.MustCompile(`(?m)^  (?:-[a-z], |    )(--[a-z][a-z-]*)`)
	section  = regexp.MustCompile(`(?m)^[a-z ]+:$`)
	listed   = regexp.MustCompile(`(?m)^  ([a-z]+)  `)
)

func TestManualHasEveryFlag(t *testing.T) {
	manual := manualFlags(read(t, filepath.Join(root, "docs", "cli.md")))
	if diff := cmp.Diff(commandsBelow(t, ""), sortedKeys(manual)); diff != "" {
		t.Errorf("commands (-carboy +manual):\n%s", diff)
	}
	for name, got := range manual {
		// Every command has --help.
		want := slices.DeleteFunc(matches(helpFlag, help(t, name)), func(f string) bool { return f == "--help" })
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("flags of carboy %s (-carboy +manual):\n%s", name, diff)
		}
	}
}

// manualFlags returns the flags in the tables below each command's heading.
func manualFlags(text string) map[string][]string {
	flags := map[string][]string{}
	at := heading.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		body := text[m[1]:]
		if i+1 < len(at) {
			body = text[m[1]:at[i+1][0]]
		}
		body, _, _ = strings.Cut(body, "\n## ")
		var cells []string
		for _, c := range cell.FindAllStringSubmatch(strings.ReplaceAll(body, `\|`, "/"), -1) {
			cells = append(cells, flagName.FindAllString(c[1], -1)...)
		}
		slices.Sort(cells)
		flags[text[m[2]:m[3]]] = slices.Compact(cells)
	}
	return flags
}

// commandsBelow lists the commands that do something, "daemon stop" as one.
func commandsBelow(t *testing.T, name string) (names []string) {
	t.Helper()
	text := help(t, name)
	_, list, ok := strings.Cut(text, "\ncommands:\n")
	if !ok {
		return []string{name}
	}
	if end := section.FindStringIndex(list); end != nil {
		list = list[:end[0]]
	}
	for _, sub := range matches(listed, list) {
		names = append(names, commandsBelow(t, strings.TrimSpace(name+" "+sub))...)
	}
	slices.Sort(names)
	return names
}

func help(t *testing.T, command string) string {
	t.Helper()
	var out, errs bytes.Buffer
	args := append(strings.Fields(command), "--help")
	if code := cli.Main(t.Context(), args, cli.Env{Stdout: &out, Stderr: &errs}); code != 0 {
		t.Fatalf("carboy %q: exit code %d: %s", args, code, errs.String())
	}
	return out.String()
}

// matches returns what re's first group finds in text, sorted.
func matches(re *regexp.Regexp, text string) (found []string) {
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return found
}

func sortedKeys(m map[string][]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func TestManualFlags(t *testing.T) {
	text := "### `carboy a [flags] X...`\n\n| flag | |\n|---|---|\n| `--one V`, `--two [a\\|b]` | not `--three` |\n\n" +
		"### `carboy b c`\n\n| `-f`, `--four` | |\n\n## Other\n\n| `--five` | |\n"
	want := map[string][]string{"a": {"--one", "--two"}, "b c": {"--four"}}
	if diff := cmp.Diff(want, manualFlags(text)); diff != "" {
		t.Errorf("manualFlags (-want +got):\n%s", diff)
	}
}
