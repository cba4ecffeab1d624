package reach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// ReadyVar names the descriptor on which a started daemon says that it
	// answers, or why it does not, in one api.Error.
	ReadyVar = "CARBOY_READY_FD"
	// ReadyFD is that descriptor.
	ReadyFD = 3

	startTimeout = 60 * time.Second
	// leavePatience is for a daemon that has the home and does not answer: it
	// begins, or it leaves. After a step one is started again.
	leavePatience = 20 * time.Second
	leaveStep     = 100 * time.Millisecond
	maxLeaveStep  = time.Second
	awaitStep     = 5 * time.Millisecond

	shakeTimeout = 20 * time.Second
	maxReady     = 64 << 10
)

// Starter starts a daemon where a home has none.
type Starter struct {
	Dirs home.Dirs
	// Program opens the daemon's, once Dirs are there.
	Program func(ctx context.Context) (*Program, error)
	Environ []string          // os.Environ, of which a daemon gets what it needs
	Version string            // of this program
	Notice  func(text string) // is told one line for the user
}

// Program is what a daemon is executed by.
type Program struct {
	Path  string   // in this process, and in its children
	Args  []string // with its name in front
	Env   []string // besides what a daemon keeps of Environ
	Files []*os.File
	Notes []string // lines for the user, once it is started
	Close func() error
}

// FirstFile is the number of the first of a Program's Files.
const FirstFile = ReadyFD + 1

// Ensure returns once a daemon answers that this program can talk to. It
// starts one where none does, and says so. A daemon that speaks another
// protocol is a Conflict; one of merely another version is a notice.
func (s Starter) Ensure(ctx context.Context) error {
	c, err := client.New(client.Options{Socket: Socket(s.Dirs)})
	if err != nil {
		return err
	}
	defer c.Close()
	v, err := s.shake(ctx, c)
	// One that was started may be told to leave at once, by another.
	for end := time.Now().Add(leavePatience); client.KindOf(err) == client.Unavailable; {
		if err = s.start(ctx); err != nil {
			return err
		}
		if v, err = s.shake(ctx, c); time.Now().After(end) {
			break
		}
	}
	if err != nil {
		return err
	}
	return s.compare(v)
}

func (s Starter) shake(ctx context.Context, c *client.Client) (*api.Version, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, shakeTimeout,
		sandbox.Errorf(sandbox.Internal, "the daemon at %s does not answer", Socket(s.Dirs)).WithHint("%s says why", logPath(s.Dirs)))
	defer cancel()
	return c.Version(ctx)
}

// compare is the handshake of versions.
func (s Starter) compare(v *api.Version) error {
	const way = "carboy daemon stop: the next command starts one of this version, and sandboxes go on"
	switch {
	case v.API != api.Current:
		return sandbox.Errorf(sandbox.Conflict, "the daemon is carboy %s and speaks protocol %d; this is %s, with protocol %d",
			v.Version, v.API, s.Version, api.Current).WithHint("%s", way)
	case v.Version != s.Version:
		s.Notice(fmt.Sprintf("the daemon is carboy %s, this is %s: %s", v.Version, s.Version, way))
	}
	return nil
}

// start starts a daemon and waits until it answers. Where another starts one
// at the same time, that one is as good; one that is about to leave is waited
// for.
func (s Starter) start(ctx context.Context) error {
	if err := s.Dirs.Create(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		sandbox.Errorf(sandbox.Unavailable, "the daemon that was started does not answer").WithHint("%s says why", logPath(s.Dirs)))
	defer cancel()
	p, err := s.Program(ctx) // which may have to wait for others who unpack it
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }() // the daemon has its own
	end := time.Now().Add(leavePatience)
	for pause := leaveStep; ; pause = min(2*pause, maxLeaveStep) {
		pid, notes, err := s.launch(ctx, p)
		if err == nil {
			s.Notice(fmt.Sprintf("started a daemon (pid %d); it leaves when it has nothing to do", pid))
			for _, n := range notes {
				s.Notice(n)
			}
			return nil
		}
		if sandbox.KindOf(err) != sandbox.Conflict {
			return err
		}
		answers, aerr := s.await(ctx, pause)
		if answers || aerr != nil {
			return aerr
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// await waits, for at most limit, for the daemon of another to answer: it has
// the home, and will listen or be gone.
func (s Starter) await(ctx context.Context, limit time.Duration) (answers bool, err error) {
	end := time.NewTimer(limit)
	defer end.Stop()
	step := time.NewTicker(awaitStep)
	defer step.Stop()
	for {
		if c, err := home.Dial(ctx, Socket(s.Dirs)); err == nil {
			return true, c.Close()
		}
		select {
		case <-step.C:
		case <-end.C:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// launch runs the daemon of a program and reads what it says of itself.
func (s Starter) launch(ctx context.Context, p *Program) (pid int, notes []string, err error) {
	log, err := OpenLog(logPath(s.Dirs))
	if err != nil {
		return 0, nil, err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return 0, nil, fmt.Errorf("start a daemon: %w", err)
	}
	defer r.Close()
	cmd := s.command(p, log, w)
	// What this process's parent left open must not stay
	// open for as long as a daemon lives.
	if err := unix.CloseRange(ReadyFD, uint(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		w.Close()
		return 0, nil, fmt.Errorf("start a daemon: keep descriptors: %w", err)
	}
	err = cmd.Start()
	w.Close()
	if err != nil {
		e := sandbox.Errorf(sandbox.Unavailable, "the daemon could not be started").WithHint("carboy serve")
		e.Err = err
		return 0, nil, e
	}
	go func() { _ = cmd.Wait() }() // so that it is no zombie if it ends before this process
	notes, err = s.heed(ctx, r)
	return cmd.Process.Pid, append(p.Notes, notes...), err
}

// command is the daemon's: an environment of what it needs, a session of its
// own, no descriptor but its log, the pipe, and its program's.
func (s Starter) command(p *Program, log, ready *os.File) *exec.Cmd {
	return &exec.Cmd{
		Path: p.Path, Args: p.Args,
		Env: append(append(cleanEnv(s.Environ), p.Env...), ReadyVar+"="+strconv.Itoa(ReadyFD)),
		Dir: "/", Stdout: log, Stderr: log, ExtraFiles: append([]*os.File{ready}, p.Files...),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// cleanEnv keeps of an environment what says where things are, in which
// language, and whom to trust. Everything else may be a secret of one shell.
func cleanEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH", name == "HOME", name == "LANG", name == "SSL_CERT_FILE", name == "SSL_CERT_DIR", strings.HasPrefix(name, "XDG_"):
			out = append(out, kv)
		}
	}
	return out
}

// heed reads what a started daemon says, and what its user is to know: nothing but
// an end of file if it died.
func (s Starter) heed(ctx context.Context, r *os.File) (notes []string, err error) {
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b, err := io.ReadAll(io.LimitReader(r, maxReady))
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var e api.Error
	if err != nil || json.Unmarshal(b, &e) != nil {
		e := sandbox.Errorf(sandbox.Unavailable, "the daemon ended before it answered").WithHint("%s says why", logPath(s.Dirs))
		e.Err = err
		return nil, e
	}
	if e.Code != "" {
		return nil, &sandbox.Error{Kind: sandbox.Kind(e.Code), Msg: e.Message, Hint: e.Hint}
	}
	return nonEmptyLines(e.Message), nil
}

func nonEmptyLines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}
