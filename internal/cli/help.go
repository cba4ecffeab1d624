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

// helpGroups is the order in which carboy's own help shows its commands.
func helpGroups() [][]string {
	return [][]string{
		{"run", "create", "exec"},
		{"cp", "diff", "apply"},
		{"ls", "inspect", "logs", "stop", "pause", "start", "rm"},
		{"net", "policy", "secret", "key"},
		{"image", "snapshot", "template", "volume"},
		{"session", "langbot"},
		{"serve", "daemon", "doctor", "bench", "version", "completion", "help"},
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

// metavar is what stands for a flag's value in help.
func metavar(flag string) string {
	switch flag {
	case "name", "template":
		return "NAME"
	case "isolation":
		return "WALL[,WALL...]"
	case "only":
		return "NAME[,NAME...]"
	case "pull":
		return "WHEN"
	case "entrypoint":
		return "PROGRAM"
	case "image":
		return "IMAGE"
	case "snapshot", "build":
		return "ID"
	case "workspace":
		return "DIR[:rw|:ro]"
	case "mount":
		return "HOST:GUEST[:ro]"
	case "volume":
		return "NAME:PATH[:ro]"
	case "size":
		return "SIZE"
	case "inodes":
		return "N"
	case "user":
		return "USER"
	case "cpus", "pids", "rounds", "memory-mib":
		return "N"
	case "memory", "disk":
		return "SIZE"
	case "network":
		return "NETWORK"
	case "allow":
		return "WHAT"
	case "secret":
		return "NAME[=FROM]"
	case "team":
		return "TEAM"
	case "scope":
		return "SCOPE"
	case "path":
		return "DIR"
	case "address":
		return "ADDRESS"
	case "from-env":
		return "VAR"
	case "command", "start", "ready":
		return "COMMAND"
	case "env":
		return "KEY[=VALUE]"
	case "env-file", "api-key-file", "control-token-file", "tls-cert", "tls-key", "policy", "from-file", "file":
		return "FILE"
	case "label":
		return "KEY=VALUE"
	case "tag":
		return "TAG"
	case "build-arg":
		return "NAME=VALUE"
	case "ttl", "timeout":
		return "DURATION"
	case "cwd", "host-root", "mount-root", "subdir":
		return "DIR"
	case "session":
		return "KEY"
	case "profile":
		return "NAME"
	case "quota":
		return "SIZE"
	case "on-timeout":
		return "keep|reset"
	case "listen":
		return "HOST:PORT"
	}
	return "VALUE"
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
		if f.Value.Type() != "bool" {
			left += " " + metavar(f.Name)
		}
		lines = append(lines, line{left, f.Usage})
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
