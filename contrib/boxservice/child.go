package boxservice

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// childGrace is what a child has to end in, after its input has, and after
	// it was asked to.
	childGrace   = 3 * time.Second
	maxChildLine = 4 << 10
)

// child is a runtime that is this process's own. It has a process group of its
// own, of which nothing is left once it has ended, however it did.
type child struct {
	rpc.Conn
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *os.File
	stderr *os.File
	done   chan struct{} // it was reaped
	once   sync.Once
	logs   sync.WaitGroup
}

// startChild starts a runtime, and speaks to it over its standard input and
// output.
func startChild(o Options) (rpc.Conn, error) {
	argv := o.Command
	if len(argv) == 0 {
		argv = []string{"carboy", "langbot", "serve", "--stdio"}
	}
	if o.Listen != "" {
		argv = append(slices.Clone(argv), "--listen", o.Listen)
	}
	env, err := childEnv(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c := &child{cmd: cmd, done: make(chan struct{})}
	// Pipes of cmd's own would be closed at its end, with what is in them yet.
	stdout, out, err1 := os.Pipe()
	stderr, errs, err2 := os.Pipe()
	stdin, err3 := cmd.StdinPipe()
	cmd.Stdout, cmd.Stderr = out, errs
	err = errors.Join(err1, err2, err3)
	if err == nil {
		err = cmd.Start()
	}
	out.Close()
	errs.Close()
	if err != nil {
		stdout.Close()
		stderr.Close()
		return nil, sandbox.Errorf(sandbox.Unavailable, "start box runtime: %w", err).
			WithHint("is %s installed, and on PATH?", argv[0])
	}
	c.stdin, c.stdout, c.stderr = stdin, stdout, stderr
	c.Conn = rpc.NewStdio(stdout, stdin, func() error { return nil })
	c.logs.Go(func() { logLines(o.Log, stderr) })
	go c.reap()
	return c, nil
}

func childEnv(o Options) ([]string, error) {
	env := o.Env
	if env == nil {
		env = os.Environ()
	}
	env = append(slices.Clone(env), langbot.EnvControlToken+"="+o.Token)
	if o.Instance != "" {
		env = append(env, langbot.EnvInstance+"="+o.Instance)
	}
	if o.Init != nil {
		config, err := json.Marshal(o.Init)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "init: %w", err)
		}
		env = append(env, langbot.EnvConfig+"="+string(config))
	}
	return env, nil
}

// reap waits for the child's end, and then ends what it may have left in its
// group. It looks before it reaps: until then the group's ID is nobody else's.
// What was written until then is still read, but who has left the group, and
// keeps the pipes open, is not waited for.
func (c *child) reap() {
	defer close(c.done)
	pid := c.cmd.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	soon := time.Now().Add(childGrace)
	_, _ = c.stdout.SetReadDeadline(soon), c.stderr.SetReadDeadline(soon)
	_ = c.cmd.Wait()
}

// Close ends the child: by the end of its input, by SIGTERM, by SIGKILL.
func (c *child) Close() error {
	c.once.Do(func() {
		_ = c.stdin.Close()
		for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
			t := time.NewTimer(childGrace)
			select {
			case <-c.done:
				t.Stop()
				return
			case <-t.C:
				c.signal(signal)
			}
		}
		<-c.done
	})
	<-c.done
	_ = c.stdout.Close() // and with it what reads it
	c.logs.Wait()
	return c.stderr.Close()
}

// signal is for the child alone, where it still is: the others of its group
// are for it to end, and end with it at the latest.
func (c *child) signal(s unix.Signal) { _ = c.cmd.Process.Signal(s) }

// logLines logs what a child says, a line at a time and cut.
func logLines(log *slog.Logger, r io.Reader) {
	b := bufio.NewReaderSize(r, maxChildLine)
	for {
		line, more, err := b.ReadLine()
		if err != nil {
			return
		}
		log.Info("box runtime says", "line", string(line))
		for more && err == nil {
			_, more, err = b.ReadLine()
		}
	}
}

// dialSocket connects to a runtime that somebody else runs.
func dialSocket(ctx context.Context, via *http.Client, u string, header http.Header) (rpc.Conn, error) {
	ws, pings, err := dialWebSocket(ctx, via, u, header, "")
	if err != nil {
		return nil, err
	}
	return rpc.NewWebSocket(ws, rpc.WebSocketOptions{Pings: pings}), nil
}
