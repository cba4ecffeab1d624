package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/access"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/audit"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/session/quota/project"
	"github.com/carboy-sandbox/carboy/internal/skill"
	"github.com/carboy-sandbox/carboy/internal/volume"
)

// sessionRuntime is what the daemon keeps by keys of its callers, with the doors to
// them. Its methods do nothing where there are none.
type sessionRuntime struct {
	runtime *session.Runtime
	skills  *skill.Owners
	roots   *hostroot.Roots
	audit   *audit.Log
	profile sessions.Profile // of requests that name none
	log     *slog.Logger
	box     *langbot.Handler // nil: the dialect is not served
	sources sources
}

// openSessions makes the runtime of sessions, and what serves the dialect. It
// reads no session: see open.
func (d *daemon) openSessions(db session.Store, kept *images, vols volumes) (_ *sessionRuntime, err error) {
	b := d.cfg.Box
	if !b.enabled() {
		return nil, nil
	}
	dir := filepath.Join(d.cfg.Dirs.State, "box")
	processes := filepath.Join(dir, "processes")
	if err := os.MkdirAll(processes, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of sessions: %w", sandbox.DiskError(err, "the disk of "+dir))
	}
	if err := b.makeDirs(); err != nil {
		return nil, err
	}
	s := &sessionRuntime{log: d.log}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.profile, err = profile.Find(b.Profile, b.Profiles); err != nil {
		return nil, err
	}
	all, err := skill.Open(b.skillsRoot(d.cfg.Dirs.State), d.log)
	if err != nil {
		return nil, err
	}
	s.skills = &skill.Owners{Store: all, Own: ownUID()}
	s.audit = audit.Open(filepath.Join(d.cfg.Dirs.State, "audit"), d.log)
	o := session.Options{
		Manager: d.manager, Store: db, Skills: s.skills, Audit: s.audit.Add, Class: profile.Class, Config: b.Config, Log: d.log, ProcessDir: processes,
		Room:     func() uint64 { return disk.Room(dir) },
		Projects: new(project.Control),
		// Skills are brought: who had their directory would have those of all.
		Private: append(d.private(), b.skillsRoot(d.cfg.Dirs.State)),
	}
	if kept != nil {
		o.Images = func(ctx context.Context, c sandbox.Caller, name string) (string, error) {
			return kept.pin(ctx, c, name, b.Image)
		}
	}
	if vols.service != nil {
		o.Volumes = sessionVolumes(vols)
	}
	if s.runtime, err = session.New(o); err != nil {
		return nil, err
	}
	s.roots = s.runtime.Roots()
	s.sources = sources{roots: s.roots, runtime: s.runtime, volumes: vols.service, dir: filepath.Join(dir, "sources")}
	if err := emptied(s.sources.dir); err != nil {
		return nil, err
	}
	if b.serves() {
		err = d.openBox(s, dir)
	}
	return s, err
}

// ownUID is the daemon's own user, as an owner.
func ownUID() string { return "uid:" + strconv.Itoa(os.Geteuid()) }

// sessionsOff is why there are no sessions where the configuration says so.
const sessionsOff = "Box runtime is disabled in config (box.enabled = false)"

// serve has the API offer sessions.
func (s *sessionRuntime) serve(o *server.Options, b Box) error {
	if s == nil {
		o.SessionsOff = sessionsOff
		return nil
	}
	o.Skill, o.HasSkill = s.skills.Pack, s.skills.Has
	quota := &b.WorkspaceQuotaMB
	if b.WorkspaceQuotaMB == 0 {
		quota = nil
	}
	a, err := access.New(access.Options{
		Runtime: s.runtime, Skills: s.skills, Profile: b.Profile, Profiles: b.Profiles, WorkspaceQuotaMB: quota,
		Roots: s.roots, Log: o.Log,
	})
	if err != nil {
		return err
	}
	o.Sessions, o.SessionMetrics = a, s.runtime.Metrics
	return nil
}

// private are the daemon's own directories.
func (d *daemon) private() []string {
	return []string{d.cfg.Dirs.State, d.cfg.Dirs.Run, d.cfg.Dirs.Cache, d.cfg.Dirs.Config}
}

func (d *daemon) openBox(s *sessionRuntime, dir string) error {
	token, err := d.cfg.Box.token()
	if err != nil {
		return err
	}
	c := d.cfg.Box.WithDefaults()
	warnOfPython(d.log, c.Image, s.roots.DefaultWorkspace() != "", programs)
	s.box, err = langbot.New(langbot.Options{
		Sessions: s.runtime, Attach: s.attach, Skills: s.skillsOf, Outside: s.sources.open,
		Owner: ownUID(), Token: token, Trusted: ownUsers, Instance: d.cfg.Box.Instance, Hosts: d.cfg.boxHosts(),
		Shared: s.roots.DefaultWorkspace(), Ledger: filepath.Join(dir, "ledger.jsonl"),
		Admission: d.cfg.Box.Admission, Readiness: d.boxReadiness, Limits: c.Limits, Log: d.log,
	})
	if err != nil || d.cfg.Box.Host == nil {
		return err
	}
	ignored, err := s.box.Init(d.cfg.Box.Host)
	if err == nil && len(ignored) > 0 {
		d.log.Info("of the host's configuration this was left out, as it is not the host's to say", "fields", ignored)
	}
	return err
}

// boxReadiness says what holds of what admission asks for: it is what the walls
// have that a session may name, none of which has less.
func (d *daemon) boxReadiness(context.Context) map[string]bool {
	offer := d.manager.Offer()
	walls := len(offer.Walls) > 0
	return map[string]bool{
		"workspace_mount": offer.Volumes, "cgroup_v2": walls, "namespace_isolation": walls, "mount_isolation": walls,
		"network_isolation": walls, "hard_workspace_quota": offer.Volumes, "hard_skill_storage_quota": walls,
		"bounded_ephemeral_storage": walls, "inode_quota": offer.Volumes,
	}
}

func (s *sessionRuntime) attach(ctx context.Context, c sandbox.Caller, id, pid string, takeover bool) (langbot.Attachment, error) {
	if takeover {
		return boxAttachment(s.runtime.TakeOver(ctx, c, id, pid))
	}
	return boxAttachment(s.runtime.Attach(ctx, c, id, pid))
}

// boxAttachment keeps a nil attachment from becoming one that is not nil.
func boxAttachment[A langbot.Attachment](a A, err error) (langbot.Attachment, error) {
	if err != nil {
		return nil, err
	}
	return a, nil
}

func (s *sessionRuntime) skillsOf(owner string) (langbot.Skills, error) {
	of, err := s.skills.Of(owner)
	if err != nil {
		return nil, err
	}
	return of, nil
}

// open takes over the sessions of an earlier daemon. The manager has adopted
// its sandboxes.
func (s *sessionRuntime) open(ctx context.Context) error {
	if s == nil {
		return nil
	}
	if err := s.runtime.Open(ctx); err != nil {
		return fmt.Errorf("open sessions: %w", err)
	}
	if s.box != nil {
		s.keepWarm(ctx)
	}
	return nil
}

// keepWarm makes what a host's first sessions need before they come: it
// waits for nothing, and what can't be warm is made when it is asked for.
func (s *sessionRuntime) keepWarm(ctx context.Context) {
	spec, _, err := profile.Build(map[string]any{"session_id": "warm"}, s.profile, profile.Defaults{HostPath: s.roots.DefaultWorkspace()})
	if err == nil {
		want, _ := profile.Translate(spec)
		err = s.runtime.KeepWarm(ctx, sandbox.Caller{Owner: ownUID(), Admin: true}, want)
	}
	if err != nil && sandbox.KindOf(err) != sandbox.Unsupported {
		s.log.Warn("keep sandboxes for sessions warm", "error", err)
	}
}

// run does what is done without being asked, until ctx ends.
func (s *sessionRuntime) run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	done := make(chan error, 2)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { done <- s.runtime.Run(ctx) }()
	go func() {
		if s.box == nil {
			<-ctx.Done()
			done <- nil
			return
		}
		done <- s.box.Run(ctx)
	}()
	err := <-done
	cancel()
	return errors.Join(err, <-done)
}

// busy reports whether a host is connected.
func (s *sessionRuntime) busy() bool { return s != nil && s.box != nil && s.box.Busy() }

// hangUp ends the hosts' connections, with what they wait for.
func (s *sessionRuntime) hangUp() {
	if s != nil && s.box != nil {
		_ = s.box.Close() // it is logged where it matters
	}
}

func (s *sessionRuntime) close() {
	if s == nil {
		return
	}
	s.hangUp()
	if s.runtime != nil {
		s.runtime.Close()
	}
	if s.audit != nil {
		_ = s.audit.Close() // all of it was written
	}
}

// listenBox opens the dialect's address; nil where there is none.
func (d *daemon) listenBox(ctx context.Context) (net.Listener, error) {
	if d.cfg.Box.Listen == "" {
		return nil, nil
	}
	l, err := listenTCP(ctx, d.cfg.Box.Listen)
	if err != nil {
		return nil, err
	}
	return boundCallers(l), nil
}

// boxServer serves the dialect. A connection that says nothing is closed, and one
// that does not end what it began to say; one that was upgraded has its own
// rules.
func (s *sessionRuntime) boxServer(ctx context.Context) *http.Server {
	var one http.Protocols
	one.SetHTTP1(true) // no WebSocket is upgraded in HTTP/2
	return &http.Server{
		Protocols: &one,
		Handler: &wire.Watch{Next: s.box, Log: s.log, Panicked: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "internal error; the runtime's log has it", http.StatusInternalServerError)
		}},
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, ConnContext: withConn,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // of what strangers send
	}
}

// servePipes speaks with the host that started the daemon, and makes the daemon
// leave when it is gone.
func (d *daemon) servePipes(ctx context.Context) {
	p := d.cfg.Box.Pipes
	err := d.sessions.box.ServeConn(ctx, rpc.NewStdio(p.In, p.Out, p.Close))
	if err != nil && ctx.Err() == nil {
		d.log.Warn("the host's pipes", "err", err)
	}
	d.stop(errHostGone)
}

// pin implements what sessions ask of images: a name that is not here yet is
// pulled, as the original does. The configured one is everybody's: where the
// caller has none of that name, it is the daemon's own user's, who chose it.
func (i *images) pin(ctx context.Context, c sandbox.Caller, name, configured string) (string, error) {
	if name == sandbox.DefaultImage {
		return name, nil
	}
	img, err := i.store.Find(ctx, c.Owner, name)
	if sandbox.KindOf(err) == sandbox.NotFound && name == configured {
		img, err = i.store.Find(ctx, ownUID(), name)
	}
	if sandbox.KindOf(err) == sandbox.NotFound {
		img, err = i.store.Pull(ctx, c.Owner, name, nil, nil)
	}
	if err != nil {
		return "", err
	}
	base, _, _ := strings.Cut(img.Name, "@")
	if p := base + "@" + img.Digest; sandbox.ImageDigest(p) != "" {
		return p, nil
	}
	digits := strings.TrimPrefix(img.Digest, "sha256:")
	return digits[:min(12, len(digits))] + "@" + img.Digest, nil
}

// sessionVolumes shows volumes to sessions in their own terms.
type sessionVolumes struct{ service *volume.Service }

// Ensure implements session.Volumes. A smaller quota than a volume can have gets
// the smallest, and the session says so.
func (v sessionVolumes) Ensure(ctx context.Context, owner, name string, size, inodes int64) (session.Volume, error) {
	c := sandbox.Caller{Owner: owner}
	if size > 0 {
		size = max(size, volume.MinSize)
	}
	is, err := v.find(ctx, c, name)
	if sandbox.KindOf(err) == sandbox.NotFound {
		is, err = v.service.Create(ctx, c, volume.New{Name: name, Size: size, Inodes: inodes})
		if sandbox.KindOf(err) == sandbox.Conflict { // somebody was quicker
			is, err = v.find(ctx, c, name)
		}
	}
	if err != nil {
		return session.Volume{}, err
	}
	out := session.Volume{ID: is.ID, Size: is.Size, Inodes: is.Inodes, Unenforced: is.Unenforced}
	if is.Size >= size || is.Unenforced != "" {
		return out, nil
	}
	grown, err := v.service.Grow(ctx, c, is.ID, size)
	if ctx.Err() != nil {
		return session.Volume{}, context.Cause(ctx)
	}
	if out.Grown = err == nil; err != nil {
		out.Kept = err.Error()
	}
	out.Size, out.Inodes = grown.Size, grown.Inodes
	return out, nil
}

// find finds a volume by its name alone: one's ID may be another's name.
func (v sessionVolumes) find(ctx context.Context, c sandbox.Caller, name string) (volume.Volume, error) {
	for _, is := range v.service.List(ctx, c) {
		if is.Name == name && is.Owner == c.Owner {
			return is, nil
		}
	}
	return volume.Volume{}, sandbox.Errorf(sandbox.NotFound, "volume %.80q: not found", name)
}
