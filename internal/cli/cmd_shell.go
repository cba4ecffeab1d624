package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	actions "github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

const (
	// shellSignals are those that a shell's foreground can be sent.
	shellSignals = "INT, TERM, HUP, QUIT or KILL"
	// maxTyped is how much shell write reads of its input, in bytes: a request bounds it.
	maxTyped = 512 << 10
)

func (a *app) shellCommand() *cobra.Command {
	cmd := a.nounCommand("shell", "Keep interactive shells in a sandbox, and read them on by a cursor", "carboy shell open web")
	cmd.AddCommand(
		a.shellOpenCommand(), a.shellLsCommand(), a.shellReadCommand(), a.shellWriteCommand(),
		a.shellSignalCommand(), a.shellAttachCommand(), a.shellCloseCommand(),
	)
	return setHelp(cmd, docs{
		long: `A shell has a terminal of its own inside, and goes on without anybody who is attached:
what it writes is kept, and read from a cursor on. It outlives the daemon, and ends with
its sandbox. A sandbox may have many.`,
		examples: []string{
			"carboy shell open web --shell-id main",
			"carboy shell write web main 'make test'",
			"carboy shell read web main --plain --wait-for-idle 300ms",
		},
		exits: exitDocsPlain[:],
	})
}

type shellOpenOptions struct {
	id, cwd    string
	cols, rows int64
	env        launch.Env
}

func (a *app) shellOpenCommand() *cobra.Command {
	var o shellOpenOptions
	cmd := &cobra.Command{
		Use:   "open [flags] NAME",
		Short: "Open a shell in a sandbox, and print its id",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.shellOpen(ctx, svc, o, args[0])
		}),
		ValidArgsFunction: a.completeName(1),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.id, "shell-id", "", "`ID` call it that; one is made up otherwise")
	addCwd(fs, &o.cwd)
	fs.Var(countValue{&o.cols}, "cols", "`N` how wide its terminal is, in characters (default 120)")
	fs.Var(countValue{&o.rows}, "rows", "`N` how high its terminal is, in lines (default 30)")
	addEnv(fs, &o.env)
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `The id is the caller's to choose, and one whose shell is open is refused. A sandbox that
ended by itself is started again.`,
		examples: []string{"carboy shell open web", "carboy shell open web --shell-id main --cwd /workspace/src --cols 200"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) shellOpen(ctx context.Context, svc *client.Client, o shellOpenOptions, name string) error {
	req := actions.OpenShellRequest{ShellID: o.id, CWD: o.cwd, Cols: bounded(o.cols), Rows: bounded(o.rows)}
	if req.ShellID == "" {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		req.ShellID = "shell-" + hex.EncodeToString(b[:])
	}
	var err error
	if req.Env, err = o.env.Collect(a.LookupEnv); err != nil {
		return err
	}
	sh, err := svc.OpenShell(ctx, name, req)
	if err != nil {
		return err
	}
	return a.Answer(sh, sh.ShellID)
}

// bounded is n as a request has it, which refuses what is too much.
func bounded(n int64) int { return int(min(n, math.MaxInt32)) }

func (a *app) shellLsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [flags] NAME",
		Short: "List the shells of a sandbox, those that have ended too",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			list, err := svc.Shells(ctx, args[0])
			if err != nil {
				return err
			}
			return shellListing().show(a, list)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{examples: []string{"carboy shell ls web", "carboy shell ls web --json"}, exits: exitDocsPlain[:]})
}

func shellListing() *listing[actions.Shell] {
	return &listing[actions.Shell]{
		columns: []string{"SHELL", "STATE", "SIZE", "DIRECTORY", "STARTED"},
		row: func(s *actions.Shell, now time.Time) []string {
			return []string{
				s.ShellID, endedText(s.State, s.ExitCode), strconv.Itoa(s.Cols) + "x" + strconv.Itoa(s.Rows), s.CWD, console.Ago(unixTime(s.StartedAt), now),
			}
		},
	}
}

// endedText is a state, and the exit code of what has ended.
func endedText(state string, code *int) string {
	if code == nil {
		return state
	}
	return fmt.Sprintf("%s (%d)", state, *code)
}

// unixTime is a time of the action protocol: seconds since 1970.
func unixTime(s float64) time.Time {
	whole, part := math.Modf(s)
	return time.Unix(int64(whole), int64(part*1e9))
}

// ofShell wants a sandbox and a shell, and more where there are more names.
func (a *app) ofShell(use, short string, run func(ctx context.Context, svc *client.Client, args []string) error, more ...string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: exactArgs(append([]string{"NAME", "SHELL"}, more...)...),
		RunE:              a.asking(run),
		ValidArgsFunction: completePart(a, (*client.Client).Shells, func(s *actions.Shell) string { return s.ShellID }),
	}
}

// The most that a read may give and wait.
const (
	mostChars = 1 << 20
	mostIdle  = 10 * time.Minute
)

func (a *app) shellReadCommand() *cobra.Command {
	var cursor, chars int64
	var plain bool
	var idle time.Duration
	cmd := a.ofShell("read [flags] NAME SHELL", "Read what a shell wrote", func(ctx context.Context, svc *client.Client, args []string) error {
		switch { // the daemon would say so of what it calls them
		case chars > mostChars:
			return usage.Errorf("shell read: --max-chars %d: more than %d", chars, mostChars).WithHint("read on from the cursor that a read tells: --cursor")
		case idle > mostIdle:
			return usage.Errorf("shell read: --wait-for-idle %s: more than %s", idle, mostIdle)
		}
		return a.shellRead(ctx, svc, args[0], actions.ReadShellRequest{
			ShellID: args[1], Cursor: cursor, MaxChars: bounded(chars), Plain: plain, WaitForIdleMS: int(idle.Milliseconds()),
		})
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	addCursor(fs, &cursor)
	fs.Var(countValue{&chars}, "max-chars", "`N` read at most that many characters (default 65536)")
	fs.BoolVar(&plain, "plain", false, "leave colours and the like out, and apply carriage returns and backspaces")
	fs.Var(durationValue{&idle}, "wait-for-idle", "`DURATION` wait until it has written nothing for that long, such as 300ms")
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long: `Output goes to stdout, onto a terminal with control characters escaped; a line on stderr
says which cursor goes on from there. A cursor counts what the shell wrote, whatever
--plain leaves out of it: only 0, and one that a read has told, is a cursor.`,
		examples: []string{
			"carboy shell read web main",
			"carboy shell read web main --cursor 1042 --plain --wait-for-idle 300ms --json",
		},
		exits: exitDocsPlain[:],
	})
}

func addCursor(fs *pflag.FlagSet, cursor *int64) {
	fs.Var(offsetValue{cursor}, "cursor", "`CURSOR` begin there, where an earlier read ended (default 0, the beginning)")
}

// offsetValue is a flag that holds a whole number from 0 on.
type offsetValue struct{ n *int64 }

func (v offsetValue) String() string { return "" }
func (v offsetValue) Type() string   { return "number" }
func (v offsetValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a whole number from 0 on", s)
	}
	*v.n = n
	return nil
}

func (a *app) shellRead(ctx context.Context, svc *client.Client, name string, req actions.ReadShellRequest) error {
	reply, err := svc.ReadShell(ctx, name, req)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.WriteJSON(reply)
	}
	if reply.Cursor > req.Cursor {
		a.Note("what was written before is no longer kept")
	}
	out := console.Output(a.Stdout)
	if _, err := io.WriteString(out, reply.Output); err != nil {
		return err
	}
	console.Flush(out)
	if console.IsTerminal(a.Stdout) && reply.Output != "" && !strings.HasSuffix(reply.Output, "\n") {
		if err := a.PrintLine(""); err != nil {
			return err
		}
	}
	text := "the " + endedText(reply.State, reply.ExitCode) + " shell goes on at --cursor " + strconv.FormatInt(reply.NextCursor, 10)
	if reply.Truncated {
		text += ", and has written more"
	}
	a.Note(text)
	return nil
}

func (a *app) shellWriteCommand() *cobra.Command {
	var bare bool
	cmd := a.ofShell("write [flags] NAME SHELL TEXT", "Type something into a shell", func(ctx context.Context, svc *client.Client, args []string) error {
		return a.shellWrite(ctx, svc, args[0], args[1], args[2], !bare)
	}, "TEXT")
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&bare, "no-newline", "n", false, "type TEXT alone, without Enter behind it")
	a.addJSON(fs)
	return setHelp(cmd, docs{
		long:     "With - for TEXT it is read from stdin. It returns once the text is typed: carboy shell read shows what comes of it.",
		examples: []string{"carboy shell write web main 'make test'", "carboy shell write web main -n y", "carboy shell write web main - < answers.txt"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) shellWrite(ctx context.Context, svc *client.Client, name, id, text string, newline bool) error {
	if text == "-" {
		raw, err := io.ReadAll(io.LimitReader(a.Stdin, maxTyped+1))
		if err != nil {
			return fmt.Errorf("read stdin: %w", err)
		}
		text = string(raw)
	}
	switch {
	case len(text) > maxTyped:
		return usage.Errorf("shell write: the text has more than %d bytes", maxTyped).WithHint("carboy cp puts files into a sandbox")
	case !utf8.ValidString(text):
		return usage.Errorf("shell write: the text is not valid UTF-8")
	}
	reply, err := svc.WriteShell(ctx, name, actions.WriteShellRequest{ShellID: id, Input: text, AppendNewline: newline})
	if err != nil || !a.JSON {
		return err
	}
	return a.WriteJSON(reply)
}

func (a *app) shellSignalCommand() *cobra.Command {
	cmd := a.ofShell("signal [flags] NAME SHELL SIGNAL", "Signal what runs in a shell's foreground", func(ctx context.Context, svc *client.Client, args []string) error {
		reply, err := svc.SignalShell(ctx, args[0], args[1], strings.TrimPrefix(strings.ToUpper(args[2]), "SIG"))
		if err != nil || !a.JSON {
			return err
		}
		return a.WriteJSON(reply)
	}, "SIGNAL")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long:     "SIGNAL is " + shellSignals + ".",
		examples: []string{"carboy shell signal web main INT"},
		exits:    exitDocsPlain[:],
	})
}

func (a *app) shellCloseCommand() *cobra.Command {
	cmd := a.ofShell("close [flags] NAME SHELL", "End a shell, and all that it started", func(ctx context.Context, svc *client.Client, args []string) error {
		reply, err := svc.CloseShell(ctx, args[0], args[1])
		if err != nil || !a.JSON {
			return err
		}
		return a.WriteJSON(reply)
	})
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{examples: []string{"carboy shell close web main"}, exits: exitDocsPlain[:]})
}

func (a *app) shellAttachCommand() *cobra.Command {
	var cursor int64
	cmd := a.ofShell("attach [flags] NAME SHELL", "Join this terminal to a shell, until Ctrl-P Ctrl-Q", nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.shellAttach(cmd.Context(), args[0], args[1], cursor)
	}
	addCursor(cmd.Flags(), &cursor)
	return setHelp(cmd, docs{
		long: `What the shell wrote is shown from the cursor on, and keys go to it, Ctrl-C too. Its terminal
takes the size of this one. Ctrl-P and then Ctrl-Q, the next key, leave it as it is, however slowly: attach again, or read on.
It needs a terminal: without one, carboy shell read and carboy shell write are the way.`,
		examples: []string{"carboy shell attach web main"},
		exits: []exitDoc{
			{"N", "the shell's own, where it ended"},
			{"0", "detached, and the shell goes on"},
			{"125", "carboy failed, or was used wrongly"},
		},
	})
}

func (a *app) shellAttach(ctx context.Context, name, id string, cursor int64) error {
	if !console.IsTerminal(a.Stdin) || !console.IsTerminal(a.Stdout) {
		return relay.NoTerminal("shell attach", fmt.Sprintf("carboy shell read %s %s", shell.Word(name), shell.Word(id)))
	}
	svc, err := a.service(ctx)
	if err != nil {
		return err
	}
	r := relay.New(ctx, a.Console)
	defer r.Stop()
	end, err := r.AttachShell(svc, name, id, cursor)
	switch {
	case err != nil:
		return err
	case end == nil:
		a.Note(fmt.Sprintf("detached: carboy shell attach %s %s comes back", shell.Word(name), shell.Word(id)))
		return nil
	}
	if end.ExitCode != nil && *end.ExitCode != exit.OK {
		return &exit.Error{Code: *end.ExitCode & 0xff}
	}
	return nil
}

// completePart completes a sandbox's name, and then what one of its parts is called.
func completePart[T any](a *app, list func(*client.Client, context.Context, string) ([]T, error), name func(*T) string) completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return a.completeName(1)(cmd, args, word)
		}
		var names []string
		if len(args) == 1 {
			for _, one := range listed(cmd.Context(), a, func(svc *client.Client, ctx context.Context) ([]T, error) { return list(svc, ctx, args[0]) }) {
				names = append(names, name(&one))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
