package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

func (a *app) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps [flags] NAME",
		Short: "List the processes in a sandbox, and the commands that were left running",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.ps(ctx, svc, args[0])
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `What is shown is what the sandbox says itself: numbers are those that commands in
it see. The first 2,000 are listed, and 200 bytes of each command.
Above them are commands of carboy run and exec with --detach, those that have ended too,
with their exit codes, as far as the sandbox still knows them. carboy logs, attach, wait and
kill take their IDs.`,
		examples: []string{"carboy ps web", "carboy ps --json web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) ps(ctx context.Context, svc *client.Client, name string) error {
	list, err := svc.Processes(ctx, name)
	if err != nil {
		return err
	}
	commands, err := detachedIn(ctx, svc, name)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(struct {
			*api.Processes
			Commands []detached `json:"commands"`
		}{list, commands})
	}
	now := a.Now()
	if err := a.writeCommands(commands, now); err != nil {
		return err
	}
	if list.Total == 0 {
		a.Note(name + ": no process runs in it")
		return nil
	}
	var t console.Table
	t.Row("PID", "USER", "STARTED", "CPU", "RSS", "COMMAND")
	for _, p := range list.Processes {
		t.Row(strconv.Itoa(p.PID), p.User, console.Ago(p.StartedAt, now),
			(time.Duration(p.CPUMillis) * time.Millisecond).String(), term.FormatSize(p.RSS), p.Command)
	}
	if more := list.Total - len(list.Processes); more > 0 {
		a.Note("not listed: " + countProcesses(more))
	}
	return t.Write(a.Stdout)
}

func countProcesses(n int) string {
	if n == 1 {
		return "1 more process"
	}
	return fmt.Sprintf("%d more processes", n)
}

// writeCommands writes the table of commands that were left running, where there are any.
func (a *app) writeCommands(commands []detached, now time.Time) error {
	if len(commands) == 0 {
		return nil
	}
	var t console.Table
	t.Row("ID", "STATE", "STARTED", "COMMAND")
	for _, c := range commands {
		t.Row(c.ID, c.state(), console.Ago(c.StartedAt, now), console.Elide(strings.Join(c.Command, " "), maxShownCommand))
	}
	if err := t.Write(a.Stdout); err != nil {
		return err
	}
	return a.PrintLine("")
}

// maxShownCommand is how many characters of a command a table has.
const maxShownCommand = 60

// statsBeat is how often live figures are taken: over that long the share of
// processors is counted.
const statsBeat = time.Second

func (a *app) statsCommand() *cobra.Command {
	var noStream bool
	cmd := &cobra.Command{
		Use:   "stats [flags] [NAME...]",
		Short: "Show what sandboxes use, as it changes",
		Args:  cobra.ArbitraryArgs,
		RunE: a.asking(func(ctx context.Context, svc *client.Client, names []string) error {
			return a.stats(ctx, svc, names, noStream)
		}),
		ValidArgsFunction: a.completeName(-1),
	}
	cmd.Flags().BoolVar(&noStream, "no-stream", false, "once, and no more")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `Those that run are shown, or those that are named. On a terminal, and with --json, the
figures come anew each second until Ctrl-C; elsewhere they come once. CPU 100% is one
processor. They are the machine's, but for the number of processes. CACHE is what is kept
of files besides MEMORY: the machine takes it back when it needs to. --json writes an
object a line.`,
		examples: []string{"carboy stats", "carboy stats --no-stream web", "carboy stats --json web"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) stats(ctx context.Context, svc *client.Client, names []string, once bool) error {
	live := console.IsTerminal(a.Stdout)
	once = once || !live && !a.JSON
	before := map[string]api.Usage{}
	tick := time.NewTicker(statsBeat)
	defer tick.Stop()
	for round := 0; ; round++ {
		list, err := a.usages(ctx, svc, names)
		if err != nil {
			return err
		}
		if round > 0 || len(list) == 0 {
			if err := a.showStats(list, before, live && !once && round > 1); err != nil || once {
				return err
			}
		}
		clear(before)
		for _, u := range list {
			before[u.ID] = u
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// usages asks for the figures of the sandboxes that are named, or of all of one's own
// that run. One that ended meanwhile is left out, unless it was named.
func (a *app) usages(ctx context.Context, svc *client.Client, names []string) ([]api.Usage, error) {
	named := len(names) > 0
	if !named {
		list, err := svc.List(ctx, client.ListOptions{State: string(sandbox.StateRunning)})
		if err != nil {
			return nil, err
		}
		for _, sb := range list {
			names = append(names, sb.ID)
		}
	}
	var out []api.Usage
	for _, name := range names {
		u, err := svc.Usage(ctx, name)
		if err != nil && (named || ctx.Err() != nil) {
			return nil, err
		}
		if err == nil {
			out = append(out, *u)
		}
	}
	return out, nil
}

// stat is what --json writes of one sandbox.
type stat struct {
	api.Usage
	CPUPercent float64 `json:"cpu_percent"` // of one processor; -1: not known
}

// percent is what share of one processor a sandbox used since before; -1: not known.
func percent(u, before api.Usage) float64 {
	if u.CPUMillis < 0 && u.CPULoad < 0 {
		return -1
	}
	if u.CPUMillis < 0 {
		return 100 * u.CPULoad * u.CPUs
	}
	passed := u.Time.Sub(before.Time).Milliseconds()
	if before.ID == "" || passed <= 0 || u.CPUMillis < before.CPUMillis {
		return 0
	}
	return 100 * float64(u.CPUMillis-before.CPUMillis) / float64(passed)
}

func (a *app) showStats(list []api.Usage, before map[string]api.Usage, again bool) error {
	if a.JSON {
		for _, u := range list {
			if err := console.WriteJSONLine(a.Stdout, stat{u, percent(u, before[u.ID])}); err != nil {
				return err
			}
		}
		return nil
	}
	if again { // back to the top, over what was there
		if _, err := a.Stdout.Write([]byte("\x1b[H\x1b[J")); err != nil {
			return err
		}
	}
	list = slices.Clone(list)
	var t console.Table
	t.Row("NAME", "CPU", "MEMORY", "CACHE", "PIDS", "DISK", "SENT", "RECEIVED")
	of := func(n, most int64) string { return term.FormatSize(n) + " / " + term.FormatSize(most) }
	for _, u := range list {
		pids := "?"
		if u.PIDs >= 0 {
			pids = strconv.Itoa(u.PIDs)
		}
		cpu, memory, cache := "?", "? / "+term.FormatSize(u.MemoryMax), "?"
		if n := percent(u, before[u.ID]); n >= 0 {
			cpu = fmt.Sprintf("%.1f%%", n)
		}
		if u.Memory >= 0 {
			memory, cache = of(u.Memory, u.MemoryMax), term.FormatSize(u.MemoryCache)
		}
		t.Row(u.Name, cpu, memory, cache,
			fmt.Sprintf("%s / %d", pids, u.PIDsMax), of(u.Disk, u.DiskMax), term.FormatSize(int64(u.Sent)), term.FormatSize(int64(u.Received)))
	}
	return t.Write(a.Stdout)
}
