package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

// TestManual holds that every command has a page with all its flags, and that no text
// is taken for a request of troff.
func TestManual(t *testing.T) {
	pages := map[string]string{}
	for _, p := range cli.Manual("v1.2.3", "2026-01-02") {
		pages[p.Name] = p.Text
	}
	for _, name := range helped {
		if name == "daemon run" {
			continue // hidden
		}
		file := strings.TrimSuffix("carboy-"+strings.ReplaceAll(name, " ", "-"), "-") + ".1"
		page, ok := pages[file]
		if !ok {
			t.Errorf("there is no %s", file)
			continue
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"} {
			if !strings.Contains(page, "\n.SH "+section+"\n") {
				t.Errorf("%s has no section %s", file, section)
			}
		}
		_, help, _ := mainWithout(append(strings.Fields(name), "--help")...)
		for word := range strings.FieldsSeq(help) {
			if flag, ok := strings.CutPrefix(word, "--"); ok && flag != "" && strings.Trim(flag, "abcdefghijklmnopqrstuvwxyz-") == "" &&
				!strings.Contains(page, `\-\-`+strings.ReplaceAll(flag, "-", `\-`)) {
				t.Errorf("%s lacks --%s", file, flag)
			}
		}
		requests := []string{"TH", "SH", "TP", "BR", "nf", "fi"}
		for line := range strings.Lines(page) {
			if request, ok := strings.CutPrefix(strings.TrimSpace(line), "."); ok && !slices.Contains(requests, strings.Fields(request + " ?")[0]) {
				t.Errorf("%s: %q is taken for a request", file, line)
			}
		}
	}
	if _, ok := pages["carboy-daemon-run.1"]; ok {
		t.Error("a hidden command has a page")
	}
}

// TestPlacesAreDocumented: docs/cli.md names what the man pages do.
func TestPlacesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	page := cli.Manual("v1.2.3", "2026-01-02")[0].Text
	names := 0
	for line := range strings.Lines(page[strings.Index(page, ".SH ENVIRONMENT"):]) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), `\fB`); ok {
			names++
			if name = strings.TrimSuffix(name, `\fR`); !strings.Contains(string(doc), name) {
				t.Errorf("docs/cli.md does not name %s", name)
			}
		}
	}
	if names < 8 {
		t.Errorf("the page has %d places", names)
	}
}

// TestCompletionsLoad has each shell that is here read its script.
func TestCompletionsLoad(t *testing.T) {
	use := map[string][]string{
		"carboy":      {"bash", "-c", `. "$0" && complete -p carboy`},
		"_carboy":     {"zsh", "-f", "-c", `autoload -U compinit && compinit -D && . "$0" && whence _carboy`},
		"carboy.fish": {"fish", "-c", `source $argv[1]; complete -c carboy | string match -q '*carboy*'`},
	}
	pages := cli.Completions()
	if len(pages) != len(use) {
		t.Errorf("there are %d scripts", len(pages))
	}
	for _, p := range pages {
		t.Run(p.Name, func(t *testing.T) {
			args := use[p.Name]
			if len(p.Text) < 1000 || !strings.Contains(p.Text, "__complete") {
				t.Fatalf("no script: %.100q", p.Text)
			}
			if _, err := exec.LookPath(args[0]); err != nil {
				return // the machine's shells are its own affair
			}
			file := filepath.Join(t.TempDir(), p.Name)
			if err := os.WriteFile(file, []byte(p.Text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(args[0], append(args[1:], file)...).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
