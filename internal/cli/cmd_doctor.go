package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// doctorFlags are the flags of doctor.
type doctorFlags struct{ report bool }

func (a *app) doctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Try what this machine can enforce, and say how to mend it",
		Args:  exactArgs(),
		RunE: interruptible(func(ctx context.Context, _ []string) error {
			return a.doctor(ctx, f)
		}),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	a.addJSON(cmd.Flags())
	cmd.Flags().BoolVar(&f.report, "report", false, "write a text for a bug report, without names, paths of yours or variables")
	return setHelp(cmd, docs{
		long: `It tries everything for real, as the user who runs it: it starts a sandbox
behind each wall and runs a command in it, and another one with a network, from
which it tries to get out. It needs no daemon, starts none, and leaves nothing
behind but what the daemon keeps in its cache too.`,
		examples: []string{`carboy doctor`, `carboy doctor --report >report.txt`},
		exits: []exitDoc{
			{"0", "the default wall works, if weaker than it could be"},
			{"1", "the default wall can't be used"},
			{"125", "carboy failed, or was used wrongly"},
		},
	})
}

// exitUnfit is doctor's exit code on a machine without the default wall.
const exitUnfit = 1

func (a *app) doctor(ctx context.Context, f doctorFlags) error {
	switch {
	case f.report && a.JSON:
		return usage.Errorf("doctor: --report is a text: it can't go with --json")
	case a.env.Doctor == nil:
		return sandbox.Errorf(sandbox.Unsupported, "doctor: this program has no walls to try")
	}
	r, err := a.env.Doctor(ctx)
	if err != nil {
		return err
	}
	switch {
	case a.JSON:
		err = a.WriteJSON(doctorJSON{Works: r.Works(), Report: r})
	case f.report:
		_, err = console.Output(a.Stdout).Write([]byte(r.BugReport()))
	default:
		err = a.writeDiagnosis(r)
	}
	if err == nil && !r.Works() {
		err = &exit.Error{Code: exitUnfit}
	}
	return err
}

// doctorJSON is the answer of doctor --json.
type doctorJSON struct {
	Works bool `json:"works"` // the default wall
	doctor.Report
}

// writeDiagnosis writes a Report for a person: the walls, and what was tried
// under a heading for each area.
func (a *app) writeDiagnosis(r doctor.Report) error {
	var b strings.Builder
	d := diagnosis{b: &b, colour: console.IsTerminal(a.Stdout) && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb"}
	who := fmt.Sprintf("uid %d", r.UID)
	if r.Root {
		who = "root"
	}
	d.line("carboy %s, as %s, on Linux %s, %s, %s", r.Version, who, r.Kernel, r.Arch, r.OS)
	d.heading("walls")
	for _, name := range r.WallNames() {
		d.wall(name, r.Walls[name], name == r.Default)
	}
	area := ""
	for _, l := range r.Lines {
		if l.Area != area {
			area = l.Area
			d.heading(area)
		}
		d.mark(l.State, l.Title, l.Found)
		d.details(l.Details)
		if l.State == doctor.Weaker || l.State == doctor.Missing {
			d.under("so", l.Why)
			d.under("mend", l.Mend)
		}
	}
	_, err := io.WriteString(a.Stdout, b.String())
	return err
}

// diagnosis is a text that is being written. All that was found is escaped.
type diagnosis struct {
	b      *strings.Builder
	colour bool
}

func (d *diagnosis) line(format string, args ...any) {
	d.b.WriteString(console.Escape(fmt.Sprintf(format, args...)) + "\n")
}

func (d *diagnosis) heading(text string) {
	if d.colour {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	d.b.WriteString("\n" + text + "\n")
}

// doctorTitle is how wide the column of titles is, in characters.
const doctorTitle = 24

func (d *diagnosis) mark(s doctor.State, title, text string) {
	word := fmt.Sprintf("%-8s", s)
	if d.colour {
		word = map[doctor.State]string{doctor.OK: "\x1b[32m", doctor.Weaker: "\x1b[33m", doctor.Missing: "\x1b[31m"}[s] + word + "\x1b[0m"
	}
	fmt.Fprintf(d.b, "  %s %-*s %s\n", word, doctorTitle, console.Escape(title), console.Escape(text))
}

func (d *diagnosis) under(name, text string) {
	if text != "" {
		fmt.Fprintf(d.b, "%11s%s: %s\n", "", name, console.Escape(text))
	}
}

// maxDetails is how many details a person is shown; --json has all of them.
const maxDetails = 8

func (d *diagnosis) details(list []string) {
	for i, t := range list {
		if i == maxDetails {
			fmt.Fprintf(d.b, "%11s... and %d more\n", "", len(list)-i)
			return
		}
		fmt.Fprintf(d.b, "%11s%s\n", "", console.Escape(t))
	}
}

func (d *diagnosis) wall(name string, v doctor.Verdict, isDefault bool) {
	if isDefault {
		name += " (the default)"
	}
	switch v.State {
	case doctor.OK:
		d.mark(v.State, name, fmt.Sprintf("works: a command ran in a sandbox, %d ms from its start to its end", v.Millis))
	case doctor.Weaker:
		d.mark(v.State, name, fmt.Sprintf("works, with weaker promises: a command ran in a sandbox in %d ms", v.Millis))
		for _, w := range v.Weaker {
			d.under(w.Promise, w.Reason)
		}
	default:
		d.mark(v.State, name, "can't be used: "+v.Error)
		d.under("mend", v.Hint)
	}
}
