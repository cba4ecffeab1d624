package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/cli/relay"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// detached is what ps says of a command that was left running.
type detached struct {
	ID         string     `json:"id"`
	Command    []string   `json:"command"`
	State      string     `json:"state"` // "running" or "exited"
	ExitCode   *int       `json:"exit_code,omitempty"`
	Reason     string     `json:"reason,omitempty"` // why it did not end by itself, such as "out_of_memory"
	StartedAt  time.Time  `json:"started_at"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	OutputSize uint64     `json:"output_bytes"` // of stdout and stderr, what is no longer kept included
}

// reasons are the ends of a command that it did not choose.
var reasons = map[guestv1.Reason]string{
	guestv1.Reason_REASON_TIMED_OUT: "timed_out", guestv1.Reason_REASON_OUT_OF_MEMORY: "out_of_memory", guestv1.Reason_REASON_KILLED: "killed",
	guestv1.Reason_REASON_SIGNALLED: "signalled", guestv1.Reason_REASON_NOT_STARTED: "not_started",
}

// detachedIn lists the commands of a sandbox that nobody has to follow, the oldest first: those
// that run, and those that ended as far as the sandbox still knows them.
func detachedIn(ctx context.Context, svc *client.Client, name string) ([]detached, error) {
	resp, err := svc.Commands(name).List(ctx, connect.NewRequest(&guestv1.ListRequest{}))
	if err != nil {
		return nil, relay.RPCError(ctx, err)
	}
	list := []detached{}
	for _, p := range resp.Msg.GetProcesses() {
		if p.GetCommand().GetOrphanGraceMs() != 0 {
			continue
		}
		d := detached{
			ID: p.GetId(), Command: p.GetCommand().GetArgv(), State: "running", OutputSize: p.GetStdoutBytes() + p.GetStderrBytes(),
			StartedAt: time.UnixMilli(int64(p.GetStartedUnixMs())).UTC(),
		}
		if e := p.GetExit(); e != nil {
			code, ended := exit.Of(e), d.StartedAt.Add(time.Duration(e.GetDurationMs())*time.Millisecond)
			d.State, d.ExitCode, d.EndedAt, d.Reason = "exited", &code, &ended, reasons[e.GetReason()]
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(x, y detached) int { return x.StartedAt.Compare(y.StartedAt) })
	return list, nil
}

// state is how the table of ps has it.
func (d detached) state() string {
	if d.ExitCode == nil {
		return d.State
	}
	return fmt.Sprintf("%s (%d)", strings.ReplaceAll(cmp.Or(d.Reason, d.State), "_", " "), *d.ExitCode)
}

// lookWait bounds a look at the commands of a sandbox that is told of besides something
// else: a guest that does not answer must not be in the way.
const lookWait = 5 * time.Second

// leftRunning lists those commands of a sandbox that run and nobody has to follow; none where
// that can't be told.
func leftRunning(ctx context.Context, svc *client.Client, name string) []detached {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	sb, err := svc.Get(ctx, name)
	if err != nil || sb.State != string(sandbox.StateRunning) {
		return nil // to ask for its commands may start it
	}
	list, err := detachedIn(ctx, svc, name)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(list, func(d detached) bool { return d.ExitCode != nil })
}

// lostText says that commands which were left running ended with their sandbox.
func lostText(name string, list []detached) string {
	const most = 3
	var words []string
	for _, d := range list[:min(len(list), most)] {
		words = append(words, term.Escape(d.ID)+" ("+saidArgv(d.Command)+")")
	}
	if len(list) > most {
		words = append(words, "…")
	}
	return fmt.Sprintf("%s: %s left running ended, and what they wrote is gone, unless into files: %s", name,
		console.Count(len(list), "command"), strings.Join(words, ", "))
}

// lostCommand puts a hint in the place of the one that starts the sandbox again: that brings
// back no command.
func lostCommand(name string, err error) error {
	e, ok := errors.AsType[*sandbox.Error](err)
	word := shell.Word(name)
	switch {
	case !ok:
		return err
	case e.Kind == sandbox.Conflict && strings.HasPrefix(e.Hint, "carboy start "):
		return e.WithHint("commands and their output last until their sandbox stops; what happened to it: carboy logs %s", word)
	case e.Kind == sandbox.NotFound && e.Hint == "":
		return e.WithHint("carboy ps %s lists commands; those from before the sandbox was stopped are gone, and their output", word)
	}
	return err
}

// command finds a command of a sandbox by its ID.
func command(ctx context.Context, svc *client.Client, name, id string) (*guestv1.Process, error) {
	resp, err := svc.Commands(name).Get(ctx, connect.NewRequest(&guestv1.GetRequest{Id: id}))
	if err != nil {
		return nil, lostCommand(name, relay.RPCError(ctx, err))
	}
	return resp.Msg.GetProcess(), nil
}

func (a *app) killCommand() *cobra.Command {
	signal := "KILL"
	cmd := &cobra.Command{
		Use:   "kill [flags] NAME ID",
		Short: "End a command that runs in a sandbox, and all that it started",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 { // as others end what is a sandbox here
				name := shell.Word(args[0])
				return usage.Errorf("kill: ID is missing").WithHint("carboy ps %s lists commands; carboy stop %s ends all of them", name, name)
			}
			return exactArgs("NAME", "ID")(cmd, args)
		},
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			number, err := signalOf(signal)
			if err != nil {
				return err
			}
			return a.kill(ctx, svc, args[0], args[1], number)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().StringVarP(&signal, "signal", "s", signal, "`SIGNAL` send this one instead, such as TERM, to the command's process group alone")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `ID is what carboy exec --detach printed, and carboy ps NAME shows. Other signals than KILL go to
the command's process group, and the command may do with them what it likes: carboy wait
NAME ID waits for its end. carboy stop NAME ends all of a sandbox's.`,
		examples: []string{"carboy kill web 3f0c9a4471d2e86b", "carboy kill --signal TERM web 3f0c9a4471d2e86b"},
		exits: []exitDoc{
			{"0", "the signal was sent"},
			{"125", "carboy failed, or was used wrongly; the command has ended already"},
		},
	})
}

// signalOf reads a signal as kill(1) takes it: TERM, SIGTERM or 15.
func signalOf(text string) (unix.Signal, error) {
	name := strings.ToUpper(text)
	if n := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG")); n != 0 {
		return n, nil
	}
	var n int
	if _, err := fmt.Sscanf(text+" ", "%d ", &n); err == nil && n > 0 && unix.SignalName(unix.Signal(n)) != "" {
		return unix.Signal(n), nil
	}
	return 0, usage.Errorf("--signal: there is no signal %.40q", text).WithHint("kill -l lists them")
}

func (a *app) kill(ctx context.Context, svc *client.Client, name, id string, signal unix.Signal) error {
	p, err := command(ctx, svc, name, id)
	if err != nil {
		return err
	}
	if e := p.GetExit(); e != nil {
		return sandbox.Errorf(sandbox.Conflict, "command %s of %s has ended already, with exit code %d", id, name, exit.Of(e))
	}
	_, err = svc.Commands(name).Signal(ctx, connect.NewRequest(&guestv1.SignalRequest{
		Id: id, Signal: int32(signal), All: signal == unix.SIGKILL, By: "carboy kill",
	}))
	if err != nil {
		return relay.RPCError(ctx, err)
	}
	return nil
}

func (a *app) waitCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait [flags] NAME ID",
		Short: "Wait for a command in a sandbox, and end as it does",
		Args:  exactArgs("NAME", "ID"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			return a.wait(ctx, svc, args[0], args[1], timeout)
		}),
		ValidArgsFunction: a.completeName(1),
	}
	cmd.Flags().Var(durationValue{&timeout}, "timeout", "`DURATION` wait no longer than that; the command goes on")
	a.addJSON(cmd.Flags())
	return setHelp(cmd, docs{
		long: `ID is what carboy exec --detach printed, and carboy ps NAME shows. Of a command that has ended
already, how it ended is known for as long as the sandbox runs and few came after it. Nothing is
printed on stdout: carboy logs NAME ID has the output. Ctrl-C ends the waiting, and not the command.`,
		examples: []string{"carboy wait web 3f0c9a4471d2e86b"},
		exits: []exitDoc{
			{"N", "the command's own; 128+S when signal S ended it"},
			{"124", "it goes on after --timeout, or ran into its own"},
			{"125", "carboy failed, or was used wrongly"},
		},
	})
}

func (a *app) wait(ctx context.Context, svc *client.Client, name, id string, timeout time.Duration) error {
	p, err := command(ctx, svc, name, id)
	if err != nil {
		return err
	}
	end := p.GetExit()
	if end == nil {
		errLate := &exit.Error{Code: exit.TimedOut}
		waiting := ctx
		if timeout > 0 {
			var stop context.CancelFunc
			waiting, stop = context.WithTimeoutCause(ctx, timeout, errLate)
			defer stop()
		}
		if end, err = svc.Follow(waiting, name, id, client.ExecOptions{Notice: func(string) {}}); err != nil {
			if context.Cause(waiting) == error(errLate) {
				a.Note(fmt.Sprintf("command %s goes on after %v", id, timeout))
				return errLate
			}
			return err
		}
	}
	return relay.Report(a.Console, end, p.GetCommand(), a.limitsOf(ctx, svc, name, end))
}
