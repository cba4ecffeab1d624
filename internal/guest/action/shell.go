package action

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
)

// by is who signals, as far as a command's exit tells.
const by = "action"

// closeTime is how long a shell that was killed may take to be gone.
const closeTime = 15 * time.Second

// openShell starts the user's shell on a terminal; where that can't be started, sh.
func (c *call) openShell(q *action.OpenShellRequest) (_ any, err error) {
	if !validName(q.ShellID) {
		return nil, errors.New("shell_id has to be 1 to 64 of A-Z a-z 0-9 . _ -, and no . or .. alone")
	}
	size, err := sizeOf(q.Cols, q.Rows)
	if err != nil {
		return nil, err
	}
	a, dir, err := c.place(q.CWD)
	if err != nil {
		return nil, err
	}
	if err := c.s.shells.begin(q.ShellID); err != nil {
		return nil, err
	}
	var sh *shell
	defer func() { c.s.shells.opened(q.ShellID, sh) }()
	programs := []string{shellProgram}
	if base := path.Base(a.Shell); a.Shell != shellProgram && base != "nologin" && base != "false" { // which are no shells
		programs = []string{a.Shell, shellProgram}
	}
	for i, program := range programs {
		cmd, err := c.s.opts.Engine.Start(newID("shell"), process.Spec{
			Argv: []string{program}, Env: q.Env, Cwd: dir, Terminal: &size, Tag: "shell:" + q.ShellID,
		})
		if err != nil {
			return nil, err
		}
		exit, ended := cmd.Exit()
		if !ended || exit.Reason != process.NotStarted {
			sh = &shell{id: q.ShellID, cwd: dir, cmd: cmd, cols: int(size.Cols), rows: int(size.Rows)}
			break
		}
		if i == len(programs)-1 {
			return nil, errors.New(exit.Error)
		}
	}
	return sh.state(), nil
}

func (c *call) statusShell(q *action.ShellRequest) (any, error) {
	sh, err := c.s.shells.get(q.ShellID)
	if err != nil {
		return nil, err
	}
	return sh.state(), nil
}

func (c *call) listShells(*action.ListRequest) (any, error) {
	return action.ListShellsReply{Shells: c.s.shells.list()}, nil
}

// writeShell types something, and waits until the terminal has taken it.
func (c *call) writeShell(q *action.WriteShellRequest) (any, error) {
	sh, err := c.s.shells.get(q.ShellID)
	if err != nil {
		return nil, err
	}
	data := []byte(q.Input)
	if q.AppendNewline {
		data = append(data, '\n')
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.s.pace.write)
	defer cancel()
	switch _, err := sh.cmd.Input(ctx, process.Append, data, false); {
	case errors.Is(err, process.ErrInputClosed):
		return nil, fail(kindConflict, "shell %s has ended: it reads no more", q.ShellID)
	case c.ctx.Err() == nil && ctx.Err() != nil && err != nil:
		return nil, fail(kindUnavailable, "shell %s does not read: not all of the input was taken within %v", q.ShellID, c.s.pace.write)
	case err != nil:
		return nil, err
	}
	return action.WriteShellReply{
		Shell: sh.state(), InputLength: utf8.RuneCountInString(q.Input), AppendNewline: q.AppendNewline,
	}, nil
}

// signals are those that a request may name.
var signals = map[string]unix.Signal{
	"INT": unix.SIGINT, "TERM": unix.SIGTERM, "HUP": unix.SIGHUP, "QUIT": unix.SIGQUIT, "KILL": unix.SIGKILL,
}

// signalShell signals what runs in the foreground, or else the shell.
func (c *call) signalShell(q *action.SignalShellRequest) (any, error) {
	sh, err := c.s.shells.get(q.ShellID)
	if err != nil {
		return nil, err
	}
	sig, ok := signals[q.Signal]
	if !ok {
		return nil, fmt.Errorf("signal %.32q: it has to be INT, TERM, HUP, QUIT or KILL", q.Signal)
	}
	if err := sh.cmd.Signal(sig, false, by); errors.Is(err, process.ErrEnded) {
		return nil, fail(kindConflict, "shell %s has ended", q.ShellID)
	} else if err != nil {
		return nil, err
	}
	return action.SignalShellReply{Shell: sh.state(), Signal: q.Signal}, nil
}

// resizeShell changes the terminal's size.
func (c *call) resizeShell(q *action.ResizeShellRequest) (any, error) {
	sh, err := c.s.shells.get(q.ShellID)
	if err != nil {
		return nil, err
	}
	if q.Cols == 0 || q.Rows == 0 {
		return nil, errors.New("cols and rows are missing: a size has both")
	}
	size, err := sizeOf(q.Cols, q.Rows)
	if err != nil {
		return nil, err
	}
	if err = sh.resize(size); sh.ended() {
		return nil, fail(kindConflict, "shell %s has ended", q.ShellID)
	}
	if err != nil {
		return nil, err
	}
	return sh.state(), nil
}

func (sh *shell) resize(size jail.Size) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if err := sh.cmd.Resize(size); err != nil {
		return err
	}
	sh.cols, sh.rows = int(size.Cols), int(size.Rows)
	return nil
}

// closeShell ends a shell and all that it started, and forgets it.
func (c *call) closeShell(q *action.ShellRequest) (any, error) {
	sh, err := c.s.shells.get(q.ShellID)
	if err != nil {
		return nil, err
	}
	if err := sh.cmd.Signal(unix.SIGKILL, true, by); err != nil && !errors.Is(err, process.ErrEnded) {
		return nil, fmt.Errorf("end shell %s: %w", q.ShellID, err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, closeTime)
	defer cancel()
	select {
	case <-sh.cmd.Done():
	case <-ctx.Done():
		return nil, fmt.Errorf("end shell %s: %w", q.ShellID, context.Cause(ctx))
	}
	c.s.shells.forget(sh)
	return action.CloseShellReply{Shell: sh.state(), Closed: true}, nil
}
