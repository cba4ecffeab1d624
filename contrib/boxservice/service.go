package boxservice

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/contrib/boxservice/service"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
)

// What a Service is asked with.
type (
	// Query is one message that an agent answers, as far as its session is
	// concerned. All of it may be empty.
	Query = service.Query
	// Request is one command, or one session, that is asked for by a payload.
	Request = service.Request
	// Runtime is what keeps sessions. A Client is one.
	Runtime = service.Runtime
)

// Config is how a platform has its sandboxes. The zero value works: a child
// process is the runtime, and each session has a workspace of its own.
type Config struct {
	// Connect says how the runtime is reached. Its Init is made of what stands
	// below unless it is given; its OnConnect and OnDisconnect are called after
	// the service has done its own.
	Connect Options
	// Runtime is used in place of a connection.
	Runtime Runtime

	Profile  string             // by name; "": "default"
	Profiles map[string]Profile // beside the built-in ones, by name
	Image    string             // of sessions that name none; "": the runtime's
	// HostRoot is the directory of the runtime's host that workspaces are in,
	// DefaultWorkspace the workspace of sessions that name none, SkillsRoot where
	// packages are; relative ones are below HostRoot. With a HostRoot they are
	// "default" and "skills" there; without, each session has a workspace of its
	// own.
	HostRoot, DefaultWorkspace, SkillsRoot string
	// AllowedMountRoots are the directories of the host that may be mounted, with
	// all below them; nil: HostRoot.
	AllowedMountRoots []string
	// WorkspaceQuotaMB is for sessions that name none; nil: the profile's.
	WorkspaceQuotaMB *int
	// ForceTemplate makes the session's key of each query, whatever template the
	// query has: "{global}" has all of them in one session.
	ForceTemplate string
	// OutputLimit is how many characters of each stream a result has; 0: 4,000;
	// less: all.
	OutputLimit int
	// Skills are the packages of a query's session; nil: all of the runtime's.
	Skills func(ctx context.Context, q Query) []Skill
	// SharesFilesystem says whether the runtime's directories are this machine's.
	// Nil: a child's are, nobody else's.
	SharesFilesystem *bool

	Log *slog.Logger     // nil: nothing is logged
	Now func() time.Time // nil: time.Now
}

type core = service.Service

// Service gives a platform's agents their sessions. It is safe for use by
// several goroutines. Where the runtime goes away it is not available, and
// nothing runs anywhere else; when it is back, the default workspace and the
// list of packages are looked after again.
type Service struct {
	*core     // what is asked of a service: see package service
	roots     *hostroot.Roots
	client    *Client    // nil: the configuration has a Runtime
	connector *Connector // likewise
	log       *slog.Logger
	keep      atomic.Bool   // sessions outlive this service
	first     sync.Once     // closes looked
	looked    chan struct{} // what a first connection brings has been looked at

	mu     sync.Mutex
	skills []Skill
}

// NewService returns a service that has not connected to anything. An unknown
// profile is an error that names those that there are.
func NewService(c Config) (*Service, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	roots, err := hostroot.New(hostroot.Config{
		HostRoot: c.HostRoot, DefaultWorkspace: c.DefaultWorkspace,
		AllowedMountRoots: c.AllowedMountRoots,
	})
	if err != nil {
		return nil, err
	}
	s := &Service{log: c.Log, roots: roots, looked: make(chan struct{})}
	o := service.Options{
		Runtime: c.Runtime, Disabled: c.Connect.Disabled,
		Profile: c.Profile, Profiles: c.Profiles, Image: c.Image,
		WorkspaceQuotaMB: c.WorkspaceQuotaMB, Roots: roots, ForceTemplate: c.ForceTemplate,
		OutputLimit: c.OutputLimit, Skills: c.Skills, Log: c.Log, Now: c.Now,
	}
	if c.Runtime == nil {
		if err := s.connect(c); err != nil {
			return nil, err
		}
		o.Runtime, o.Connector = kept{s.client, s}, opener{s.connector, s}
	}
	if o.Skills == nil {
		o.Skills = func(context.Context, Query) []Skill { return s.Skills() }
	}
	if shares := c.SharesFilesystem; shares != nil {
		o.SharesFilesystem = func() bool { return *shares }
	}
	s.core, err = service.New(o)
	return s, err
}

// kept is a Client that a service shuts down only where it is to.
type kept struct {
	*Client
	s *Service
}

func (k kept) Shutdown(ctx context.Context) error {
	if k.s.keep.Load() {
		return nil
	}
	return k.Client.Shutdown(ctx)
}

// opener is a Connector that is open once the service has looked after what its
// first connection brings.
type opener struct {
	*Connector
	s *Service
}

func (o opener) Open(ctx context.Context) error {
	if err := o.Connector.Open(ctx); err != nil {
		return err
	}
	select {
	case <-o.s.looked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect makes the service's connector.
func (s *Service) connect(c Config) (err error) {
	o := c.Connect
	if o.Log == nil {
		o.Log = c.Log
	}
	if o.Init == nil {
		o.Init = initOf(c)
	}
	o.OnConnect = func(ctx context.Context, client *Client) {
		s.ready(ctx)
		if c.Connect.OnConnect != nil {
			c.Connect.OnConnect(ctx, client)
		}
	}
	o.OnDisconnect = func(err error) {
		s.core.Disconnected(err)
		if c.Connect.OnDisconnect != nil {
			c.Connect.OnDisconnect(err)
		}
	}
	if s.connector, err = NewConnector(o); err != nil {
		return err
	}
	s.client = s.connector.Client()
	return nil
}

// initOf is what the runtime is told of the configuration, in LangBot's form.
func initOf(c Config) map[string]any {
	roots := slices.Clone(c.AllowedMountRoots)
	if roots == nil {
		roots = []string{}
	}
	return map[string]any{
		"enabled": !c.Connect.Disabled,
		"backend": "local",
		"local": map[string]any{
			"profile": c.Profile, "image": c.Image, "host_root": c.HostRoot, "default_workspace": c.DefaultWorkspace,
			"skills_root": c.SkillsRoot, "allowed_mount_roots": roots, "workspace_quota_mb": c.WorkspaceQuotaMB,
		},
	}
}

// ready is what is done whenever the runtime has come to answer.
func (s *Service) ready(ctx context.Context) {
	s.core.Connected()
	if err := s.ReloadSkills(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("box: the list of skills was not loaded", "error", err)
	}
	s.first.Do(func() { close(s.looked) })
}

// Open connects to the runtime. It never fails, as a platform goes on without
// sandboxes: what became of it is Available and Status, and where the runtime
// does not answer it is looked for until Close. A disabled service touches
// nothing.
func (s *Service) Open(ctx context.Context) {
	s.core.Initialize(ctx)
	if s.connector == nil || s.core.Available() {
		return
	}
	if state, _ := s.connector.State(); state == Connected { // ctx ended before, or just now
		s.core.Connected()
	}
}

// Close ends the connection, and the child that is the runtime. The sessions go
// on where the runtime does.
func (s *Service) Close() error {
	s.keep.Store(true)
	return s.core.Close(context.Background())
}

// Shutdown has the runtime drop the sessions, and then is Close. A runtime that
// does not answer is closed all the same.
func (s *Service) Shutdown(ctx context.Context) error { return s.core.Close(ctx) }

// Client returns the runtime's client, for what a Service does not do; nil
// where the configuration has a Runtime of its own.
func (s *Service) Client() *Client { return s.client }

// Connector returns what keeps the client connected; nil likewise.
func (s *Service) Connector() *Connector { return s.connector }

// ReloadSkills reads the runtime's packages anew: after each change to them.
// It is done by itself whenever a connection is made.
func (s *Service) ReloadSkills(ctx context.Context) error {
	if s.client == nil {
		return nil
	}
	list, err := s.client.Skills(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skills = list
	return nil
}

// Skills are the runtime's packages as of the newest ReloadSkills; none while
// the runtime is not available.
func (s *Service) Skills() []Skill {
	if s.client == nil || !s.core.Available() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.skills)
}

// HostRoot is the configuration's directory of workspaces, as it holds: absolute,
// and with links followed. So are the two below.
func (s *Service) HostRoot() string { return s.roots.HostRoot() }

// DefaultWorkspace is the workspace of sessions that name none; "": their own.
func (s *Service) DefaultWorkspace() string { return s.roots.DefaultWorkspace() }

// AllowedMountRoots are the directories of the host that may be mounted.
func (s *Service) AllowedMountRoots() []string { return s.roots.Allowed() }

// StartProcess starts a process that a session keeps. Client.Attach is for its
// input and output.
func (s *Service) StartProcess(ctx context.Context, session string, p ProcessSpec) (ProcessInfo, error) {
	return s.core.StartProcess(ctx, session, processBody(p))
}

// Process returns a session's process; id "" is DefaultProcess.
func (s *Service) Process(ctx context.Context, session, id string) (ProcessInfo, error) {
	return s.core.Process(ctx, session, process(session, id).Process)
}

// StopProcess ends a session's process with all that it started.
func (s *Service) StopProcess(ctx context.Context, session, id string) error {
	return s.core.StopProcess(ctx, session, process(session, id).Process)
}
