// Package sudo lets a sandbox's own user run commands as another from inside,
// root included, where the sandbox's maker could name root for any command
// anyway. No program gets rights that it had not when it started: the agent
// starts the command, as it starts those of the host, with the files of who
// asked. So the command is in a session of its own, and what its caller's
// limits, namespaces and control group are does not hold for it: the
// sandbox's do.
//
// It refuses everybody but the sandbox's user and root, and all that is beyond
// what sudo's commonest options ask for.
package sudo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/internal/guest/sudo/wire"
)

const (
	maxCalls    = 256 // at once
	askingTime  = 10 * time.Second
	standardFDs = 3
)

// Options configure a Server.
type Options struct {
	Engine *process.Engine
	Lookup func(name string) (account.Account, error)
	// User returns the user who may call, besides root and account.User.
	User func() string
	Log  *slog.Logger
}

// Server answers the calls of sudo.
type Server struct {
	o     Options
	l     *net.UnixListener
	ctx   context.Context // ends when the server closes
	end   context.CancelFunc
	calls chan struct{}
	tasks sync.WaitGroup
}

// Listen takes the address. Commands may run when it has.
func Listen(o Options) (*Server, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: wire.Address, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for sudo: %w", err)
	}
	s := &Server{o: o, l: l, calls: make(chan struct{}, maxCalls)}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.tasks.Go(s.serve)
	return s, nil
}

// Close ends the listening, and the calls with their commands.
func (s *Server) Close() error {
	err := s.l.Close()
	s.end()
	s.tasks.Wait()
	return err
}

func (s *Server) serve() {
	for {
		c, err := s.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for want of descriptors, most likely, which others give back
			s.o.Log.Warn("accept a call of sudo", "err", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		select {
		case s.calls <- struct{}{}:
			s.tasks.Go(func() {
				defer func() { <-s.calls }()
				defer c.Close()
				defer context.AfterFunc(s.ctx, func() { _ = c.Close() })()
				end := s.answer(c)
				_ = c.SetWriteDeadline(time.Now().Add(askingTime))
				_, _ = c.Write(end.Encode()) // the caller has gone if it fails
			})
		default:
			_, _ = c.Write(refusal("%d calls are under way: try again when one has ended", maxCalls).Encode())
			_ = c.Close()
		}
	}
}

// refusal is an End without a command.
func refusal(format string, args ...any) wire.End {
	return wire.End{Code: 1, Text: "sudo: " + fmt.Sprintf(format, args...)}
}

// answer does what one caller asks for.
func (s *Server) answer(c *net.UnixConn) wire.End {
	_ = c.SetReadDeadline(time.Now().Add(askingTime))
	req, files, err := receive(c)
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	if err != nil {
		return refusal("%v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	caller, holder, err := s.caller(c)
	if err != nil {
		return refusal("%v", err)
	}
	asked, err := parse(req.Args)
	if errors.Is(err, errUsage) && err.Error() == usage {
		return wire.End{Code: 1, Text: usage}
	} else if err != nil {
		return refusal("%v", err)
	}
	switch asked.info {
	case version:
		return wire.End{Shown: true, Text: "sudo of the Carboy guest agent"}
	case help:
		return wire.End{Shown: true, Text: usage}
	case list:
		return wire.End{Shown: true, Text: "User " + caller.Name + " may run the following commands here:\n    (ALL : ALL) NOPASSWD: ALL"}
	case validate:
		return wire.End{}
	}
	return s.run(peer{c, caller, holder}, asked, req, [standardFDs]*os.File(files))
}

// peer is who asks.
type peer struct {
	*net.UnixConn
	account account.Account
	holder  *process.Command // which asks, or one of whose processes does
}

// run starts the command and attends to it.
func (s *Server) run(c peer, asked call, req wire.Request, files [standardFDs]*os.File) wire.End {
	target, err := s.o.Lookup(asked.user)
	if err != nil {
		return refusal("%v", err)
	}
	callers := map[string]string{}
	for _, v := range req.Env {
		if name, value, ok := strings.Cut(v, "="); ok {
			callers[name] = value
		}
	}
	spec := process.Spec{Argv: asked.words(target, callers), User: asked.user, Cwd: req.Dir, Files: &files}
	spec.Env = asked.environment(callers, c.account, spec.Argv)
	if asked.login {
		spec.Cwd = target.Home
	}
	if asked.dir != "" {
		spec.Cwd = asked.dir
	}
	cmd, err := s.o.Engine.StartAnonymous(spec)
	if err != nil {
		return refusal("%v", err)
	}
	for _, f := range files {
		_ = f.Close() // the command has its own
	}
	var tasks sync.WaitGroup
	tasks.Go(func() { pass(c.UnixConn, cmd) })
	tasks.Go(func() { follow(c.holder, cmd) })
	<-cmd.Done()
	_ = c.CloseRead()
	tasks.Wait()
	exit, _ := cmd.Exit()
	if exit.Reason == process.NotStarted {
		return refusal("%s", exit.Error)
	}
	end := wire.End{Code: exit.Code}
	if exit.Error != "" {
		end.Text = "sudo: " + exit.Error
	}
	return end
}

// pass has the command get its caller's signals until it has ended. Where the
// caller has gone, the command goes as well.
func pass(c *net.UnixConn, cmd *process.Command) {
	var sig [1]byte
	for {
		n, err := c.Read(sig[:])
		select {
		case <-cmd.Done():
			return
		default:
		}
		if n == 0 || err != nil {
			_ = cmd.Signal(syscall.SIGKILL, true, "sudo")
			return
		}
		_ = cmd.Signal(syscall.Signal(sig[0]), false, "") // it has ended, or there is no such signal
	}
}

// follow ends the command with its holder where that is killed, whatever process keeps
// the connection by then. What a holder leaves running that ends by itself goes
// on.
func follow(holder, cmd *process.Command) {
	select {
	case <-cmd.Done():
		return
	case <-holder.Done():
	}
	if exit, _ := holder.Exit(); exit.Reason == process.Killed || exit.Reason == process.TimedOut {
		_ = cmd.Signal(syscall.SIGKILL, true, "sudo")
	}
}

// caller returns who asks, where that one may, and by which command.
func (s *Server) caller(c *net.UnixConn) (who account.Account, holder *process.Command, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return who, nil, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return who, nil, err
	}
	if cerr != nil {
		return who, nil, fmt.Errorf("tell who asks: %w", cerr)
	}
	holder, ok := s.o.Engine.Holding(int(cred.Pid))
	if !ok {
		return who, nil, errors.New("the process that asks is gone, or is of no command")
	}
	for _, name := range []string{account.Root, s.o.User(), account.User} {
		if a, err := s.o.Lookup(name); err == nil && a.UID == cred.Uid {
			return a, holder, nil
		}
	}
	return who, nil, fmt.Errorf("uid %d is not the sandbox's user, who alone may do this", cred.Uid)
}
