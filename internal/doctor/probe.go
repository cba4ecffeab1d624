package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/role"
)

// roleProbe is the name by which this binary is executed again for a probe.
const roleProbe = "carboy-doctor-probe"

// Roles are those of this package.
func Roles() role.Table {
	return role.Table{roleProbe: func() error { return probeMain(os.Args[1:], os.Stdin, os.Stdout) }}
}

// probes are what children try. Each runs on one thread of a process that
// does nothing else.
var probes = map[string]func(in io.Reader, args []string) error{
	"root":     probeRoot,
	"mount":    probeMount,
	"overlay":  probeOverlay,
	"proc":     probeProc,
	"disk":     probeDisk,
	"seccomp":  probeSeccomp,
	"no-new":   probeNoNewPrivs,
	"landlock": probeLandlock,
	"ptrace":   probePtrace,
	"become":   probeBecome,
	"tap":      probeTAP,
	"wait":     probeWait,
}

// failure is a probe's error: what it did when it failed.
type failure struct {
	Step  string        `json:"step"` // "mount an overlay"
	Errno syscall.Errno `json:"errno,omitempty"`
	Text  string        `json:"text,omitempty"` // where there is no errno
}

func (f *failure) Error() string {
	if f.Errno != 0 {
		return f.Step + ": " + f.Errno.Error()
	}
	return f.Step + ": " + f.Text
}

func (f *failure) Unwrap() error {
	if f.Errno != 0 {
		return f.Errno
	}
	return nil
}

// step is nil where err is, and else a failure of what was done.
func step(what string, err error) error {
	if err == nil {
		return nil
	}
	f := &failure{Step: what, Text: err.Error()}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = errno
	}
	return f
}

// verdict is what a probe writes.
type verdict struct {
	Done    bool     `json:"done"`
	Failure *failure `json:"failure,omitempty"`
}

func probeMain(args []string, in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	var probe func(io.Reader, []string) error
	if len(args) > 0 {
		probe = probes[args[0]]
	}
	if probe == nil {
		return role.Code(2)
	}
	v := verdict{Done: true}
	if err := probe(in, args[1:]); err != nil {
		f, ok := errors.AsType[*failure](err)
		if !ok {
			f = &failure{Step: args[0], Text: err.Error()}
		}
		v.Failure = f
	}
	if json.NewEncoder(out).Encode(v) != nil {
		return role.Code(1)
	}
	return nil
}

// child is a probe that runs.
type child struct {
	name     string
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      bytes.Buffer
	err      bytes.Buffer
	finished bool
}

// startChild begins the step of a probe that could not even be begun.
const startChild = "start a child in "

// childless reports whether err says that no child could be had in its
// namespaces: what it was to try is then not what is missing.
func childless(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && strings.HasPrefix(f.Step, startChild)
}

// maxSaid bounds what is kept of a child's last words.
const maxSaid = 300

// begin starts a probe in new namespaces, its own user as root of a user
// namespace where there is one.
func (m *machine) begin(ctx context.Context, flags uintptr, args ...string) (*child, error) {
	attr := &syscall.SysProcAttr{Cloneflags: flags, Setsid: true}
	if flags&syscall.CLONE_NEWUSER != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return m.beginWith(ctx, attr, args...)
}

// beginUnmapped starts a probe in a user namespace without ids, all of whose
// capabilities it keeps.
func (m *machine) beginUnmapped(ctx context.Context, args ...string) (*child, error) {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Setsid: true}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		attr.AmbientCaps = append(attr.AmbientCaps, c)
	}
	return m.beginWith(ctx, attr, args...)
}

func (m *machine) beginWith(ctx context.Context, attr *syscall.SysProcAttr, args ...string) (*child, error) {
	c := &child{name: args[0], cmd: role.Command(ctx, roleProbe, args)}
	c.cmd.Env = append(c.cmd.Env, "PATH="+toolPath())
	c.cmd.Dir = "/"
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	c.cmd.WaitDelay = grace / 2
	c.cmd.SysProcAttr = attr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, step("start a child", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, step(startChild+namespaces(attr.Cloneflags), err)
	}
	return c, nil
}

// end closes the child's input, waits, and returns what it found.
func (c *child) end(ctx context.Context) error {
	c.finished = true
	_ = c.in.Close() // it may have ended, and then wants none
	werr := c.cmd.Wait()
	if ctx.Err() != nil {
		return step("wait for the "+c.name+" probe", context.Cause(ctx))
	}
	var v verdict
	if err := json.Unmarshal(c.out.Bytes(), &v); err != nil || !v.Done {
		said := strings.TrimSpace(c.err.String())
		if len(said) > maxSaid {
			said = said[:maxSaid]
		}
		return &failure{Step: "run the " + c.name + " probe", Text: fmt.Sprintf("it ended without an answer (%v) %s", werr, said)}
	}
	if v.Failure != nil {
		return v.Failure
	}
	return nil
}

// kill ends a child whose answer nobody wants, if it still runs.
func (c *child) kill() {
	if c.finished {
		return
	}
	c.finished = true
	_ = c.cmd.Process.Kill() // it may have ended by itself
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// probe runs a probe to its end.
func (m *machine) probe(ctx context.Context, flags uintptr, args ...string) error {
	c, err := m.begin(ctx, flags, args...)
	if err != nil {
		return err
	}
	return c.end(ctx)
}

// kinds are the namespaces of an instance, in the order in which they are named.
var kinds = []struct {
	flag         uintptr
	name, sysctl string
}{
	{syscall.CLONE_NEWUSER, "user", "user.max_user_namespaces"},
	{syscall.CLONE_NEWNS, "mount", "user.max_mnt_namespaces"},
	{syscall.CLONE_NEWPID, "pid", "user.max_pid_namespaces"},
	{syscall.CLONE_NEWNET, "network", "user.max_net_namespaces"},
	{syscall.CLONE_NEWIPC, "ipc", "user.max_ipc_namespaces"},
	{syscall.CLONE_NEWUTS, "uts", "user.max_uts_namespaces"},
}

func namespaces(flags uintptr) string {
	var names []string
	for _, k := range kinds {
		if flags&k.flag != 0 {
			names = append(names, k.name)
		}
	}
	switch len(names) {
	case 0:
		return "no namespace of its own"
	case 1:
		return "a " + names[0] + " namespace of its own"
	}
	return strings.Join(names, ", ") + " namespaces of its own"
}

// toolPath is where walls look for the tools that they run.
func toolPath() string {
	if p := os.Getenv("PATH"); p != "" {
		return p
	}
	return "/usr/sbin:/usr/bin:/sbin:/bin"
}

// soon bounds what is cleaned up after a check whose time may be over.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}
