package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/carboy-sandbox/carboy/internal/guest/mcpgateway/catalogue"
)

const (
	installLimit = 10 * time.Minute // for a clone, and for an install command
	startLimit   = time.Minute      // for a server to answer
	stopGrace    = 2 * time.Second
	maxLine      = 16 << 20 // bytes of one message of a server
	// protocol is what is spoken with servers. Later ones begin with a question
	// that servers of today do not all answer.
	protocol  = "2025-11-25"
	maxListed = 1000 // tools, prompts or resources of one server
	restarts  = 1
)

// backend is one server, and the process that it is now.
type backend struct {
	catalogue.Server
	g     *Gateway
	short string // what its names are prefixed with where they clash

	mu      sync.Mutex
	session *mcp.ClientSession // nil while it is down
	lists   sync.Mutex         // one reading of its lists at a time
	stale   atomic.Bool        // one more reading waits for its turn
}

// dir is where a server's repository is cloned to.
func (b *backend) dir() string {
	if b.Repo == "" {
		return b.g.o.Home
	}
	return filepath.Join(b.g.o.Home, ".mcp-gateway", "github", filepath.FromSlash(b.Repo))
}

// install clones the repository, where it is not there yet, and runs what
// installs the server.
func (b *backend) install(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	if b.Repo != "" {
		if _, err := os.Stat(b.dir()); errors.Is(err, os.ErrNotExist) {
			url := "https://github.com/" + b.Repo
			cmd := b.command(ctx, []string{"git", "clone", "--quiet", "--depth", "1", "--", url, b.dir()}, b.g.o.Home)
			if err := quoted(cmd); err != nil {
				return fmt.Errorf("clone %s: %w", url, err)
			}
		} else if err != nil {
			return err
		}
	}
	if b.Install == "" {
		return nil
	}
	if err := quoted(b.command(ctx, shell(b.Install), b.dir())); err != nil {
		return fmt.Errorf("install: %w", err)
	}
	return nil
}

func shell(command string) []string { return []string{"/bin/sh", "-c", command} }

// command is one to run as the servers' user, in a session of its own.
func (b *backend) command(ctx context.Context, argv []string, dir string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = b.g.o.Env
	for k, v := range b.Env {
		cmd.Env = append(cmd.Env[:len(cmd.Env):len(cmd.Env)], k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: b.g.o.Credential}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// quoted runs a command. The error has the end of what it wrote.
func quoted(cmd *exec.Cmd) error {
	var t tail
	cmd.Stdout, cmd.Stderr = &t, &t
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, t.String())
	}
	return nil
}

// start starts the server and shakes hands with it. gone is closed when it has
// ended.
func (b *backend) start(ctx context.Context) (gone <-chan struct{}, err error) {
	argv := b.Argv
	if b.Run != "" {
		argv = shell(b.Run)
	}
	run, kill := context.WithCancel(b.g.ctx)
	cmd := b.command(run, argv, b.dir())
	errs := &tail{next: b.g.log}
	cmd.Stderr = errs
	t, end, err := pipes(cmd)
	if err == nil {
		err = cmd.Start()
		end.Close()
	}
	if err != nil {
		kill()
		return nil, err
	}
	ended := make(chan struct{})
	b.g.work.Go(func() {
		_ = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind
		kill()
		close(ended)
	})
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	stop := context.AfterFunc(run, cancel)
	defer stop()
	client := mcp.NewClient(implementation, b.options())
	client.AddReceivingMiddleware(surviving)
	session, err := client.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil {
		kill()
		<-ended
		return nil, fmt.Errorf("it does not answer as an MCP server: %w: %s", err, errs)
	}
	b.mu.Lock()
	b.session = session
	b.mu.Unlock()
	down := make(chan struct{})
	b.g.work.Go(func() {
		_ = session.Wait()
		kill()
		<-ended
		close(down)
	})
	return down, nil
}

// pipes connects a command's input and output. What is returned beside the
// transport is the command's own end, to be closed once it runs.
func pipes(cmd *exec.Cmd) (mcp.Transport, io.Closer, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	// Not StdoutPipe: Wait closes that while there may be something to read.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Stdout = w
	return &mcp.IOTransport{Reader: r, Writer: in, MaxLineLength: maxLine}, w, nil
}

// running returns the session, where the server runs.
func (b *backend) running() (*mcp.ClientSession, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == nil {
		return nil, fmt.Errorf("server %s does not run", b.Name)
	}
	return b.session, nil
}

// keep follows a server until it has crashed too often.
func (b *backend) keep(gone <-chan struct{}) {
	for left := restarts; ; left-- {
		<-gone
		b.mu.Lock()
		b.session = nil
		b.mu.Unlock()
		if b.g.ctx.Err() != nil {
			return
		}
		if left == 0 {
			b.g.unlist(b)
			b.g.tell(slog.LevelError, b.Name, "the server ended again, and is not started any more")
			return
		}
		b.g.tell(slog.LevelWarn, b.Name, "the server ended, and is started again")
		var err error
		if gone, err = b.start(b.g.ctx); err != nil {
			b.g.unlist(b)
			b.g.tell(slog.LevelError, b.Name, "the server ended, and does not start again: "+err.Error())
			return
		}
		b.refresh(b.g.ctx)
	}
}

// tail keeps the end of what a program wrote, and hands it on.
type tail struct {
	mu   sync.Mutex
	end  []byte
	next io.Writer
}

const maxTail = 4 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if over := len(t.end) - maxTail; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	if t.next != nil {
		_, _ = t.next.Write(b) // a log that is full stops no server
	}
	return len(b), nil
}

// String returns it, or says that there is nothing.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.end) == 0 {
		return "it wrote nothing"
	}
	return string(t.end)
}
