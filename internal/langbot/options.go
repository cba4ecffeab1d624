package langbot

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/skill"
)

// Sessions is what the dialect asks of a *session.Runtime, which documents each
// method.
type Sessions interface {
	Declare(owner string, roots ...string)
	Create(ctx context.Context, c sandbox.Caller, spec session.Spec) (sessions.SessionInfo, error)
	Exec(ctx context.Context, c sandbox.Caller, spec session.Spec, cmd session.Command) (*session.Result, error)
	Get(ctx context.Context, c sandbox.Caller, id string) (sessions.SessionInfo, error)
	List(ctx context.Context, c sandbox.Caller) ([]sessions.SessionInfo, error)
	Delete(ctx context.Context, c sandbox.Caller, id string) error
	DropAll(ctx context.Context, owner string, match func(id string) bool) error
	StartProcess(ctx context.Context, c sandbox.Caller, id string, spec sessions.ProcessSpec) (sessions.ProcessInfo, error)
	Process(ctx context.Context, c sandbox.Caller, id, pid string) (sessions.ProcessInfo, error)
	StopProcess(ctx context.Context, c sandbox.Caller, id, pid string) error
	Status(ctx context.Context, c sandbox.Caller) (sessions.RuntimeStatus, error)
	Backend(ctx context.Context) sessions.Backend
}

// Attachment is the input and output of a managed process, a line at a time.
// One with a method Unread() bool takes the last line back, for the next reader,
// where it could not be sent on.
type Attachment interface {
	// ReadLine returns the next line of the output without its end; io.EOF when
	// there are no more.
	ReadLine(ctx context.Context) ([]byte, error)
	// WriteLine writes a line, and returns when the process has room for more.
	// An error that is io.ErrClosedPipe says that the process reads no more;
	// what it has written, and how it ends, is still to be read.
	WriteLine(ctx context.Context, line []byte) error
	Close() error
}

// AttachFunc attaches to a managed process when it is the caller's turn; with
// takeover whoever is attached is sent away. An error that is io.EOF says that
// the process has ended meanwhile, and that others have read all it wrote.
type AttachFunc func(ctx context.Context, c sandbox.Caller, id, pid string, takeover bool) (Attachment, error)

// OutsideFunc opens a directory for an owner. done is called when it was read,
// and closed.
type OutsideFunc func(ctx context.Context, owner, path string) (dir *os.Root, done func(), err error)

// Skills is the store of one owner's skills. *skill.Store is one.
type Skills interface {
	List(ctx context.Context) ([]sessions.Skill, error)
	Get(ctx context.Context, name string) (sessions.Skill, error)
	Create(ctx context.Context, in sessions.SkillInput, out skill.Outside) (sessions.Skill, error)
	Update(ctx context.Context, name string, in sessions.SkillInput) (sessions.Skill, error)
	Delete(ctx context.Context, name string) (sessions.SkillDeleted, error)
	Scan(ctx context.Context, path string, out skill.Outside) (sessions.Skill, error)
	Files(ctx context.Context, name string, q skill.FileQuery) (sessions.SkillFiles, error)
	Read(ctx context.Context, name, path string) (sessions.SkillContent, error)
	Write(ctx context.Context, name, path, content string) (sessions.SkillWritten, error)
	PreviewZip(ctx context.Context, zip []byte, q skill.ZipQuery) ([]sessions.Skill, error)
	InstallZip(ctx context.Context, zip []byte, q skill.ZipQuery) ([]sessions.Skill, error)
}

// Options are what a Handler works with. Sessions and Owner are required.
type Options struct {
	Sessions Sessions
	Attach   AttachFunc // nil: there are no relays
	// Skills opens an owner's skills; nil: there are none.
	Skills func(owner string) (Skills, error)
	// Outside opens a directory from which an owner may take a skill, by the path
	// that the owner's host knows it under: one of this machine's, or one in a
	// workspace of the owner's. nil: none may.
	Outside OutsideFunc
	// Owner has the sessions of actions without a context.
	Owner string
	// Token is the control token; "": none is asked for, and the listener must
	// be this machine's alone. See CheckToken.
	Token string
	// Trusted says what keeps who sent a request from being served where there is
	// no token; nil: nothing does.
	Trusted func(r *http.Request) error
	// Instance is the only one that may connect; "": the first that does.
	Instance string
	// Hosts are further names by which this machine's clients call it; they
	// matter where there is no token.
	Hosts []string
	// Shared is the directory that a host may look for to see that it and this
	// share a file system; "": there is none.
	Shared string
	// Ledger is the file in which generations and revoked grants are remembered;
	// "": they last as long as the Handler.
	Ledger string
	// Admission is the operator's policy, as JSON; nil: none.
	Admission json.RawMessage
	// Readiness says what of the isolation holds that admission asks for, by the
	// original's names of the checks.
	Readiness func(ctx context.Context) map[string]bool
	Limits    sessions.Limits
	Clock     sandbox.Clock // default: the machine's
	Log       *slog.Logger  // default: none
}

// Handler serves the dialect. It is an http.Handler.
type Handler struct {
	o     Options
	log   *slog.Logger
	clock sandbox.Clock
	mux   *http.ServeMux
	fence *fence
	admit *admission

	hosts, relays crowd
	budget        *rpc.Budget // of all hosts' actions

	ctx  context.Context // of all connections
	stop context.CancelCauseFunc
	live sync.WaitGroup

	mu     sync.Mutex
	pinned string          // the instance
	roots  []string        // that the host's configuration calls its own
	peers  int             // connections that speak actions
	plain  map[string]bool // keys of sessions that actions without a context asked for
}

// How much there may be at once, of whoever may connect: each host and relay may
// have a message of the largest size on its way, and each byte of an action
// costs some more while it is under way.
const (
	maxHosts    = 32
	maxRelays   = 256
	maxUnderWay = 128 << 20 // bytes of all hosts' actions
)

var errLeaving = errors.New("the runtime is shutting down")

// New returns a Handler, or an error for options that can't be. It reads the
// ledger.
func New(o Options) (*Handler, error) {
	if o.Sessions == nil || o.Owner == "" {
		return nil, errors.New("new box handler: sessions and an owner are required")
	}
	if o.Token != "" {
		if err := CheckToken(o.Token); err != nil {
			return nil, err
		}
	}
	if o.Instance != "" && !rpc.ValidInstance(o.Instance) {
		return nil, sandbox.Errorf(sandbox.Invalid, "box instance %.80q: 1 to 128 letters, digits, and . _ : -, the first a letter or digit", o.Instance)
	}
	h := &Handler{
		o: o, log: o.Log, clock: o.Clock, pinned: o.Instance,
		hosts: make(crowd, maxHosts), relays: make(crowd, maxRelays), budget: rpc.NewBudget(maxUnderWay),
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.clock == nil {
		h.clock = sandbox.SystemClock{}
	}
	var err error
	if h.fence, err = openFence(o.Ledger, max(o.Limits.MaxAdmissions, 1)); err != nil {
		return nil, err
	}
	h.admit = newAdmission(h, o.Admission)
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.routes()
	return h, nil
}

// Run ends what is no longer admitted, until ctx ends.
func (h *Handler) Run(ctx context.Context) error { return h.admit.run(ctx) }

// Close ends all connections, with the actions under way. Sessions go on.
func (h *Handler) Close() error {
	h.mu.Lock()
	h.stop(errLeaving)
	h.mu.Unlock()
	h.live.Wait()
	return nil
}

// Busy reports whether a host is connected.
func (h *Handler) Busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.peers > 0
}

// CheckToken says what keeps a text from being a control token. It never says
// the text.
func CheckToken(token string) error {
	if len([]rune(token)) < rpc.MinToken || strings.ContainsAny(token, " \t\r\n\v\f\u0085\u00a0") {
		return sandbox.Errorf(sandbox.Invalid, "the box control token is not at least %d characters without white space", rpc.MinToken).
			WithHint("make one: openssl rand -hex 32")
	}
	return nil
}

// CheckListen says whether an address may be listened on without a token: only
// where nobody but this machine reaches it.
func CheckListen(addr string, token bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "box listen %.80q: not an address", addr).WithHint("127.0.0.1:5410")
	}
	if token || isLoopback(host) {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "box listen %.80q: others than this machine reach it, and no control token is set", addr).
		WithHint("set box.control_token_file, or --control-token-file, or listen on 127.0.0.1")
}

// IsLocal reports whether an address is reached by this machine alone.
func IsLocal(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && isLoopback(host)
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// known reports whether host is a name of this machine's.
func (h *Handler) known(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return isLoopback(host) || slices.ContainsFunc(h.o.Hosts, func(n string) bool { return strings.EqualFold(n, host) })
}
