package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/approval/desk"
	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/egress/ended"
	"github.com/carboy-sandbox/carboy/internal/egress/inside"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/image"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/store"
	"github.com/carboy-sandbox/carboy/internal/template"
	"github.com/carboy-sandbox/carboy/internal/template/startup"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/tenant/meter"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

const (
	// shortGrace is for answers that are nearly there when the daemon leaves,
	// longGrace for what its end interrupts.
	shortGrace = 300 * time.Millisecond
	longGrace  = 10 * time.Second
)

// Deps are what a daemon works with. Backends is required.
type Deps struct {
	Backends []sandbox.Backend
	Version  string
	Log      *slog.Logger // default: none
	// Images keeps images; nil: sandboxes have the machine's own programs.
	Images *image.Store
	// Snapshots keeps what sandboxes wrote; nil: nothing is kept.
	Snapshots sandbox.Snapshots
	// Network opens what sandboxes with a network need, once the home is this
	// daemon's alone; nil: no sandbox has one.
	Network func(Asking) (Network, error)
	// Volumes opens the volumes of the home, once it is this daemon's alone;
	// nil: there are none.
	Volumes func() (*volume.Service, error)
	// Disk holds what sandboxes write while there is no room for it; nil: nothing does.
	Disk sandbox.Disk
	// CPUs and Memory are the machine's, as sandbox.Options has them.
	CPUs   float64
	Memory int64
	// PerInstance is what an idle instance takes behind each wall, as sandbox.Pool has it.
	PerInstance map[string]int64
	// HasChanges reads a stream of Backend.Changes, as sandbox.Options has it.
	HasChanges func(io.Reader) (bool, error)
	// Ready is called once, when the daemon answers: with the addresses on
	// which it listens.
	Ready func(addrs []net.Addr)
}

// Asking is how what stands between sandboxes and the world has people asked, and what happens
// written down.
type Asking struct {
	Desk *desk.Desk
	Note func(ctx context.Context, owner, sandboxID string, ev sandbox.Event)
}

// Network is what sandboxes with a network need.
type Network struct {
	Gate    sandbox.Gate
	Secrets server.Secrets // what gates may put into requests
	// Answer tells a sandbox's gate what a person has decided.
	Answer func(ctx context.Context, sandboxID string, a approval.Answer) error
	// Serve is told what serves sandboxes at their gates; nil: nothing can.
	Serve func(inside.Handlers)
	Close func() error
}

// daemon is one run.
type daemon struct {
	cfg       Config
	deps      Deps
	log       *slog.Logger
	started   time.Time
	manager   *sandbox.Manager
	meter     *meter.Meter
	server    *server.Server
	templates *template.Service
	sessions  *sessionRuntime // nil: there are none
	pods      pods
	doorways  doorways
	browsers  *browsers
	stop      context.CancelCauseFunc
	addrs     []net.Addr
	cert      *certificate // nil: TCP is in clear
	boxCert   *certificate // of the dialect's address; nil: it is in clear
}

// What may end a run, but for its context.
var (
	errAsked    = errors.New("it was asked to leave")
	errIdle     = errors.New("it had nothing to do")
	errHostGone = errors.New("the host that started it is gone")
)

// failure ends a run too, and is what Run returns.
type failure struct {
	doing string
	err   error
}

func (f *failure) Error() string { return f.doing + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func (d *daemon) fail(doing string, err error) { d.stop(&failure{doing, err}) }

// Run serves until ctx ends, the daemon is asked to leave, or it is idle and
// was started by a client. Then it returns nil, once requests have ended;
// sandboxes go on. A home that has a daemon already is a Conflict.
func Run(ctx context.Context, cfg Config, deps Deps) (err error) {
	if err := cfg.Validate(); err != nil {
		return err
	}
	d := &daemon{cfg: cfg, deps: deps, log: cmp.Or(deps.Log, slog.New(slog.DiscardHandler)), started: time.Now()}
	keys, err := d.keys()
	if err != nil {
		return err
	}
	if d.cert, err = openCertificate("", cfg.TLSCert, cfg.TLSKey, d.log); err != nil {
		return err
	}
	if d.boxCert, err = d.boxCertificate(); err != nil {
		return err
	}
	if err := cfg.Dirs.Create(); err != nil {
		return err
	}
	lock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	db, err := store.Open(ctx, filepath.Join(cfg.Dirs.State, storeName))
	if err != nil {
		return fmt.Errorf("open state: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var network Network
	asked, err := d.openAsking(db)
	if err != nil {
		return err
	}
	defer asked.close()
	if deps.Network != nil {
		if network, err = deps.Network(Asking{Desk: asked.desk, Note: d.noteOf}); err != nil {
			return err
		}
		asked.tell = network.Answer
		defer func() { err = errors.Join(err, network.Close()) }()
	}
	d.browsers = newBrowsers(cfg.Dirs.State, d.log)
	if d.doorways, err = d.openDoorways(); err != nil {
		return err
	}
	book := cfg.book()
	vols, err := openVolumes(deps.Volumes)
	if err != nil {
		return err
	}
	defer vols.close()
	opts := sandbox.Options{
		Store: db, Quotas: quotas{book}, Events: db, Backends: deps.Backends, Log: d.log,
		CPUs: deps.CPUs, Memory: deps.Memory, HasChanges: deps.HasChanges, Disk: deps.Disk,
		Gate: network.Gate, NetRecords: ended.New(filepath.Join(cfg.Dirs.State, "netlogs"), nil), Snapshots: deps.Snapshots, Startup: startup.Run, Ports: d.doorways,
		Removed: func(owner string) { d.pods.removed(owner) },
		Pool:    sandbox.Pool{Size: cfg.PoolSize(), Memory: int64(cfg.PoolMemory), PerInstance: deps.PerInstance},
	}
	var kept *images
	if deps.Images != nil {
		kept = &images{store: deps.Images}
		opts.Images = kept
	}
	vols.offer(&opts)
	if d.manager, err = sandbox.NewManager(opts); err != nil {
		return err
	}
	d.meter = meter.New(d.manager, meter.Options{Time: time.Duration(cfg.MeasureTime), Log: d.log})
	ctx, d.stop = context.WithCancelCause(ctx)
	defer d.stop(nil)
	serve, err := d.doors(ctx, parts{keys, db, network, asked, book, kept, vols})
	if err != nil {
		return err
	}
	if d.sessions, err = d.openSessions(db, kept, vols); err != nil {
		return err
	}
	defer d.sessions.close()
	if err := d.sessions.serve(&serve, cfg.Box); err != nil {
		return err
	}
	d.server = server.New(serve)
	defer d.server.Close()
	return d.run(ctx)
}

// parts are what a daemon opened, for its doors.
type parts struct {
	keys    *key.Set
	db      *store.SQLite
	network Network
	asked   *asking
	book    *team.Book
	kept    *images
	vols    volumes
}

// doors is what the server works with: sessions, which need more, apart.
func (d *daemon) doors(ctx context.Context, p parts) (_ server.Options, err error) {
	serve := server.Options{
		Manager: d.manager, Domain: d.cfg.Domain, Hosts: d.cfg.Hosts, MountDirs: d.cfg.MountDirs,
		PublicTraffic: d.cfg.E2BPublicTraffic, Private: d.private(), Secrets: named(p.network.Secrets, p.db), Browsers: d.browsers.port, Sockets: d.doorways.sockets.Path,
		Status: d.status, Version: d.deps.Version, Shutdown: func() { d.stop(errAsked) }, Log: d.log,
	}
	dialect := e2b.Options{
		Manager: d.manager, Meter: d.meter, Domain: d.cfg.Domain, Internet: d.cfg.E2BInternet, PublicTraffic: d.cfg.E2BPublicTraffic,
		Isolation: d.cfg.E2BIsolation, Sudo: d.cfg.E2BSudo, Log: d.log,
	}
	if p.network.Answer != nil {
		serve.Approvals = p.asked.desk
	}
	if p.kept != nil {
		p.kept.manager = d.manager
		serve.Images = p.kept
	}
	if serve.Tenants, err = d.openTenants(ctx, p.keys, p.book, p.db); err != nil {
		return serve, err
	}
	if dialect.Teams, err = d.openTeams(ctx, serve, p.db); err != nil {
		return serve, err
	}
	if p.vols.service != nil {
		p.vols.bind(d.manager, p.book)
		p.vols.service.Live(serve.Tenants.Lives)
		serve.Volumes, dialect.Volumes = p.vols.service, p.vols.service
		d.pods = pods{d.newPods(p.db, p.vols.service)}
		serve.Pods = d.pods.Service
		if p.network.Serve != nil {
			p.network.Serve(inside.Handlers{sandbox.ServicePods: d.podTools})
		}
	}
	if d.templates, err = d.newTemplates(p.db.Templates(), p.kept, p.book, serve.Tenants.Lives); err != nil {
		return serve, err
	}
	serve.Templates, serve.TemplateCache, dialect.Templates = d.templates, d.templates, d.templates
	serve.Dialect = e2b.New(dialect)
	return serve, nil
}

func (d *daemon) keys() (*key.Set, error) {
	if d.cfg.APIKeyFile == "" {
		return nil, nil
	}
	f, err := home.OpenTrusted(d.cfg.APIKeyFile)
	if err != nil {
		e := sandbox.Errorf(sandbox.Invalid, "api_key_file: %v", err)
		e.Err = err
		return nil, e
	}
	defer f.Close()
	set, err := key.Parse(f)
	if err != nil {
		e := sandbox.Errorf(sandbox.Invalid, "key file %s: %v", d.cfg.APIKeyFile, err)
		e.Err = err
		return nil, e
	}
	return set, nil
}

// run carries a daemon from its listeners to its last answer.
func (d *daemon) run(ctx context.Context) error {
	listeners, err := d.listen(ctx)
	if err != nil {
		return err
	}
	// Everything below ends in the reverse of this order: answers first,
	// while what they need is there.
	tend, stopTending := context.WithCancel(context.WithoutCancel(ctx))
	var tending sync.WaitGroup
	adopted := make(chan error, 1)
	tending.Go(func() { adopted <- d.adopt(tend) })
	ready, err := d.adoptFirst(ctx, adopted)
	if err == nil {
		tending.Go(func() {
			if err := d.manager.Run(tend); err != nil {
				d.fail("watch sandboxes", err)
			}
		})
		tending.Go(func() { d.meter.Run(tend) })
		tending.Go(func() {
			if err := d.sessions.run(tend); err != nil {
				d.fail("look after sessions", err)
			}
		})
		if !ready {
			tending.Go(func() {
				if err := <-adopted; err != nil {
					d.fail("adopt sandboxes", err)
				}
			})
		}
		if d.cfg.Auto {
			tending.Go(func() { d.leaveWhenIdle(ctx) })
		}
		err = d.serve(ctx, listeners)
	} else {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
	}
	d.sessions.close()
	d.pods.close()
	d.templates.Close() // builds end while their sandboxes can be removed
	d.manager.Close()
	stopTending()
	tending.Wait()
	return err
}

// listen opens the unix socket, and the TCP address where there is one.
func (d *daemon) listen(ctx context.Context) ([]net.Listener, error) {
	u, err := d.listenUnix(ctx)
	if err != nil {
		return nil, err
	}
	listeners := []net.Listener{u}
	if d.cfg.Listen != "" {
		t, err := listenTCP(ctx, d.cfg.Listen)
		if err != nil {
			return nil, errors.Join(err, u.Close())
		}
		listeners = append(listeners, boundCallers(t))
	}
	b, err := d.listenBox(ctx)
	if err != nil {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
		return nil, err
	}
	if b != nil {
		listeners = append(listeners, b)
	}
	for _, l := range listeners {
		d.addrs = append(d.addrs, l.Addr())
	}
	return listeners, nil
}

// serve answers until ctx ends, and then lets answers that are under way end.
func (d *daemon) serve(ctx context.Context, listeners []net.Listener) error {
	requests, cutRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cutRequests(nil)
	servers := serving{d.server.Unix(requests)}
	if d.cfg.Listen != "" {
		servers = append(servers, d.server.TCP(requests))
	}
	if d.cfg.Box.Listen != "" {
		servers = append(servers, d.sessions.boxServer(requests))
	}
	browsers := d.server.Browsers(requests)
	servers = append(servers, browsers)
	d.browsers.begin(ctx, browsers)
	defer d.doorways.CloseAll()
	defer d.browsers.end()
	var accepting sync.WaitGroup
	for i, l := range listeners {
		accepting.Go(func() {
			cert := d.cert
			if i > 0 && i == len(listeners)-1 && d.cfg.Box.Listen != "" {
				cert = d.boxCert
			}
			err := cert.serve(servers[i], l)
			if ctx.Err() == nil {
				d.fail("serve "+l.Addr().String(), err)
			}
			_ = l.Close() // which the server may have done
		})
	}
	d.log.Info("serving", "addresses", d.addrs, "version", d.deps.Version, "pid", os.Getpid())
	if d.deps.Ready != nil {
		d.deps.Ready(d.addrs)
	}
	if d.cfg.Box.Pipes != nil {
		accepting.Go(func() { d.servePipes(ctx) })
	}
	<-ctx.Done()
	cause := context.Cause(ctx)
	d.log.Info("leaving", "cause", cause)
	d.server.Leave()
	if err := retire(listeners); err != nil {
		d.log.Warn("stop listening", "error", err)
	}
	accepting.Go(d.sessions.hangUp)
	if !servers.shutdown(shortGrace) {
		cutRequests(sandbox.ErrClosing)
		accepting.Go(d.manager.Close) // interrupts what requests wait for
		if !servers.shutdown(longGrace) {
			d.log.Warn("requests did not end in time")
			servers.close()
		}
	}
	accepting.Wait()
	if f, ok := errors.AsType[*failure](cause); ok {
		return f
	}
	return nil
}

func (d *daemon) status(ctx context.Context) (api.Status, error) {
	list, err := d.manager.List(ctx, sandbox.Caller{Admin: true}, sandbox.Filter{})
	if err != nil {
		return api.Status{}, err
	}
	st := api.Status{
		Version: d.deps.Version, PID: os.Getpid(), Home: d.cfg.Dirs.State, Socket: reach.Socket(d.cfg.Dirs),
		Listen: []string{}, StartedAt: d.started.UTC(), Auto: d.cfg.Auto, Sandboxes: len(list), Backends: []string{},
	}
	for _, sb := range list {
		if sb.State == sandbox.StateRunning {
			st.Running++
		}
	}
	for _, a := range d.addrs {
		if a.Network() == "tcp" {
			st.Listen = append(st.Listen, a.String())
		}
	}
	for _, b := range d.deps.Backends {
		st.Backends = append(st.Backends, b.Name())
	}
	st.PoolReady, st.PoolSize = d.manager.Pool()
	return st, nil
}

// leaveWhenIdle ends the run once nobody has needed it for long enough.
func (d *daemon) leaveWhenIdle(ctx context.Context) {
	limit := time.Duration(d.cfg.IdleExit)
	tick := time.NewTicker(max(limit/8, time.Millisecond))
	defer tick.Stop()
	busy := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if boxes, holds := d.manager.Idle(); boxes+holds > 0 || d.templates.Busy() || d.sessions.busy() {
				busy = now
			}
			if min(now.Sub(busy), d.server.Idle(now)) >= limit {
				d.stop(errIdle)
				return
			}
		}
	}
}
