package session

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"time"
	"unicode/utf8"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/quota/project"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
	"github.com/carboy-sandbox/carboy/internal/skill"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Manager has the sandboxes. *sandbox.Manager is one, and documents each
// method.
type Manager interface {
	Create(ctx context.Context, c sandbox.Caller, spec sandbox.Spec, values sandbox.SecretValues) (*sandbox.Sandbox, error)
	Get(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) ([]*sandbox.Sandbox, error)
	EnsureRunning(ctx context.Context, c sandbox.Caller, ref string) (sb *sandbox.Sandbox, notice string, err error)
	Start(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	Stop(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	Remove(ctx context.Context, c sandbox.Caller, ref string, force bool) error
	Dial(ctx context.Context, c sandbox.Caller, ref string, port int) (net.Conn, error)
	Check(ctx context.Context, spec sandbox.Spec) error
	KeepWarm(ctx context.Context, c sandbox.Caller, spec sandbox.Spec) error
	Offer() sandbox.Offer
	Quota(owner string) sandbox.Quota
}

// Store keeps records. A record that was saved or deleted is on the disk when
// the call returns.
type Store interface {
	SaveSession(ctx context.Context, s record.Session) error
	DeleteSession(ctx context.Context, id string) error // of none: nil
	Sessions(ctx context.Context) ([]record.Session, error)
}

// Volumes have the workspaces that outlive sessions.
type Volumes interface {
	// Ensure returns the ID of owner's volume of that name, which is made with
	// that size and so many files where there is none. One that is smaller grows,
	// where it can; none gets smaller. Unenforced says why its bounds are not kept
	// to; "": they are.
	Ensure(ctx context.Context, owner, name string, size, inodes int64) (v Volume, err error)
}

// Volume is one of Volumes.
type Volume struct {
	ID           string
	Size, Inodes int64
	Unenforced   string
	Grown        bool   // by this call
	Kept         string // why it did not grow, though it is smaller than was asked
}

// Projects hold directories of the host to quotas that their file systems
// enforce. A *project.Control does, and documents each method.
type Projects interface {
	Take(ctx context.Context, dir *os.File, most int) (id uint32, err error)
	Hold(dir *os.File, id uint32, l project.Limits) (project.Usage, error)
	Lift(at *os.File, id uint32) error
	Of(dir *os.File) uint32
}

// Skills has the packages of skills of each owner. skill.Owners is it.
type Skills interface {
	// Named returns the mount that a request means by the name of a skill.
	Named(ctx context.Context, owner, name string) (request.Mount, error)
	// Place says which package a mount means; ok is false for one whose
	// directory is not in the store, and which is no skill.
	Place(owner string, m request.Mount) (p skill.Placed, ok bool, err error)
	// Bring has packages below tools.SkillsPath inside, unless they are there as
	// they are now, and removes those that the store has no longer. b is the
	// sandbox's. The notices say what was not brought, and why.
	Bring(ctx context.Context, owner string, g skill.Guest, b *skill.Brought, want []skill.Placed) (notices []string, err error)
	// TakeBack takes into the store what was changed inside of a writable one.
	TakeBack(ctx context.Context, owner string, g skill.Guest, b *skill.Brought, p skill.Placed) (skill.Taken, error)
}

// Options are what a Runtime works with. Manager and Store are required; the
// zero value of everything else works.
type Options struct {
	Manager Manager
	Store   Store
	// Images pins an image of a Spec, by its name; nil: there is only the
	// machine's own.
	Images  func(ctx context.Context, c sandbox.Caller, name string) (pinned string, err error)
	Volumes Volumes // nil: none
	// Projects give directories of the host a hard quota; nil: they have none.
	Projects Projects
	Skills   Skills            // nil: none
	Audit    func(AuditRecord) // is told of each command; it must be quick
	// Class is what an error is called in an AuditRecord; nil: by its kind.
	Class func(error) string
	// ProcessDir is a directory of the daemon's for small files about managed
	// processes, which is there; "": after a kill lines may come again or be lost.
	ProcessDir string
	// Room says how many bytes can be written to the disk that sandboxes' files are
	// on; nil: there is enough.
	Room func() uint64
	// Private are directories of the daemon's, or of others: no session is
	// shown what is in one, unless an allowed root lies in there too.
	Private []string
	Config  Config
	Clock   sandbox.Clock // default: the machine's
	Rand    io.Reader     // default: crypto/rand; need not be safe for concurrent use
	Log     *slog.Logger  // default: none
}

// Result is how a command ended.
type Result struct {
	SessionID string
	Backend   string // the wall
	Status    string // sessions.StatusCompleted or sessions.StatusTimedOut
	ExitCode  *int   // nil where its time was up
	// Stdout and Stderr are the first 1 MiB that it wrote of each, byte by byte.
	// One whose time was up, and that wrote no error, has in Stderr that it was.
	Stdout, Stderr []byte
	// StdoutTail and StderrTail are the last of what comes after that, at most 256 KiB.
	StdoutTail, StderrTail   []byte
	StdoutBytes, StderrBytes int64         // that it wrote
	Duration                 time.Duration // with Queued
	Queued                   time.Duration // that it waited for the session's other commands
	Limits                   []string      // it ran into: "memory", "pids", "disk", "inodes", "quota"
	Notices                  []string      // what its user should know
}

// Wire is r as it goes over a wire: with text in place of bytes, and beside it
// the bytes of a stream that is not text. Each stream is its two ends, with a note of what
// lies between.
func (r *Result) Wire() sessions.Result {
	out := r.WireHead()
	var b []byte
	b, out.StdoutLeftOut = excerptOf(r.Stdout, r.StdoutTail, r.StdoutBytes).Whole()
	out.Stdout, out.StdoutRaw = text(b)
	b, out.StderrLeftOut = excerptOf(r.Stderr, r.StderrTail, r.StderrBytes).Whole()
	out.Stderr, out.StderrRaw = text(b)
	return out
}

func excerptOf(head, tail []byte, all int64) excerpt.Excerpt {
	return excerpt.Excerpt{Head: head, Tail: tail, Between: all - int64(len(head)) - int64(len(tail))}
}

// WireHead is Wire for a dialect that has the beginning of a stream alone.
func (r *Result) WireHead() sessions.Result {
	out := sessions.Result{
		SessionID: r.SessionID, BackendName: r.Backend, Status: r.Status, ExitCode: r.ExitCode,
		DurationMS: r.Duration.Milliseconds(), QueuedMS: r.Queued.Milliseconds(),
		StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes, Limits: r.Limits, Notices: r.Notices,
	}
	out.Stdout, out.StdoutRaw = text(r.Stdout)
	out.Stderr, out.StderrRaw = text(r.Stderr)
	return out
}

func text(b []byte) (s string, raw []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return term.Repair(b), b
}

// AuditRecord is one command, process, tool or transfer that was asked for,
// with how it ended. It has no value of a variable, and nothing of what was
// written or looked for.
type AuditRecord struct {
	Time      time.Time
	Owner     string
	Session   string
	Sandbox   string // its ID; "": it came to none
	Action    string // "exec", "start_process", "quota_stop", "tool:read" and so on, "attachments:deliver" or "attachments:collect"
	Process   string // the process's ID
	Path      string // of a tool's file, cut to 400 characters
	Command   string // cut to 400 characters
	EnvKeys   []string
	Status    string // as Result has it; a tool's: "ok" or its code; "": Error
	ExitCode  *int
	Error     string // the class of the error
	Duration  time.Duration
	Queued    time.Duration
	Stdout    int64 // bytes
	Stderr    int64
	Limits    []string
	SessionIs string // "reused", "created", "replaced" or "woken"
}

// Metrics tell what a Runtime did since it was made, and what it has now.
type Metrics struct {
	Sessions, Asleep, Processes int // now

	Created, Reused, Replaced, Woken, Slept, Reaped, Deleted int64
	Execs, ExecErrors, Timeouts, QueueTimeouts               int64
	ProcessesStarted, ProcessesRestored                      int64
	Tools, ToolErrors, Transfers, TransferErrors             int64
	Conflicts, CapacityRefusals, QuotaStops                  int64
	QueueTime, ExecTime                                      time.Duration
	StdoutBytes, StderrBytes                                 int64
}
