package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/action"
	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/machine"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/internal/guest/tool"
)

const (
	maxStreams = 4096 // calls at once on one connection
	stopGrace  = 2 * time.Second

	suspendGrace = 100 * time.Millisecond
)

// agent is what serves the host.
type agent struct {
	cfg      control.Config
	log      *slog.Logger
	settings *settings
	view     *machine.View // nil: commands see what the kernel shows
	metrics  *meter
	jail     *jail.Jail
	cgroups  *cgroup.Hierarchy // nil: this kernel has none
	engine   *process.Engine
	files    *files.Service
	tools    *tool.Service
	actions  *action.Server
	users    *accounts

	connection connection
	holding    holding
	unlocked   error // why the workspace is not locked as it has to be
	noUser     bool  // the image lacks the sandbox's own, or may not have it
	forwards   forwards
	suspended  chan net.Conn // where all others are to be given up: the one over which that was asked

	mu     sync.Mutex
	status status
}

// Run is the agent, reached over socket. It returns when ctx ends, with
// everything that it started ended too, or when it can't go on. The caller's
// main goroutine should be locked to the first thread.
func Run(ctx context.Context, cfg control.Config, socket *control.Socket, log *slog.Logger) (err error) {
	a := &agent{cfg: cfg, log: log, settings: newSettings(cfg), metrics: newMeter(), suspended: make(chan net.Conn, 1)}
	a.status = status{ID: cfg.ID, PIDs: true, Cgroups: true}

	// The agent moves to a cgroup of its own, so this comes first.
	cgroups, err := cgroup.Open(groupOptions(cfg, log))
	switch {
	case err != nil:
		a.status.lack("cgroups: " + err.Error())
		a.status.Cgroups, a.status.PIDs = false, false
		cgroups = nil
	case !cgroups.LimitsPIDs():
		a.status.lack("pids: this kernel's cgroups have no pids controller")
		a.status.PIDs = false
	}
	a.cgroups = cgroups
	if cgroups != nil {
		defer cgroups.Close()
		if cfg.CgroupRoot != "" && !cgroups.CountsOOM() {
			a.status.lack("memory: what the kernel kills for it is not counted")
		}
	}
	if cfg.Furnish {
		if err := furnish("/", cfg); err != nil { // commands run without, and say what they miss
			log.Warn("furnish the image", "err", err)
		}
	}
	if cfg.Programs {
		if err := a.addPrograms("/"); err != nil {
			log.Warn("add programs to the image", "err", err)
		}
	}
	a.connection.prepare(cfg.Network)
	writable, err := writable(cfg, "/")
	if err != nil {
		return err
	}
	confined := jail.Config{
		ReadOnlyRoot: cfg.ReadOnlyRoot, Writable: writable, Hide: cfg.Hide, PIDNamespace: cfg.PIDNamespace, Marked: cgroups == nil,
		Strict: cfg.Strict, Shared: cfg.Shared, Tasks: cfg.Tasks, OOMScore: cfg.OOMScore, Files: cfg.Files,
		CgroupNS: cfg.CgroupRoot != "" || len(cfg.Controllers) > 0, Namespace: cgroups.Namespace(), Log: log,
	}
	defer a.look(ctx, &confined)()
	j, problem, err := startJail(confined, cfg.Lock)
	if err != nil {
		return err
	}
	a.unlocked = problem
	defer j.Close()
	a.jail = j
	a.begin(cfg.Network)
	defer a.hangUp()

	open, stopFiles, err := a.watchFiles(ctx, cgroups)
	if err != nil {
		return err
	}
	defer stopFiles()

	users := &accounts{}
	a.users = users
	if _, err := a.allowed(users)(cfg.User); err != nil {
		log.Warn("look up the sandbox's user", "err", err)
		a.noUser = true
	}
	a.engine, err = process.New(process.Options{
		Spawner: a.spawner(), Lookup: users.Lookup, Defaults: a.connected, Cgroups: cgroups,
		AllowRoot: cfg.AllowRoot, DiskPaths: cfg.DiskPaths, NotShown: cfg.NotShown, HostFiles: open, Log: log,
	})
	if err != nil {
		return err
	}
	defer a.engine.Close()
	stopSudo, err := a.serveSudo(users)
	if err != nil {
		return err
	}
	defer stopSudo()
	a.files = files.New(files.Options{
		MountNS: j.MountNS(), Confine: j.Confine, Lookup: a.allowed(users), Host: users.Lookup, Log: log,
		DefaultUser: func() string { return a.settings.defaults().User },
		DefaultDir:  func(account.Account) string { return a.settings.defaults().Cwd },
		Provide:     cfg.Sudo,
	})
	defer func() { err = errors.Join(err, a.files.Close()) }()
	a.tools = tool.New(tool.Options{
		MountNS: j.MountNS(), Confine: j.Confine, Lookup: a.allowed(users), Log: log, Turn: a.files.Turn,
		DefaultUser: func() string { return a.settings.defaults().User },
	})
	defer func() { err = errors.Join(err, a.tools.Close()) }()
	a.actions = action.New(action.Options{
		Engine: a.engine, Files: a.files, Wait: a.holding.wait, Log: log,
		User: func() (account.Account, error) { return a.allowed(users)(a.settings.defaults().User) },
		Dir:  func() string { return a.settings.defaults().Cwd },
	})
	defer a.actions.Close()
	return a.serve(ctx, socket)
}

// allowed is users without root where root is not allowed.
func (a *agent) allowed(users *accounts) func(string) (account.Account, error) {
	return func(name string) (account.Account, error) {
		u, err := users.Lookup(name)
		if err == nil && u.UID == 0 && !a.cfg.AllowRoot {
			return account.Account{}, fmt.Errorf("%w: this sandbox does not act as root", files.ErrDenied)
		}
		return u, err
	}
}

// serve answers until ctx ends, but while it is suspended.
func (a *agent) serve(ctx context.Context, socket *control.Socket) error {
	for {
		awake, err := a.serveOnce(ctx, socket)
		if awake == nil {
			return err
		}
		select {
		case <-awake:
		case <-ctx.Done():
			return nil
		}
	}
}

// serveOnce answers until ctx ends, or the agent is suspended: then it returns
// what is closed when the agent is wanted again.
func (a *agent) serveOnce(ctx context.Context, socket *control.Socket) (awake <-chan struct{}, err error) {
	srv := a.server()
	done := make(chan error, 1)
	go func() { done <- srv.Serve(socket.Listener()) }()
	a.log.Info("agent is ready")
	var asked net.Conn
	select {
	case err := <-done:
		return nil, fmt.Errorf("serve: %w", err)
	case asked = <-a.suspended:
		awake = socket.Sleep()
	case <-ctx.Done():
		// Streams end when their commands do, which nobody else will end.
		a.holding.stop()
		a.engine.Close()
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceOf(awake != nil))
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close()
	}
	<-done // Serve has returned
	a.forwards.cut()
	if asked != nil {
		_ = asked.Close() // the last: its end is the answer
	}
	return awake, nil
}

// graceOf is how long answers may take that are under way. Those that wait for
// a command outlast any when the commands go on.
func graceOf(suspended bool) time.Duration {
	if suspended {
		return suspendGrace
	}
	return stopGrace
}

func (a *agent) server() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           a.routes(),
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
	}
}

func (a *agent) routes() http.Handler {
	mux := http.NewServeMux()
	a.engine.Register(mux)
	a.files.Register(mux)
	a.tools.Register(mux)
	mux.HandleFunc("GET /health", a.health)
	mux.HandleFunc("GET /metrics", a.serveMetrics)
	mux.HandleFunc("POST /init", a.init)
	mux.HandleFunc("GET /envs", a.envs)
	mux.HandleFunc("GET /carboy/status", a.serveStatus)
	mux.HandleFunc("GET /carboy/asked", a.serveAsked)
	mux.HandleFunc("POST /carboy/sync", syncFiles)
	mux.HandleFunc("POST /carboy/suspend", a.suspend)
	mux.HandleFunc("POST /carboy/hold", a.hold)
	mux.HandleFunc("GET /carboy/hold", a.serveHeld)
	mux.HandleFunc("POST /carboy/claim", a.claim)
	mux.HandleFunc("POST /carboy/limits", a.limit)
	mux.HandleFunc("POST /carboy/machine", a.showMachine)
	mux.HandleFunc("POST /carboy/lock", a.lock)
	mux.HandleFunc("GET /carboy/processes", a.serveProcesses)
	mux.HandleFunc("POST /carboy/probe", a.probe)
	return a.holding.with(a.forwards.with(mux, a.actions.Serve, a.dialSocket))
}
