// Package process keeps one managed process in a session's sandbox: a program
// that speaks in lines over its standard input and output, to readers who come
// and go.
//
// The guest journals what the process writes; this end asks for it by offset,
// and lets the guest forget only what was delivered or is on this machine's
// disk. So each line arrives once and whole, whatever connection breaks, and
// though the daemon be killed in between; and a process that nobody reads is
// held back by its own pipe, with at most 1 MiB of its output in the sandbox
// and one line here. Its errors are read always, and the newest are shown.
//
// What is refused: a second reader beside the first, who waits instead; a line
// of more than 16 MiB, which is left out and said so. The values of the
// process's environment are sent to the guest and kept nowhere. What the guest
// answers is hostile: bounded, and never text of an error here.
package process

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// Errors of processes and of their attachments; each is a *sandbox.Error.
var (
	// ErrEnded says that the process has ended, and that all it wrote was read;
	// to one who writes, that it reads no more. It is an io.ErrClosedPipe.
	ErrEnded error = &sandbox.Error{Kind: sandbox.Conflict, Msg: "the managed process has ended", Err: io.ErrClosedPipe}
	// ErrGone says that the sandbox is not there any more.
	ErrGone error = &sandbox.Error{Kind: sandbox.Conflict, Msg: "the managed process has ended with its sandbox"}
	// ErrClosed says that the daemon is going; the process is not.
	ErrClosed error = &sandbox.Error{Kind: sandbox.Unavailable, Msg: "the daemon is shutting down"}
	// ErrTakenOver ends an attachment for another that took its place.
	ErrTakenOver error = &sandbox.Error{Kind: sandbox.Conflict, Msg: "another reader has taken over"}
	// ErrDetached is what a closed attachment answers.
	ErrDetached error = &sandbox.Error{Kind: sandbox.Conflict, Msg: "the attachment was closed"}
)

// defaultGrace is for how long a process that is stopped may take.
const defaultGrace = 5 * time.Second

// Guest is the agent of a sandbox, as *agent.Guest is.
type Guest interface {
	Run(ctx context.Context, cmd *guestv1.Command, out func(stderr bool, b []byte)) (*guestv1.Exit, error)
	Launch(ctx context.Context, id string, cmd *guestv1.Command) (*guestv1.Exit, error)
	Read(ctx context.Context, id string, r agent.Read) (agent.Output, error)
	Input(ctx context.Context, id string, offset int64, data []byte, eof bool) (acked int64, err error)
	Signal(ctx context.Context, id string, sig int, all bool, by string) error
	Look(ctx context.Context, id string) (*guestv1.Process, error)
	Close()
}

// Options are what a process is started, or found again, with.
type Options struct {
	SessionID string // as its owner calls it
	Spec      sessions.ProcessSpec
	User      string // inside; "": the sandbox's default
	// Dial connects to the sandbox's agent. Connections are made anew when they
	// break, for as long as the process is not given up.
	Dial agent.Dial
	// Guest is used in place of Dial. Close closes it.
	Guest Guest
	// Dir is a directory of the daemon's, for a small file for each process;
	// "": none, and after the daemon was killed lines may come again or be lost.
	Dir string
	// Grace is between the request to end and the kill; 0: 5 s.
	Grace time.Duration
	// OnExit is called once, from a goroutine of its own, after the process has
	// ended.
	OnExit func(sessions.ProcessInfo)
	// OnUse is called when lines pass, at most once a second.
	OnUse func()
	Log   *slog.Logger // default: discard
}

// Record is what another daemon finds the process again by. It holds no value
// of the environment.
type Record struct {
	Command   string               `json:"command"` // the ID inside
	Spec      sessions.ProcessSpec `json:"spec"`    // without its environment
	EnvKeys   []string             `json:"env_keys,omitempty"`
	StartedAt time.Time            `json:"started_at"`
	Stdout    int64                `json:"stdout"` // bytes of it that were delivered
	Stdin     int64                `json:"stdin"`  // bytes of it that were written
	ExitedAt  *time.Time           `json:"exited_at,omitempty"`
	ExitCode  *int                 `json:"exit_code,omitempty"` // nil: it runs, or is not known
	Stderr    string               `json:"stderr,omitempty"`    // the newest of it, once it has ended
	Notices   []string             `json:"notices,omitempty"`   // that were given by Notice
}

// Process is one managed process. Its methods may be called from several
// goroutines.
type Process struct {
	o       Options
	command string
	envKeys []string
	started time.Time
	notices []string // of its start
	guest   Guest
	log     *slog.Logger

	ctx    context.Context // ends with why this end of it is given up
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup

	out   output
	in    input
	line  queue
	errs  preview
	touch touch

	ended chan struct{} // closed when exit is set
	mu    sync.Mutex    // of what follows
	exit  *ending
	said  []string // by Notice
	last  position // what the ledger has
	book  *ledger
}

// ending is how a process ended.
type ending struct {
	at   time.Time
	code *int // nil: not known
}

func newProcess(o Options, command string) *Process {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	if o.Spec.ProcessID == "" {
		o.Spec.ProcessID = sessions.DefaultProcess
	}
	if o.Spec.Cwd == "" {
		o.Spec.Cwd = tools.WorkspacePath
	}
	p := &Process{
		o: o, command: command, guest: o.Guest,
		log:     o.Log.With("session", o.SessionID, "process", o.Spec.ProcessID),
		ended:   make(chan struct{}),
		envKeys: slices.Sorted(maps.Keys(o.Spec.Env)),
	}
	p.o.Spec.Env = nil
	if mb := o.Spec.MemoryMB; mb > 0 {
		p.notices = []string{fmt.Sprintf("memory_mb %d of this process is held by looking a few times a second; the session's own limit holds besides", mb)}
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.out.init()
	p.in.turn = make(chan struct{}, 1)
	p.in.quit, p.in.stop = context.WithCancelCause(p.ctx)
	if p.guest == nil {
		p.guest = agent.New(o.Dial)
	}
	return p
}

// Reattach finds a process again that another daemon has started; it does not
// wait for the guest. Spec of the options is not used.
func Reattach(o Options, r Record) (*Process, error) {
	o.Spec = r.Spec
	p := newProcess(o, r.Command)
	p.envKeys, p.started, p.said = r.EnvKeys, r.StartedAt, r.Notices
	p.last = position{out: r.Stdout}
	if err := p.open(); err != nil {
		return nil, err
	}
	p.resume()
	if r.ExitedAt != nil {
		p.errs.add([]byte(r.Stderr))
		p.exit = &ending{at: *r.ExitedAt, code: r.ExitCode}
		close(p.ended)
		return p, nil
	}
	p.tasks.Go(p.watch)
	return p, nil
}

// open opens the ledger.
func (p *Process) open() error {
	if p.o.Dir == "" {
		return nil
	}
	book, at, known, err := openLedger(p.ledgerPath())
	if err != nil {
		return err
	}
	if known {
		p.last = at
	}
	p.book = book
	return nil
}

func (p *Process) ledgerPath() string { return filepath.Join(p.o.Dir, p.command) }

// note keeps how far the lines have come.
func (p *Process) note(change func(*position)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.last)
	if err := p.book.write(p.last); err != nil {
		p.log.Warn("keep how far a process was read", "err", err)
	}
}

// Info describes the process.
func (p *Process) Info() sessions.ProcessInfo {
	i := sessions.ProcessInfo{
		SessionID: p.o.SessionID, ProcessID: p.o.Spec.ProcessID, Status: sessions.ProcessRunning,
		Command: p.o.Spec.Command, Args: slices.Clone(p.o.Spec.Args), Cwd: p.o.Spec.Cwd,
		EnvKeys: slices.Clone(p.envKeys), Attached: p.line.held(), StartedAt: p.started,
		StderrPreview: p.errs.text(), Notices: slices.Clone(p.notices),
	}
	if i.Args == nil {
		i.Args = []string{}
	}
	if i.EnvKeys == nil {
		i.EnvKeys = []string{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i.Notices = append(i.Notices, p.said...)
	if e := p.exit; e != nil {
		i.Status, i.ExitCode = sessions.ProcessExited, e.code
		at := e.at
		i.ExitedAt = &at
	}
	return i
}

// Size is how long what it was started with is, in bytes.
func (p *Process) Size() int { return request.ProcessBytes(p.o.Spec) }

// Notice has Info say something more. At most maxNotices are kept.
func (p *Process) Notice(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.said) < maxNotices {
		p.said = append(p.said, text)
	}
}

const maxNotices = 8

// Running reports whether the process has not ended, as far as is known.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Ended is closed once the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Record returns what to find the process again by. It is to be kept once
// after the start and once after the end; what changes in between is in Dir.
func (p *Process) Record() Record {
	r := Record{Command: p.command, Spec: p.o.Spec, EnvKeys: p.envKeys, StartedAt: p.started}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Stdout, r.Stdin, r.Notices = p.last.out, p.last.inEnd, slices.Clone(p.said)
	if e := p.exit; e != nil {
		at := e.at
		r.ExitedAt, r.ExitCode, r.Stderr = &at, e.code, p.errs.text()
	}
	return r
}

// Close ends the attachments and gives up what this end holds. The process
// goes on, to be found again by its Record.
func (p *Process) Close() { p.leave(ErrClosed) }

func (p *Process) leave(why error) {
	p.cancel(why)
	p.tasks.Wait()
	p.guest.Close()
	p.out.turn <- struct{}{} // whoever reads has left
	p.in.turn <- struct{}{}  // and whoever writes
	p.mu.Lock()
	p.book.close()
	p.book = nil
	p.mu.Unlock()
	<-p.out.turn
	<-p.in.turn
}

// Abandon says that the sandbox is not there any more, and the process with
// it.
func (p *Process) Abandon() {
	p.finish(nil)
	p.leave(ErrGone)
	if p.o.Dir != "" {
		_ = removeLedger(p.ledgerPath())
	}
}

// Discard does what Close does, and forgets the process: call it for one that
// was stopped, or whose time to be remembered is over. Attachments end as by its
// end.
func (p *Process) Discard() error {
	select {
	case <-p.out.finished:
		p.leave(io.EOF)
	default:
		p.leave(ErrEnded)
	}
	if p.o.Dir == "" {
		return nil
	}
	return removeLedger(p.ledgerPath())
}

// finish records the end, once.
func (p *Process) finish(code *int) {
	p.mu.Lock()
	if p.exit != nil {
		p.mu.Unlock()
		return
	}
	p.exit = &ending{at: time.Now().UTC(), code: code}
	p.mu.Unlock()
	close(p.ended)
	if p.o.OnExit != nil {
		go p.o.OnExit(p.Info())
	}
}

const idPrefix = "mp"

func newID() string { return idPrefix + rand.Text() }
