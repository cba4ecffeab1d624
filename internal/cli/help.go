package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// docs is a command's help beyond its flags. A command keeps it in a closure,
// so that nothing is made before someone asks.
type docs struct {
	long     string   // sentences, without a line break at the end
	examples []string // what can be pasted
	exits    []exitDoc
}

// setHelp gives cmd the help text d.
func setHelp(cmd *cobra.Command, d docs) *cobra.Command {
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		// Help is asked for; where stdout is closed nothing can be done.
		_, _ = io.WriteString(cmd.OutOrStdout(), helpText(cmd, d))
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

func helpCommands(b *strings.Builder, cmd *cobra.Command) {
	title := "\ncommands:\n"
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(b, "%s  %-12s%s\n", title, c.Name(), c.Short)
			title = ""
		}
	}
}

func helpFlags(b *strings.Builder, cmd *cobra.Command) {
	type line struct{ left, right string }
	var lines []line
	width := 0
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		left := "    "
		if f.Shorthand != "" {
			left = "-" + f.Shorthand + ", "
		}
		left += "--" + f.Name
		arg, text := pflag.UnquoteUsage(f)
		if f.Value.Type() != "bool" {
			left += " " + arg
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0s" {
			text += " (default " + f.DefValue + ")"
		}
		lines = append(lines, line{left, text})
		width = max(width, len(left))
	})
	if len(lines) == 0 {
		return
	}
	b.WriteString("\nflags:\n")
	for _, l := range lines {
		fmt.Fprintf(b, "  %-*s  %s\n", width, l.left, l.right)
	}
}
