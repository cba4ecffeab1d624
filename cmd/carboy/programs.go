package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
	"github.com/carboy-sandbox/carboy/internal/doctor"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/program"
	"github.com/carboy-sandbox/carboy/internal/program/order"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// built says that this binary was built without the programs that it is to carry, as go
// install and go build do.
func built() error {
	if program.Built() {
		return nil
	}
	return sandbox.Errorf(sandbox.Unsupported,
		"this carboy was built without its daemon, as go install does: build it by make build, in a clone of its source").
		WithHint("make build")
}

// newOrder is what every program is told; those that it is handed are its descriptors from
// first on.
func newOrder(set *program.Set, first int) (o order.Order, handed []*os.File) {
	o = order.Order{Version: version, Programs: map[string]order.Program{}}
	o.Exe, _ = os.Executable() // only a hint names it
	for i, name := range order.Handed() {
		o.Programs[name] = set.Handed(name, first+i)
		handed = append(handed, set.File(name))
	}
	return o, handed
}

// daemonProgram opens the program of a daemon in the background.
func daemonProgram(ctx context.Context, dirs home.Dirs) (*reach.Program, error) {
	set, err := program.Open(ctx, dirs)
	if err != nil {
		return nil, err
	}
	o, handed := newOrder(set, reach.FirstFile)
	o.Serve.Background = true
	env, err := o.Environ()
	path, perr := set.Path(order.Daemon)
	if err = errors.Join(err, perr); err != nil {
		return nil, errors.Join(err, set.Close())
	}
	p := &reach.Program{
		Path: path, Args: []string{order.RoleServe, "run"}, Env: []string{env},
		Files: handed, Close: set.Close,
	}
	if set.Note != "" {
		p.Notes = []string{set.Note}
	}
	return p, nil
}

// serve becomes the daemon.
func serve(ctx context.Context, s cli.ServeOptions) error {
	if err := built(); err != nil {
		return err
	}
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	if err := dirs.Create(); err != nil {
		return err
	}
	set, err := program.Open(ctx, dirs)
	if err != nil {
		return err
	}
	if set.Note != "" {
		fmt.Fprintln(os.Stderr, "carboy: "+set.Note)
	}
	o, handed := newOrder(set, 0)
	for i, name := range order.Handed() { // in its own process, they keep their numbers
		o.Programs[name] = set.Handed(name, int(handed[i].Fd()))
	}
	o.Serve = s
	env, err := o.In(os.Environ())
	path, perr := set.Path(order.Daemon)
	if err = errors.Join(err, perr); err != nil {
		return errors.Join(err, set.Close())
	}
	for _, f := range handed {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("hand down %s: %w", f.Name(), err)
		}
	}
	err = unix.Exec(path, []string{order.RoleServe, "serve"}, env)
	return errors.Join(fmt.Errorf("execute %s: %w", order.Daemon, err), set.Close())
}

// leavePatience is for a program that was told to end.
const leavePatience = 30 * time.Second

// ask runs a role of the daemon's program to its end, and returns what it wrote. A signal
// to this process is one to it, and it ends with this process.
func ask(ctx context.Context, name string, fill func(*order.Order), take func(*exec.Cmd) error) error {
	if err := built(); err != nil {
		return err
	}
	dirs, err := home.Find(os.Getenv, os.Getuid())
	if err != nil {
		dirs = home.Dirs{} // the role says so
	}
	set, err := program.Borrow(dirs)
	if err != nil {
		return err
	}
	defer set.Close()
	const first = 3
	o, handed := newOrder(set, first)
	fill(&o)
	env, err := o.In(os.Environ())
	path, perr := set.Path(order.Daemon)
	if err = errors.Join(err, perr); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Args, cmd.Env = []string{name}, env
	cmd.ExtraFiles = handed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // a terminal's signals come by this process
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = leavePatience
	words := &role.Words{}
	cmd.Stderr = words
	runtime.LockOSThread() // the kernel takes the end of the thread for that of the process
	defer runtime.UnlockOSThread()
	if err := take(cmd); err != nil {
		return words.Error(ctx, err)
	}
	return nil
}

// answer has a role that ask runs write to it.
func answer(read func(io.Reader) error) func(*exec.Cmd) error {
	return func(cmd *exec.Cmd) error {
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		rerr := read(out)
		return cmp.Or(cmd.Wait(), rerr)
	}
}

// diagnose tries what this machine can enforce.
func diagnose(ctx context.Context) (r doctor.Report, err error) {
	err = ask(ctx, order.RoleDoctor, func(*order.Order) {}, answer(func(out io.Reader) (err error) {
		r, err = doctor.Decode(out)
		return err
	}))
	return r, err
}

// login asks the user's Docker configuration about an image's registry.
func login(ctx context.Context, ref string) (l order.Login, err error) {
	err = ask(ctx, order.RoleLogin, func(o *order.Order) { o.Login = ref }, answer(func(out io.Reader) error {
		return json.NewDecoder(out).Decode(&l)
	}))
	return l, err
}

// uninstallHome ends all sandboxes of this home, whose daemon has left, and removes the
// home unless u keeps it.
func uninstallHome(ctx context.Context, u cli.UninstallOptions) error {
	return ask(ctx, order.RoleUninstall, func(o *order.Order) { o.Uninstall = u }, (*exec.Cmd).Run)
}
