package server

import (
	"cmp"
	"context"
	"maps"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/hostdir"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// maxMounts bounds how many directories are opened for one request.
const maxMounts = 64

// specs reads what is to be created.
type specs struct {
	m interface {
		GetSnapshot(ctx context.Context, c sandbox.Caller, id string) (sandbox.Snapshot, error)
	}
	images    *imageAPI
	volumes   volumeAPI
	templates Templates // nil: there is only the base
	mountDirs []string  // as Options has them
	private   []string
	uid       uint32 // this process's
}

// read turns a request into a Spec. Paths of the host become the directories
// that they lead to for this caller.
func (s *specs) read(ctx context.Context, p *auth.Principal, req api.CreateRequest) (sandbox.Spec, error) {
	ttl, err := millis("ttl_ms", req.TTLMillis)
	if err != nil {
		return sandbox.Spec{}, err
	}
	spec := sandbox.Spec{
		Name: req.Name, Isolation: req.Isolation, Stronger: req.Stronger, User: req.User, Snapshot: req.Snapshot,
		Limits: limits(req.Limits), Env: req.Env, Labels: req.Labels,
		ReadOnlyRoot: req.ReadOnlyRoot,
		TTL:          ttl, OnExpiry: sandbox.OnExpiry(req.OnExpiry), Ephemeral: req.Ephemeral, Project: (*sandbox.Project)(req.Project),
		Remotes: req.Remotes, RemotesPrivate: p.PrivateNetwork() && len(req.Remotes) > 0, MaySpawn: req.MaySpawn,
		// Nobody here has said that its ports are for everybody.
		Traffic: sandbox.Traffic{Restricted: true},
	}
	if err := sandbox.CheckCallersLabels(req.Labels); err != nil {
		return sandbox.Spec{}, err
	}
	for _, wall := range append([]string{req.Isolation}, req.Stronger...) {
		if wall != "" && !sandbox.ValidWall(wall) {
			return sandbox.Spec{}, sandbox.Errorf(sandbox.Invalid, "isolation %.80q: there is no such wall", wall).
				WithHint("%s or %s", sandbox.WallGVisor, sandbox.WallProcess)
		}
	}
	if err := mayName(p, req.Remotes); err != nil {
		return sandbox.Spec{}, err
	}
	if err := setNetwork(&req, &spec); err != nil {
		return sandbox.Spec{}, err
	}
	if !p.PrivateNetwork() {
		if err := netspec.Private(spec.Policy, spec.Secrets); err != nil {
			return sandbox.Spec{}, err
		}
	}
	if req.Template != "" {
		err = s.fromTemplate(ctx, p, req, &spec)
	} else {
		spec.Image, err = s.base(ctx, p, req.Image, req.Snapshot)
	}
	if err != nil {
		return sandbox.Spec{}, err
	}
	if spec.Workspace, err = s.workspace(ctx, p, req.Workspace); err != nil {
		return sandbox.Spec{}, err
	}
	if spec.Publish, err = published(p, req.Publish); err != nil {
		return sandbox.Spec{}, err
	}
	if spec.Mounts, err = s.mounts(ctx, p, req.Mounts); err != nil {
		return sandbox.Spec{}, err
	}
	if err = s.volumes.homes(ctx, p, req.Homes, &spec); err == nil {
		err = s.volumes.caches(ctx, p, req.Caches, req.Env, &spec)
	}
	if err != nil {
		s.volumes.discard(ctx, p, &spec)
		return sandbox.Spec{}, err
	}
	return spec, nil
}

// fromTemplate fills in what the template has that req names.
func (s *specs) fromTemplate(ctx context.Context, p *auth.Principal, req api.CreateRequest, spec *sandbox.Spec) error {
	if req.Image != "" || req.Snapshot != "" {
		return sandbox.Errorf(sandbox.Invalid, "template: it has an image of its own").WithHint("leave image and snapshot out")
	}
	b := template.BaseBuild()
	if s.templates != nil {
		var err error
		if b, err = s.templates.Resolve(ctx, p.Caller, req.Template); err != nil {
			return err
		}
	} else if req.Template != template.Base {
		return sandbox.Errorf(sandbox.NotFound, "template %.80q: not found", req.Template)
	}
	if _, err := s.images.resolve(ctx, p, cmp.Or(b.Image, sandbox.DefaultImage)); b.Image == sandbox.DefaultImage && err != nil {
		return err
	}
	b.Apply(spec)
	return nil
}

// published are the ports that p may have on this machine: a key is of somebody
// who is no user of it.
func published(p *auth.Principal, all []api.Publish) (out []sandbox.Publish, err error) {
	if len(all) > 0 && p.Peer == nil {
		return nil, sandbox.Errorf(sandbox.Denied, "publish: a key opens no port on the daemon's machine").
			WithHint("leave publish out: carboy forward opens a port where you are")
	}
	for _, one := range all {
		out = append(out, sandbox.Publish{Port: one.Port, HostPort: one.HostPort})
	}
	return out, nil
}

// mayName fails where a remote's key is a file or a socket of this machine, and p no user of it.
func mayName(p *auth.Principal, remotes []api.Remote) error {
	for i := range remotes {
		if k := remotes[i].Key; p.Peer == nil && k.Provider != "" && k.Provider != sandbox.KeySecret {
			return sandbox.Errorf(sandbox.Denied, "remote %.80q: its key lies on the daemon's machine, and files there are for its users", remotes[i].Name).
				WithHint("keep the key by carboy secret add, and name that: {provider: %s, name: NAME}", sandbox.KeySecret)
		}
	}
	return nil
}

func limits(l api.Limits) sandbox.Limits {
	out := sandbox.Limits{CPUs: l.CPUs, Memory: l.Memory, PIDs: l.PIDs, Disk: l.Disk, Inodes: l.Inodes}
	for name, set := range map[string]bool{
		sandbox.LimitCPUs: l.CPUs != 0, sandbox.LimitMemory: l.Memory != 0, sandbox.LimitPIDs: l.PIDs != 0,
		sandbox.LimitDisk: l.Disk != 0, sandbox.LimitInodes: l.Inodes != 0,
	} {
		if !set {
			continue
		}
		if out.Explicit == nil {
			out.Explicit = map[string]bool{}
		}
		out.Explicit[name] = true
	}
	return out
}

func (s *specs) workspace(ctx context.Context, p *auth.Principal, w *api.Workspace) (sandbox.Workspace, error) {
	if w == nil || *w == (api.Workspace{}) {
		return sandbox.Workspace{}, nil
	}
	out := sandbox.Workspace{Mode: sandbox.WorkspaceMode(w.Mode), ReadOnly: w.ReadOnly}
	var err error
	if w.Volume != "" {
		if out.Volume, out.VolumeName, err = s.volumes.named(ctx, p, w.Volume); err != nil {
			return out, err
		}
	}
	if w.Source == "" {
		return out, nil // the domain knows which modes need none
	}
	out.Source, err = hostdir.Open(s.rules(p, nil), w.Source, out.Mode == sandbox.WorkspaceWritable)
	return out, err
}

func (s *specs) mounts(ctx context.Context, p *auth.Principal, mounts []api.Mount) ([]sandbox.Mount, error) {
	if len(mounts) > maxMounts {
		return nil, sandbox.Errorf(sandbox.Invalid, "mounts: more than %d", maxMounts)
	}
	var out []sandbox.Mount
	rules := s.rules(p, s.mountDirs)
	for _, m := range mounts {
		if m.Own && m.Source == "" {
			out = append(out, sandbox.Mount{Own: true, Owner: m.Owner, Target: m.Target, ReadOnly: m.ReadOnly, VolumeName: m.Volume})
			continue
		}
		if m.Volume != "" {
			v, err := s.volumes.mount(ctx, p, m)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
			continue
		}
		dir, err := hostdir.Open(rules, m.Source, !m.ReadOnly)
		if err != nil {
			return nil, err
		}
		out = append(out, sandbox.Mount{Source: dir, Own: m.Own, Owner: m.Owner, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return out, nil
}

// readable finds a directory of the host that p may read, for a volume that begins as a copy of it.
func (s *Server) readable(p *auth.Principal, path string) (sandbox.HostDir, error) {
	rules := (&specs{private: s.o.Private, uid: s.uid}).rules(p, nil)
	return hostdir.Open(rules, path, false)
}

// rules say what p may name: below a key's own paths; over the unix socket
// below dirs, or anything of the caller's where dirs is nil.
func (s *specs) rules(p *auth.Principal, dirs []string) hostdir.Rules {
	r := hostdir.Rules{Deny: s.private}
	if p.Peer == nil {
		r.Below, r.Blind = []string{}, true
		if p.Key != nil {
			r.Below = append(r.Below, p.Key.Paths...)
		}
		return r
	}
	if p.Peer.UID != s.uid {
		r.As = p.Peer
	}
	if dirs != nil {
		r.Below = expandHome(dirs, p.Peer.UID)
	}
	return r
}

// expandHome replaces "~" by a user's home. Without one it stands for nothing.
func expandHome(dirs []string, uid uint32) []string {
	out := make([]string, 0, len(dirs))
	for _, d := range dirs {
		rest, ok := strings.CutPrefix(d, "~")
		if !ok {
			out = append(out, d)
			continue
		}
		u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
		if err != nil || !filepath.IsAbs(u.HomeDir) || filepath.Clean(u.HomeDir) == "/" {
			continue
		}
		out = append(out, filepath.Join(u.HomeDir, rest))
	}
	return out
}

// view is a sandbox as its owner sees it: without the token, and without the
// values of its environment.
func view(ctx context.Context, sb *sandbox.Sandbox, ports []sandbox.PortState, configs *imageConfigs) api.Sandbox {
	sp := sb.Spec
	image, digest := splitImage(sp.Image)
	out := api.Sandbox{
		ID: sb.ID, Name: sp.Name, Owner: sb.Owner,
		State: string(sb.State), Ended: string(sb.Ended), Lost: sb.Lost, Suspended: sb.Suspended,
		Isolation: cmp.Or(sb.Backend, sp.Isolation), IsolationAsked: sp.Isolation, Stronger: sp.Stronger, IsolationReason: sb.Why,
		Image: image, ImageDigest: digest, ImageConfig: configs.of(ctx, digest),
		Snapshot: sp.Snapshot, User: sp.User, Network: sp.Network, Secrets: sp.Secrets, Caches: sp.Caches,
		ReadOnlyRoot: sp.ReadOnlyRoot, Sudo: sp.Sudo,
		Workspace: api.Workspace{
			Mode: string(sp.Workspace.Mode), Source: sp.Workspace.Source.Path, Volume: sp.Workspace.VolumeName, ReadOnly: sp.Workspace.ReadOnly,
		},
		Mounts: make([]api.Mount, 0, len(sp.Mounts)),
		Limits: api.Limits{
			CPUs: sp.Limits.CPUs, Memory: sp.Limits.Memory, PIDs: sp.Limits.PIDs,
			Disk: sp.Limits.Disk, Inodes: sp.Limits.Inodes,
		},
		Env: slices.AppendSeq(make([]string, 0, len(sp.Env)), maps.Keys(sp.Env)), Labels: sp.Labels,
		TTLMillis: sp.TTL.Milliseconds(), OnExpiry: string(sp.OnExpiry), Ephemeral: sp.Ephemeral, Project: (*api.Project)(sp.Project), Agent: (*api.Agent)(sp.Agent), Remotes: sp.Remotes, MaySpawn: sp.MaySpawn, Kept: sb.Kept,
		Enforced:  make([]api.Enforcement, 0, len(sb.Enforced)),
		CreatedAt: sb.CreatedAt, StartedAt: sb.StartedAt, EndedAt: sb.EndedAt, ExpiresAt: sb.ExpiresAt,
		Starts: sb.Starts,
	}
	if h := sb.Held; h != nil {
		out.Held = &api.DiskHeld{Since: h.Since, Need: h.Need, Path: h.Path}
	}
	out.DiskBroken = sb.DiskBroken
	out.Next = pending(sb)
	for _, a := range sb.Access {
		out.Locked = append(out.Locked, api.Access(a))
	}
	slices.Sort(out.Env)
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	for _, m := range sp.Mounts {
		out.Mounts = append(out.Mounts, api.Mount{Source: m.Source.Path, Volume: m.VolumeName, Own: m.Own, Owner: m.Owner, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	for _, one := range ports {
		out.Published = append(out.Published, api.PublishedPort{Port: one.Port, HostPort: one.HostPort, Open: one.Open, Reason: one.Reason})
	}
	if len(ports) == 0 { // it does not run
		for _, one := range sp.Publish {
			out.Published = append(out.Published, api.PublishedPort{Port: one.Port, HostPort: one.HostPort})
		}
	}
	for _, e := range sb.Enforced {
		out.Enforced = append(out.Enforced, api.Enforcement{Promise: e.Promise, Enforced: e.Enforced, Mechanism: e.Mechanism, Reason: e.Reason})
	}
	return out
}

// base resolves what a create is to lie over: an image, or a snapshot and the
// image below it, which need not be named then. Who may not use the host's own
// programs may not by way of a snapshot either.
func (s *specs) base(ctx context.Context, p *auth.Principal, image, snapshot string) (string, error) {
	if snapshot == "" || image != "" {
		return s.images.resolve(ctx, p, image)
	}
	if p.HostImage() {
		return "", nil // the domain knows
	}
	snap, err := s.m.GetSnapshot(ctx, p.Caller, snapshot)
	if err != nil || snap.Image != sandbox.DefaultImage {
		return snap.Image, err
	}
	return s.images.resolve(ctx, p, sandbox.DefaultImage)
}
