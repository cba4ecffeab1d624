package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// docs is a command's help beyond its flags: what --help and the man page say.
type docs struct {
	long     string   // sentences, without a line break at the end
	examples []string // what can be pasted
	exits    []exitDoc
}

// setHelp gives cmd the help text d. It only keeps what it is given: nothing is
// made of it before someone asks.
func setHelp(cmd *cobra.Command, d docs) *cobra.Command {
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		w := cmd.OutOrStdout()
		if page, ok := w.(*manPage); ok {
			page.docs = d
			return
		}
		// Help is asked for; where stdout is closed nothing can be done.
		_, _ = io.WriteString(w, helpText(cmd, d))
	})
	return cmd
}

func helpText(cmd *cobra.Command, d docs) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nusage:\n  %s\n", cmd.Short, cmd.UseLine())
	if d.long != "" {
		fmt.Fprintf(&b, "\n%s\n", d.long)
	}
	helpCommands(&b, cmd)
	helpFlags(&b, cmd)
	if len(d.examples) > 0 {
		b.WriteString("\nexamples:\n")
		for _, e := range d.examples {
			fmt.Fprintf(&b, "  %s\n", e)
		}
	}
	if len(d.exits) > 0 {
		b.WriteString("\nexit status:\n")
		for _, e := range d.exits {
			fmt.Fprintf(&b, "  %-5s%s\n", e.code, e.text)
		}
	}
	return b.String()
}

// helpGroups is the order in which carboy's own help shows its commands.
func helpGroups() [][]string {
	return [][]string{
		{"claude", "codex", "gemini", "opencode", "aider", "agent", "up", "init"},
		{"run", "create", "exec"},
		{"cp", "diff", "apply", "fetch", "sync"},
		{"forward", "open", "offer"},
		{"shell", "service"},
		{"ls", "inspect", "logs", "attach", "ps", "wait", "kill", "stats", "set", "stop", "pause", "start", "rm"},
		{"net", "policy", "approve", "git", "secret", "key", "project", "manifest"},
		{"image", "snapshot", "template", "volume", "workspace", "pod", "disk", "df", "prune"},
		{"session", "langbot"},
		{"serve", "daemon", "doctor", "version", "completion", "uninstall", "help"},
	}
}

func helpCommands(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString("\ncommands:\n")
	line := func(c *cobra.Command) { fmt.Fprintf(b, "  %-12s%s\n", c.Name(), c.Short) }
	if cmd.HasParent() {
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				line(c)
			}
		}
		return
	}
	for i, group := range helpGroups() {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, name := range group {
			if c, _, err := cmd.Find([]string{name}); err == nil && c != cmd {
				line(c)
			}
		}
	}
}

// valueOf splits a flag's usage: what stands for its value, which comes first
// and in backquotes, and what it does.
func valueOf(f *pflag.Flag) (name, does string) {
	name, does = pflag.UnquoteUsage(f)
	return name, strings.TrimPrefix(does, name+" ")
}

func helpFlags(b *strings.Builder, cmd *cobra.Command) {
	if cmd.Flags().HasAvailableFlags() {
		b.WriteString("\nflags:\n")
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		short := "    "
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ", "
		}
		value, does := valueOf(f)
		left := strings.TrimRight(short+"--"+f.Name+" "+value, " ")
		fmt.Fprintf(w, "  %s\t%s\n", left, does)
	})
	_ = w.Flush() // a Builder takes all
}

// exitDoc is one line of a command's section on its exit status.
type exitDoc struct{ code, text string }

// exitDocsPlain is the section of commands that run nothing.
var exitDocsPlain = [...]exitDoc{
	{"0", "done"},
	{"125", "carboy failed, or was used wrongly"},
}

// exitDocsCommand is the section of commands that run one.
var exitDocsCommand = [...]exitDoc{
	{"N", "the command's own; 128+S when signal S ended it"},
	{"124", "it ran into --timeout"},
	{"125", "carboy failed, or was used wrongly"},
	{"126", "the command can't be executed"},
	{"127", "there is no such command"},
	{"137", "out of memory, or killed"},
}
