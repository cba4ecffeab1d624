package box

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// The names by which this binary is executed again. A role is recognised by
// argv[0] alone: no argument of a user's command can select one.
const (
	roleChanges = "carboy-box-changes"
	roleSave    = "carboy-box-save"
	roleRemove  = "carboy-box-remove"
	roleUserNS  = "carboy-box-userns"
	roleUnpack  = "carboy-box-unpack"
)

// Role returns what to run where argv0 names a role of this package, and nil
// where it does not. The function that it returns ends the process.
func Role(argv0 string) func() {
	switch argv0 {
	case roleChanges:
		return func() { Exit(changesMain(os.Stdin, os.Stdout)) }
	case roleSave:
		return func() { Exit(saveMain(os.Stdin, os.Stdout)) }
	case roleRemove:
		return func() { Exit(removeMain(os.Stdin)) }
	case roleUnpack:
		return func() { Exit(unpackMain(os.Stdin, os.Stdout)) }
	case roleUserNS:
		return func() { os.Exit(0) } // killed before it gets here: only its user namespace is wanted
	}
	return nil
}

// ownStderr is where a role reports: a launcher gives os.Stderr away.
var ownStderr = os.Stderr

// Exit ends a role: with its error on standard error, if it has one.
func Exit(err error) {
	if err != nil {
		fmt.Fprintln(ownStderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// maxRoleError bounds what is kept of a role's last words.
const maxRoleError = 4096

// Run executes this binary again, as a role, in a mount namespace of its own
// and with an empty environment. Without root, that is in a user namespace
// too. The role gets in, and files from descriptor 3 on, and writes to out;
// where it fails, the error is what it said.
func (h *Host) Run(ctx context.Context, name string, in io.Reader, out io.Writer, files ...*os.File) error {
	cmd := exec.CommandContext(ctx, h.opts.Exe)
	cmd.Args = []string{name}
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, weak.Environ()...)
	stderr := &tailBuffer{limit: maxRoleError}
	kept := &keptError{w: out}
	cmd.Stdout, cmd.Stderr = kept, stderr
	cmd.ExtraFiles = files
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Setsid: true}
	if h.rootless != nil {
		h.rootless.attributes(cmd.SysProcAttr)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if h.rootless != nil {
		err = h.rootless.mapIDs(cmd.Process.Pid)
	}
	if err == nil { // it waits for its input
		_, err = io.Copy(stdin, in)
	}
	if errors.Is(err, syscall.EPIPE) { // it did not want it all; how it ends says why
		err = nil
	}
	err = errors.Join(err, stdin.Close())
	if werr := cmd.Wait(); werr != nil {
		if kept.err != nil { // the role only felt its pipe break
			return errors.Join(err, kept.err)
		}
		err = errors.Join(err, roleError(ctx, werr, stderr))
		// A role has only words, and gVisor's don't say why it ended.
		if ctx.Err() == nil && disk.Full(h.opts.State) {
			err = errors.Join(err, syscall.ENOSPC)
		}
	}
	return err
}

// Launch starts a command of this binary, which waits for its input. Without
// root, that is in a user namespace whose ids are those of a box, and in which
// it has all capabilities. After an error it does not run.
func (h *Host) Launch(cmd *exec.Cmd) error {
	if h.rootless == nil {
		return cmd.Start()
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	h.rootless.attributes(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return err
	}
	err := h.rootless.mapIDs(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

// keptError is a writer that remembers how it failed.
type keptError struct {
	w   io.Writer
	err error
}

func (k *keptError) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	if err != nil {
		k.err = err
	}
	return n, err
}

// roleError prefers what the role said to how it exited.
func roleError(ctx context.Context, err error, stderr *tailBuffer) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if msg := strings.TrimSpace(stderr.String()); msg != "" {
		return errors.New(msg)
	}
	return err
}

// tailBuffer keeps the last limit bytes that were written to it.
type tailBuffer struct {
	bytes.Buffer
	limit int
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > t.limit {
		p = p[len(p)-t.limit:]
	}
	if over := t.Len() + len(p) - t.limit; over > 0 {
		t.Next(over)
	}
	t.Buffer.Write(p)
	return n, nil
}
