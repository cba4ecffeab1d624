package secret

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Command is a command that mints a value.
type Command struct {
	UID  int // whose rights it is run with
	Argv []string
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Exec runs c in the root directory, with nothing but PATH and HOME in its
// environment, no input and no descriptors, and returns what it printed on
// stdout. When ctx ends, it and what it started in its process group are
// killed.
func Exec(ctx context.Context, c Command) ([]byte, error) {
	if err := foreignUser(c.UID); err != nil {
		return nil, err
	}
	id, err := lookUp(c.UID)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + searchPath, "HOME=" + id.home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() != c.UID {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id.uid, Gid: id.gid, Groups: id.groups}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bounded
	cmd.Stdout = &out
	// A helper that the command left running, with its stdout, is no failure.
	if err = cmd.Run(); errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if out.over {
		clear(out.b.Bytes())
		return nil, sandbox.Errorf(sandbox.Unavailable, "the secret's command printed more than %d bytes", MaxValue)
	}
	return out.b.Bytes(), err
}

var errOver = errors.New("too much output")

// bounded takes as much as a value may have, and its end of line.
type bounded struct {
	b    bytes.Buffer
	over bool
}

// Write implements io.Writer.
func (w *bounded) Write(p []byte) (int, error) {
	if w.b.Len()+len(p) > MaxValue+2 {
		w.over = true
		return 0, errOver
	}
	return w.b.Write(p)
}
