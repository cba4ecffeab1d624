// Package service is the half of sessions that stands beside an agent platform:
// it decides which session a query is about, by which profile a command runs,
// how much of its output a model is shown, and which skills the session has.
//
// It knows a Runtime by what it is asked for alone, so that the same service
// stands before a runtime in this process and before one at the end of a
// connection. It refuses whatever it can't do while its runtime has no wall:
// nothing ever runs on the host instead.
package service

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
)

// defaultOutputLimit is how many characters of each stream a result has.
const defaultOutputLimit = 4000

// maxOutput is how many bytes of each stream of a command a runtime keeps.
const maxOutput = 1 << 20

// Runtime is what keeps sessions, for one caller. Its errors are classed by
// profile.Class.
type Runtime interface {
	Exec(ctx context.Context, spec sessions.Spec) (sessions.Result, error)
	Create(ctx context.Context, spec sessions.Spec) (sessions.SessionInfo, error)
	Get(ctx context.Context, id string) (sessions.SessionInfo, error)
	List(ctx context.Context) ([]sessions.SessionInfo, error)
	Delete(ctx context.Context, id string) error
	StartProcess(ctx context.Context, id string, p sessions.ProcessSpec) (sessions.ProcessInfo, error)
	Process(ctx context.Context, id, process string) (sessions.ProcessInfo, error)
	StopProcess(ctx context.Context, id, process string) error
	Status(ctx context.Context) (sessions.RuntimeStatus, error)
	Backend(ctx context.Context) (sessions.Backend, error)
}

// Connector keeps a Runtime reachable that is not in this process. Whoever made
// it has it tell the service of what it does: Connected and Disconnected.
type Connector interface {
	// Open connects. After an error it may go on trying.
	Open(ctx context.Context) error
	// UsesWebSocket reports whether the runtime is another's process, with a
	// file system of its own as far as anybody can tell.
	UsesWebSocket() bool
	// Close ends the connection, and what was started for it.
	Close() error
}

// Skills says which packages a query's session has.
type Skills func(ctx context.Context, q Query) []sessions.Skill

// Options are what a Service works with. Runtime is required; the zero value of
// everything else works.
type Options struct {
	Runtime Runtime
	// Connector is what Initialize opens and Close closes; nil: Runtime is there
	// without one.
	Connector Connector
	// Disabled has the service refuse everything and touch nothing.
	Disabled bool

	Profile  string         // by name; "": "default"
	Profiles profile.Custom // beside the built-in ones
	// Image is what sessions get that name none; "": the profile's.
	Image string
	// WorkspaceQuotaMB is for sessions that name none; nil: the profile's.
	WorkspaceQuotaMB *int
	// Roots are the directories of the host that may be mounted, with the
	// workspace of sessions that name none; nil: none.
	Roots *hostroot.Roots
	// ForceTemplate is that of all session IDs, whatever a query has; blank:
	// each query's own.
	ForceTemplate string
	// OutputLimit is how many characters of each stream a result has; 0: 4,000;
	// less: all.
	OutputLimit int
	// Skills are those of a query; nil: none.
	Skills Skills
	// SharesFilesystem says whether the runtime's directories are this machine's;
	// nil: they are where Connector does not use WebSocket, and are not where
	// there is no Connector.
	SharesFilesystem func() bool

	Log *slog.Logger     // default: none
	Now func() time.Time // default: time.Now
}

// Service gives agents their sessions. It is safe for concurrent use.
type Service struct {
	o       Options
	profile sessions.Profile
	errors  ring

	mu        sync.Mutex
	available bool
	closed    bool
	changes   int
	why       string // it is not available; "": it is
}

const whyNotYet = "Box runtime is not connected yet"

// New returns a Service that is not available before Initialize. An unknown
// profile is an error with the names that there are.
func New(o Options) (*Service, error) {
	if o.Runtime == nil {
		return nil, sandbox.Errorf(sandbox.Internal, "new box service: a runtime is required")
	}
	if err := o.Profiles.Check(); err != nil {
		return nil, err
	}
	p, err := profile.Find(o.Profile, o.Profiles)
	if err != nil {
		return nil, err
	}
	if o.WorkspaceQuotaMB != nil && *o.WorkspaceQuotaMB < 0 {
		return nil, fault.Invalid("workspace_quota_mb must be greater than or equal to 0")
	}
	if _, err := profile.SessionID(o.ForceTemplate, nil); err != nil {
		return nil, err
	}
	if o.Roots == nil {
		o.Roots = &hostroot.Roots{}
	}
	if o.OutputLimit == 0 {
		o.OutputLimit = defaultOutputLimit
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o, profile: p, why: whyNotYet}
	if o.Disabled {
		s.why = whyDisabled
	}
	return s, nil
}

// Profile returns the profile of requests that name none.
func (s *Service) Profile() sessions.Profile { return s.profile }

// SharesFilesystem reports whether the directories that the runtime speaks of
// are this machine's.
func (s *Service) SharesFilesystem() bool {
	switch {
	case s.o.SharesFilesystem != nil:
		return s.o.SharesFilesystem()
	case s.o.Connector == nil:
		return false
	}
	return !s.o.Connector.UsesWebSocket()
}
