package jail

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
)

// Exit codes of a command that could not be started, as shells have them.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
)

// StartError says why a command could not be started.
type StartError struct {
	Code int    // CodeNotExecutable or CodeNotFound
	Msg  string // fit to be shown
	Dir  bool   // the working directory is what is wrong
	Err  error
}

// Error returns the message.
func (e *StartError) Error() string { return e.Msg }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// User is whom a command runs as.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
}

// Command is what to start.
type Command struct {
	Argv     []string // argv[0] is looked up in Env's PATH, with the user's rights
	Env      []string // NAME=VALUE
	Dir      string   // absolute
	User     User
	Files    [3]*os.File // standard input, output and error; what it gets, and nothing else
	Terminal bool        // make Files[0] its controlling terminal
	Cgroup   int         // an open cgroup v2 directory to be born in; 0: none
}

// Spawn starts a command in a session of its own. Where that fails for a
// reason of the command's own, the error is a *StartError.
func (j *Jail) Spawn(c Command) (*Process, Mark, error) {
	cell, w, err := j.worker(c.User.UID)
	if err != nil {
		return nil, 0, err
	}
	var mark Mark
	var ns *os.File
	if cell.mark != nil {
		if mark, ns, err = cell.newMark(); err != nil {
			return nil, 0, err
		}
	}
	var p *Process
	j.nursery.mu.RLock()
	defer j.nursery.mu.RUnlock()
	err2 := w.do(func() {
		if ns != nil {
			if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWUTS); err != nil {
				return
			}
		}
		p, err = j.fork(c)
	})
	if err = errors.Join(err2, err); err != nil {
		if ns != nil {
			_ = ns.Close()
		}
		return nil, 0, err
	}
	p.marked = ns
	j.born(p)
	if j.cfg.PIDNamespace {
		p.readInner()
	}
	return p, mark, nil
}

// fork runs on a worker's thread.
func (j *Jail) fork(c Command) (*Process, error) {
	file, err := lookup(c)
	if err == nil {
		err = settle(c, file)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Chdir("/") }()
	born := 0 // the cgroup
	h := hold{oomScore: j.cfg.OOMScore, files: j.cfg.Files}
	switch {
	case c.Cgroup > 0 && j.cfg.Strict && !j.clone3:
		if h.cgroup = c.Cgroup; !j.canHold {
			return nil, errors.New("commands can't be put in cgroups: kernel.yama.ptrace_scope is 3, which forbids to hold them; 2 would do")
		}
	case c.Cgroup > 0:
		born = c.Cgroup
	}
	if j.clone3 && h.files == 0 {
		h.oomScore = 0
	}
	pid, pidfd, err := bear(c, file, h.needed(), born)
	if err != nil && born > 0 && removed(born) { // by which one can't be told from a program that is not there
		return nil, &StartError{Code: CodeNotExecutable, Msg: goneGroup, Err: err}
	}
	if err != nil {
		return nil, explain(c, file, err)
	}
	if h.needed() {
		return h.release(pid, pidfd)
	}
	p := newProcess(pid, pidfd)
	if j.clone3 && j.cfg.OOMScore > 0 {
		// Not worth holding it: its memory has a limit of its own. One that has
		// ended by now can't be given any.
		late := make(chan struct{})
		go func() {
			defer close(late)
			_ = hold{oomScore: j.cfg.OOMScore}.apply(pid)
		}()
		<-late
	}
	return p, nil
}

const goneGroup = "the control group of commands was removed from outside: stop and start the sandbox"

// removed reports whether an open cgroup is one no more.
func removed(cgroup int) bool {
	err := unix.Faccessat(cgroup, "cgroup.procs", unix.F_OK, 0)
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV)
}

// bear forks a process that executes a command's program, and has nothing open by
// then but the command's files.
func bear(c Command, file string, traced bool, cgroup int) (pid, pidfd int, err error) {
	if open() {
		return forkOpen(c, file, traced, cgroup)
	}
	b, release, err := newBirth(c, file, traced, cgroup)
	if err != nil {
		return 0, -1, err
	}
	defer release()
	pid, pidfd, err = b.execute()
	runtime.KeepAlive(c.Files)
	return pid, pidfd, err
}

// settle puts the calling thread, and so the command that it forks, into the
// command's directory. The thread has all that the agent has open: the directory
// is not looked for through it, nor is the program, which could be the agent's own.
func settle(c Command, file string) error {
	var dirErr, fileErr error
	if err := as(c.User, func() {
		if dirErr = enterDir(c.Dir); dirErr == nil {
			fileErr = ownProgram(abs(c.Dir, file))
		}
	}); err != nil {
		return err
	}
	if dirErr != nil {
		return &StartError{
			Code: CodeNotExecutable, Dir: true, Err: dirErr,
			Msg: fmt.Sprintf("working directory %s: %s", c.Dir, words(dirErr)),
		}
	}
	if fileErr != nil {
		return &StartError{Code: CodeNotExecutable, Err: fileErr, Msg: fmt.Sprintf("%s: %s", c.Argv[0], words(fileErr))}
	}
	return nil
}

// lookup finds argv[0] as execvp would, with the user's own rights.
func lookup(c Command) (string, error) {
	name := c.Argv[0]
	if strings.Contains(name, "/") {
		return name, nil // found or not when it is executed
	}
	found, denied := "", error(nil)
	err := as(c.User, func() {
		for _, dir := range strings.Split(searchPath(c.Env), ":") {
			if !path.IsAbs(dir) {
				dir = path.Join(c.Dir, dir)
			}
			file := path.Join(dir, name)
			switch err := executable(file); {
			case err == nil:
				found = file
				return
			case errors.Is(err, unix.EACCES) && denied == nil:
				denied = err
			}
		}
	})
	switch {
	case err != nil:
		return "", err
	case found != "":
		return found, nil
	case denied != nil:
		return "", &StartError{Code: CodeNotExecutable, Msg: fmt.Sprintf("%s: permission denied", name), Err: denied}
	}
	return "", &StartError{Code: CodeNotFound, Msg: fmt.Sprintf("%s: command not found", name), Err: unix.ENOENT}
}

// searchPath returns the last PATH of an environment.
func searchPath(env []string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], "PATH="); ok {
			return v
		}
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// executable reports whether the thread's effective user may execute a file.
func executable(file string) error {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EACCES
	}
	return unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
}

// as runs f with a user's effective rights on the calling thread, whose real
// and saved ids stay root's.
func as(u User, f func()) error {
	if u.UID == 0 {
		f()
		return nil
	}
	if err := (rights.Identity{UID: u.UID, GID: u.GID, Groups: u.Groups}).Effective(); err != nil {
		return fmt.Errorf("act as user %d: %w", u.UID, err)
	}
	f()
	if err := (rights.Identity{}).Effective(); err != nil {
		return fmt.Errorf("act as root again: %w", err)
	}
	return nil
}

// explain tells what a failed fork or exec means to a caller.
func explain(c Command, file string, err error) error {
	fail := func(code int, format string, args ...any) error {
		return &StartError{Code: code, Msg: fmt.Sprintf(format, args...), Err: err}
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		var there error
		if asErr := as(c.User, func() { there = unix.Faccessat(unix.AT_FDCWD, abs(c.Dir, file), unix.F_OK, unix.AT_EACCESS) }); asErr == nil && there == nil {
			return fail(CodeNotFound, "%s: its interpreter is missing", c.Argv[0])
		}
		return fail(CodeNotFound, "%s: no such file", c.Argv[0])
	case errors.Is(err, unix.ENOTDIR):
		return fail(CodeNotFound, "%s: no such file", c.Argv[0])
	case errors.Is(err, unix.ENOEXEC):
		return fail(CodeNotExecutable, "%s: not a program for this machine, nor a script that begins with #!", c.Argv[0])
	case errors.Is(err, unix.E2BIG):
		return fail(CodeNotExecutable, "arguments and environment together are too long for the kernel (%d bytes)", size(c))
	case errors.Is(err, unix.EAGAIN):
		return fail(CodeNotExecutable, "%s: the sandbox has as many processes as it may", c.Argv[0])
	}
	return fail(CodeNotExecutable, "%s: %s", c.Argv[0], words(err))
}

func words(err error) string {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

func abs(dir, file string) string {
	if path.IsAbs(file) {
		return file
	}
	return path.Join(dir, file)
}

// size is what execve copies: each string and its terminator.
func size(c Command) int {
	n := 0
	for _, s := range c.Argv {
		n += len(s) + 1
	}
	for _, s := range c.Env {
		n += len(s) + 1
	}
	return n
}
