package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is a file of documentation that is made from the commands' own text.
type Page struct {
	Name string // of the file: carboy-net-log.1
	Text string
}

// Manual returns the man pages of carboy and of each of its commands that is not
// hidden, for that version and day (YYYY-MM-DD). The same arguments give the same
// bytes.
//
// They are written here, and not by a library: cobra's own generator takes texts
// for Markdown, which ours are not, and knows no exit status.
func Manual(version, day string) []Page {
	root := newApp(Env{}).rootCommand()
	return manualOf(nil, root, version, day)
}

func manualOf(pages []Page, cmd *cobra.Command, version, day string) []Page {
	if cmd.Hidden {
		return pages
	}
	m := &manPage{}
	cmd.Root().SetOut(m)
	_ = cmd.Help() // tells m what it says
	m.write(cmd, version, day)
	pages = append(pages, Page{Name: manName(cmd) + ".1", Text: m.b.String()})
	for _, c := range cmd.Commands() {
		pages = manualOf(pages, c, version, day)
	}
	return pages
}

// Completions returns the scripts that complete carboy's command line, named as the
// shells look for them.
func Completions() []Page {
	var pages []Page
	for _, s := range [][2]string{{"bash", "carboy"}, {"zsh", "_carboy"}, {"fish", "carboy.fish"}} {
		var b strings.Builder
		a := newApp(Env{Stdout: &b})
		root := a.rootCommand()
		root.SetArgs([]string{"completion", s[0]})
		_ = root.Execute() // it only writes to b
		pages = append(pages, Page{Name: s[1], Text: b.String()})
	}
	return pages
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is where a command's help leaves its text instead of printing it, and the
// page that is made of it, in the language of troff's man macros.
type manPage struct {
	docs docs
	b    strings.Builder
}

// Write drops what a command prints: its help is not asked for.
func (m *manPage) Write(p []byte) (int, error) { return len(p), nil }

// roff escapes a text: what is neither a request at the start of a line nor an
// escape, and hyphens that can be pasted.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, "~", `\(ti`, "^", `\(ha`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func (m *manPage) printf(format string, args ...any) { fmt.Fprintf(&m.b, format+"\n", args...) }
func (m *manPage) section(name string)               { m.printf(".SH %s", name) }

// item is a tagged paragraph: a term in bold, and what it is.
func (m *manPage) item(term, text string) { m.printf(".TP\n\\fB%s\\fR\n%s", roff(term), roff(text)) }

func (m *manPage) write(cmd *cobra.Command, version, day string) {
	name := manName(cmd)
	m.printf(".TH %q 1 %q %q \"User Commands\"", strings.ToUpper(name), day, "carboy "+version)
	m.section("NAME")
	m.printf("%s \\- %s", roff(name), roff(cmd.Short))
	m.section("SYNOPSIS")
	m.printf("\\fB%s\\fR", roff(cmd.UseLine()))
	if m.docs.long != "" {
		m.section("DESCRIPTION")
		m.printf("%s", roff(m.docs.long))
	}
	m.commands(cmd)
	m.options(cmd)
	if len(m.docs.examples) > 0 {
		m.section("EXAMPLES")
		m.printf(".nf\n%s\n.fi", roff(strings.Join(m.docs.examples, "\n")))
	}
	if len(m.docs.exits) > 0 {
		m.section("EXIT STATUS")
		for _, e := range m.docs.exits {
			m.item(e.code, e.text)
		}
	}
	m.section("ENVIRONMENT")
	for _, p := range environmentDocs() {
		m.item(p.name, p.text)
	}
	m.section("FILES")
	for _, p := range fileDocs() {
		m.item(p.name, p.text)
	}
	m.seeAlso(cmd)
}

func (m *manPage) commands(cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	m.section("COMMANDS")
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			m.item(c.Name(), c.Short)
		}
	}
}

func (m *manPage) options(cmd *cobra.Command) {
	if !cmd.Flags().HasAvailableFlags() {
		return
	}
	m.section("OPTIONS")
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, does := valueOf(f)
		term := strings.TrimRight("--"+f.Name+" "+value, " ")
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		m.item(term, does)
	})
}

// seeAlso names the command above and those below.
func (m *manPage) seeAlso(cmd *cobra.Command) {
	var others []string
	if cmd.HasParent() {
		others = append(others, manName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			others = append(others, manName(c))
		}
	}
	m.section("SEE ALSO")
	for i, o := range others {
		end := ","
		if i == len(others)-1 {
			end = ""
		}
		m.printf(".BR %s (1)%s", roff(o), end)
	}
}
