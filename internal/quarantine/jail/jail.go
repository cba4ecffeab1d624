// Package jail runs the machine's git over what somebody hostile made: objects, packs and
// refs of a sandbox's.
//
// It does so as a role of this binary, which gives up its rights and becomes git. Landlock
// leaves it the repository and the objects that it is given, the system's programs, and one
// directory to fill; a filter of system calls leaves it no network and no other socket. It
// has no configuration, hook or attribute of anybody's, and neither the environment nor a
// descriptor of the process that asked. It starts no process, unless Work says so: then its
// helpers are behind the same walls, in the same session, and end with it.
//
// It refuses a kernel without Landlock, and a git that is too old to be strict.
package jail

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
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/seccomp"
	"github.com/carboy-sandbox/carboy/internal/rights"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

// roleReader gives up its rights and becomes git, over what a sandbox made.
const roleReader = "carboy-git-reader"

// Roles are those of this package.
func Roles() role.Table { return role.Table{roleReader: readerMain} }

// fdOrder is where a reader finds its order: its standard input is git's.
const fdOrder = 3

// order is what a reader is told.
type order struct {
	Git   string   `json:"git"`
	Args  []string `json:"args"`
	Env   []string `json:"env"`
	Dir   string   `json:"dir"`             // where it works
	Read  []string `json:"read"`            // what it reads
	Write string   `json:"write,omitempty"` // where it makes files; "" for nowhere
	Most  int64    `json:"most"`            // bytes of a file

	Helpers bool `json:"helpers,omitempty"` // it may start git again
}

const (
	maxOrder     = 64 << 10 // bytes, which a pipe holds
	readerMemory = 3 << 30  // bytes of its own
	readerFiles  = 1 << 10
	readerCPU    = 15 * 60 // seconds
)

// programs is where git and what it is linked with may lie.
var programs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/etc/ld.so.cache"}

// readerMain reads an order, gives up all rights that it does not need, and is git from
// then on.
func readerMain() error {
	in := os.NewFile(fdOrder, "order")
	var o order
	dec := json.NewDecoder(io.LimitReader(in, maxOrder))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&o); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	_ = in.Close() // a pipe that was read
	runtime.LockOSThread()
	if err := os.Chdir(o.Dir); err != nil {
		return err
	}
	if err := confine(o); err != nil {
		return err
	}
	return fmt.Errorf("become git: %w", syscall.Exec(o.Git, append([]string{"git"}, o.Args...), o.Env))
}

// confine takes from the calling thread, which becomes git, all that o does not name.
func confine(o order) error {
	for what, limit := range map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: readerFiles, unix.RLIMIT_FSIZE: uint64(o.Most),
		unix.RLIMIT_DATA: readerMemory, unix.RLIMIT_CPU: readerCPU,
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(what, &now); err != nil {
			return fmt.Errorf("read resource limit %d: %w", what, err)
		}
		limit = min(limit, now.Max)
		if err := unix.Setrlimit(what, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("set resource limit %d: %w", what, err)
		}
	}
	if weak.On(weak.ReaderFree) {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := leave(o.rules()); err != nil {
		return err
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	if o.Helpers {
		return seccomp.ConfineReaders()
	}
	return seccomp.ConfineReader()
}

// rules are the only files of which a reader has anything.
func (o order) rules() []rule {
	rules := []rule{{"/dev/null", useFile}, {"/dev/zero", useFile}, {"/dev/urandom", unix.LANDLOCK_ACCESS_FS_READ_FILE}, {o.Git, runTree}}
	for _, p := range programs {
		rules = append(rules, rule{p, runTree})
	}
	for _, p := range o.Read {
		rules = append(rules, rule{p, readTree})
	}
	if o.Write != "" {
		rules = append(rules, rule{o.Write, fillTree})
	}
	return rules
}

// dropCapabilities leaves root the right to read what belongs to others, which is what it
// reads a user's repository by.
func dropCapabilities() error {
	held, err := rights.Held()
	if err != nil {
		return err
	}
	const keep = 1 << unix.CAP_DAC_READ_SEARCH
	return rights.Capabilities{Effective: held.Effective & keep, Permitted: held.Permitted & keep}.Set()
}

// Git is git behind its walls, over one repository.
type Git struct {
	Path string   // of the program: see Find
	Dir  string   // the repository
	Read []string // what else is read, such as objects that it borrows
}

// Work is what one run of it reads, writes and may do.
type Work struct {
	In   io.Reader
	Out  io.Writer
	Fill string // a directory in which it makes files; "" for none
	Most int64  // bytes of such a file

	Helpers  bool   // it may start git again, behind the same walls, as upload-pack does
	Protocol string // of the wire, as GIT_PROTOCOL says it
}

// quiet has git ask nobody, obey nobody, and run nothing.
var quiet = []string{
	"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.attributesFile=/dev/null",
	"-c", "core.excludesFile=/dev/null", "-c", "core.pager=cat", "-c", "protocol.allow=never", "-c", "gc.auto=0",
	"-c", "maintenance.auto=false", "-c", "core.packedGitLimit=256m", "-c", "core.packedGitWindowSize=16m",
	"-c", "core.logAllRefUpdates=false", "-c", "submodule.recurse=false",
	"-c", "log.showSignature=false", "-c", "gpg.program=/bin/false",
}

// Strictly is an argument by which git index-pack looks at objects: what it only warns of
// elsewhere is an error.
const Strictly = "--strict=badFilemode=error,gitmodulesParse=error,gitattributesSymlink=error,gitignoreSymlink=error,mailmapSymlink=error"

// Quiet are arguments that have git ask nobody, obey nobody, and run nothing.
func Quiet() []string { return slices.Clone(quiet) }

// trusting are for a git behind walls alone, whose repository is carboy's own: objects that it
// borrows may be another's.
var trusting = slices.Concat(quiet, []string{"-c", "safe.directory=*"})

// Environment is all that git is told by it. GIT_ALLOW_PROTOCOL names none that there is,
// and goes before what any configuration allows: nothing is fetched, by no git.
func Environment(dir string) []string {
	return []string{
		"PATH=/usr/bin:/bin", "LC_ALL=C", "HOME=/nonexistent", "XDG_CONFIG_HOME=/nonexistent", "GIT_DIR=" + dir,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false", "GIT_PAGER=cat", "GIT_NO_REPLACE_OBJECTS=1",
		"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_OPTIONAL_LOCKS=0", "GIT_ADVICE=0",
	}
}

// Run is git with args. An error of git's own is an *Error.
func (g *Git) Run(ctx context.Context, w Work, args ...string) error {
	env := Environment(".")
	if w.Protocol != "" {
		env = append(env, "GIT_PROTOCOL="+w.Protocol)
	}
	raw, err := json.Marshal(order{
		Git: g.Path, Args: slices.Concat(trusting, args), Env: env, Dir: g.Dir,
		Read: append([]string{g.Dir}, g.Read...), Write: w.Fill, Most: w.Most, Helpers: w.Helpers,
	})
	if err != nil {
		return err
	}
	if len(raw) > maxOrder {
		return sandbox.Errorf(sandbox.Unsupported, "the repository borrows objects from more places than can be told")
	}
	told, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = told.Close(), tell.Close() }() // a pipe
	if _, err := tell.Write(raw); err != nil {
		return err
	}
	if err := tell.Close(); err != nil {
		return err
	}
	cmd := role.Command(ctx, roleReader, nil, told)
	// It does not outlive a fetch that is killed. Its parent, for the kernel, is this thread.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if w.Helpers { // they can't leave its group
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return finish(ctx, cmd, w.In, w.Out, endGroup)
}

// endGroup waits for the end of a process, and ends with it what is left of its group. Until
// the process is waited for once more, the group's number can't be another's.
func endGroup(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	_ = unix.Kill(-pid, unix.SIGKILL) // mostly nothing is left
}

// Finish runs a git to its end.
func Finish(ctx context.Context, cmd *exec.Cmd, in io.Reader, out io.Writer) error {
	return finish(ctx, cmd, in, out, func(int) {})
}

// finish is Finish, and calls then before it waits.
func finish(ctx context.Context, cmd *exec.Cmd, in io.Reader, out io.Writer, then func(pid int)) error {
	words := &role.Words{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, words
	cmd.WaitDelay = time.Second
	kept, _ := out.(*Bounded)
	err := cmd.Start()
	if err == nil {
		then(cmd.Process.Pid)
		err = cmd.Wait()
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case kept != nil && kept.over:
		return ErrOver
	}
	said := words.Error(ctx, err)
	if _, refusal := errors.AsType[*sandbox.Error](said); refusal {
		return said
	}
	g := &Error{Says: firstLine(said.Error())}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		g.Code, g.Silent = exit.ExitCode(), said == err //nolint:errorlint // words pass it on as it is
	}
	return g
}

// ErrOver is the error of a git that said more than it may.
var ErrOver = errors.New("git says more than can be read")

// Error is why git failed.
type Error struct {
	Says   string
	Code   int  // -1: it was ended
	Silent bool // it said nothing
}

// Error implements error.
func (e *Error) Error() string { return e.Says }

// firstLine is the first of a program's lines that says what was wrong.
func firstLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for _, mark := range []string{"error: ", "fatal: "} {
		for _, line := range lines {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), mark); ok {
				return rest
			}
		}
	}
	return lines[0]
}

// Output is Run for answers of at most limit bytes.
func (g *Git) Output(ctx context.Context, in io.Reader, limit int, args ...string) ([]byte, error) {
	out := &Bounded{Limit: limit}
	err := g.Run(ctx, Work{In: in, Out: out}, args...)
	return out.Bytes(), err
}

// Bounded keeps so many bytes, and fails for more.
type Bounded struct {
	Limit int

	buf  bytes.Buffer
	over bool
}

// Write implements io.Writer.
func (b *Bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > b.Limit {
		b.over = true
		return 0, errors.New("more than there may be")
	}
	return b.buf.Write(p)
}

// Bytes is what was kept.
func (b *Bounded) Bytes() []byte { return b.buf.Bytes() }

// String is Bytes as text.
func (b *Bounded) String() string { return b.buf.String() }

// Over reports whether there was more.
func (b *Bounded) Over() bool { return b.over }
