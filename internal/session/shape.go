package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/hostroot"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
	"github.com/carboy-sandbox/carboy/internal/skill"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	idPrefix   = "bx_"
	namePrefix = "box-"

	// Label marks a sandbox that is a session's; its value is the key.
	Label = sandbox.ReservedLabels + "session"
)

func newID(rand io.Reader) (string, error) {
	sb, err := sandbox.NewID(rand)
	if err != nil {
		return "", err
	}
	return idPrefix + sb[len(sb)-20:], nil
}

// shaper decides what a session's sandbox is to be, by what was asked and by what
// the operator allows. It makes nothing but volumes, and directories that are
// asked for; it knows no session that is there. It is safe for concurrent use,
// and its locks are held over nothing else's.
type shaper struct {
	c        Config
	manager  Manager // tells walls and the owner's limits
	images   func(ctx context.Context, c sandbox.Caller, name string) (pinned string, err error)
	volumes  Volumes
	projects Projects
	skills   Skills
	roots    *hostroot.Roots
	log      *slog.Logger

	randMu sync.Mutex
	rand   io.Reader

	mu       sync.Mutex
	declared map[string][]string // what clients call their own, by owner
}

func newShaper(o Options, c Config, roots *hostroot.Roots, log *slog.Logger) *shaper {
	s := &shaper{
		c: c, manager: o.Manager, images: o.Images, volumes: o.Volumes, projects: o.Projects, skills: o.Skills,
		roots: roots, log: log, rand: o.Rand, declared: map[string][]string{},
	}
	if s.rand == nil {
		s.rand = rand.Reader
	}
	return s
}

// shape turns what was asked of a session into what its sandbox is to be.
func (p *shaper) shape(ctx context.Context, c sandbox.Caller, spec Spec, f *found) (sandbox.Spec, record.Session, error) {
	p.randMu.Lock()
	recID, err := newID(p.rand)
	p.randMu.Unlock()
	if err != nil {
		return sandbox.Spec{}, record.Session{}, err
	}
	rec := record.Session{
		ID: recID, Owner: c.Owner, Key: spec.Key, Sandbox: namePrefix + strings.TrimPrefix(recID, idPrefix), Spec: spec.Lasting(),
	}
	want := sandbox.Spec{
		Name: rec.Sandbox, Isolation: p.wall(spec), User: sandbox.DefaultUser, Network: spec.Network,
		ReadOnlyRoot: spec.ReadOnlyRoot, Labels: map[string]string{Label: spec.Key},
		Limits: sandbox.Limits{
			CPUs: spec.CPUs, Memory: spec.Memory, PIDs: spec.PIDs,
			Explicit: map[string]bool{sandbox.LimitCPUs: true, sandbox.LimitMemory: true, sandbox.LimitPIDs: true},
		},
	}
	// Where none of the owner's may last for long, this one is stopped in time,
	// and started by its next call.
	want.TTL = min(p.manager.Quota(c.Owner).TTL, sandbox.MaxTTL)
	if err := p.allows(want.Isolation); err != nil {
		return want, rec, err
	}
	if walls := p.manager.Offer().Walls; !slices.Contains(walls, want.Isolation) {
		return want, rec, noWall(want.Isolation, walls)
	}
	if want.Image, err = p.image(ctx, c, spec.Image); err != nil {
		return want, rec, err
	}
	rec.Image = want.Image
	if err := p.place(ctx, c, spec, &want, &rec, f); err != nil {
		return want, rec, err
	}
	want.Mounts = append(want.Mounts, sandbox.Mount{Own: true, Target: tools.SkillsPath})
	return want, rec, nil
}

func (p *shaper) wall(spec Spec) string {
	return cmp.Or(spec.Isolation, p.c.Isolation)
}

// allows refuses a wall that is weaker than the operator's, unless that names it
// too: who asks for a session does not decide what the host is worth.
func (p *shaper) allows(wall string) error {
	if !sandbox.WeakerWall(wall, p.c.Isolation) || slices.Contains(p.c.AllowedIsolation, wall) || weak.On(weak.SessionWallOpen) {
		return nil
	}
	return fault.Invalid("isolation %s: it is weaker than %s, which sessions have here", wall, p.c.Isolation).
		WithHint("leave it out, or have box.allowed_isolation name it")
}

// imageName is the configured one where a Spec names none.
func (p *shaper) imageName(name string) string { return cmp.Or(name, p.c.Image) }

// image pins an image.
func (p *shaper) image(ctx context.Context, c sandbox.Caller, name string) (string, error) {
	name = p.imageName(name)
	if p.images == nil {
		if name == sandbox.DefaultImage {
			return name, nil
		}
		return "", sandbox.Errorf(sandbox.Unsupported, "image %.200q: there is only the machine's own here", name).
			WithHint("leave the image out")
	}
	return p.images(ctx, c, name)
}

// place finds what is to be seen at the workspace's place, and at the other
// mounts'.
func (p *shaper) place(ctx context.Context, c sandbox.Caller, spec Spec, want *sandbox.Spec, rec *record.Session, f *found) error {
	w, err := p.workspace(ctx, c, spec, want, f)
	if err != nil {
		return err
	}
	rec.Workspace = w
	for _, m := range p.realMounts(c.Owner, spec.Mounts) {
		at := sandbox.Mount{Target: m.Target, ReadOnly: m.Mode == request.ReadOnly}
		dir, vol, err := p.locate(ctx, c, m.HostPath, m.Mode, 0, 0)
		if err != nil {
			return err
		}
		if vol != nil {
			at.Volume, at.VolumeName = vol.id, vol.name
			f.say("%s", vol.notice(m.HostPath, m.Target))
		} else {
			at.Source = dir
		}
		want.Mounts = append(want.Mounts, at)
	}
	return nil
}

// workspace decides what the workspace is, by the rules of Config.
func (p *shaper) workspace(ctx context.Context, c sandbox.Caller, spec Spec, want *sandbox.Spec, f *found) (record.Workspace, error) {
	limit, inodes := spec.Workspace.Size, spec.Workspace.Inodes
	hard := spec.Workspace.Quota == request.QuotaHard || p.c.Quota == request.QuotaHard
	at := path.Clean(spec.Workspace.Target)
	if !spec.Workspace.OfHost() {
		if at != sandbox.WorkspacePath && !strings.HasPrefix(at, sandbox.WorkspacePath+"/") {
			return record.Workspace{}, fault.Invalid("mount_path %q: a workspace of the session's own is at %s, or below", at, sandbox.WorkspacePath).
				WithHint("leave mount_path out, or name a host_path to be seen there")
		}
		return private(limit, inodes, want), nil
	}
	dir, vol, err := p.locate(ctx, c, spec.Workspace.HostPath, spec.Workspace.Mode, limit, inodes)
	if err != nil {
		return record.Workspace{}, err
	}
	if vol == nil && at == sandbox.WorkspacePath {
		if err := canHold(dir, spec.Workspace.HostPath); err != nil {
			return record.Workspace{}, err
		}
	}
	w := record.Workspace{Kind: record.HostDir, Dir: dir, Limit: limit, Inodes: inodes}
	bounded := limit > 0 || inodes > 0
	switch {
	case vol != nil:
		w.Kind, w.Volume = record.Volume, vol.id
		f.say("%s", vol.notice(spec.Workspace.HostPath, at))
		w.Quota = vol.quota(bounded)
		if text := vol.sized(spec.Workspace.HostPath, limit, inodes); text != "" {
			f.say("%s", text)
		}
	case bounded:
		if w, err = p.enforced(ctx, w, spec, hard, f); err != nil {
			return record.Workspace{}, err
		}
	}
	if hard && bounded && w.Quota != request.QuotaHard {
		return record.Workspace{}, onlySoft(spec.Workspace.HostPath, "its volume is not kept to its size")
	}
	show(want, w, vol, at, spec.Workspace.Mode == request.ReadOnly)
	return w, nil
}

// show puts a workspace where it is to be seen. What is not at the workspace's
// own place is a mount.
func show(want *sandbox.Spec, w record.Workspace, vol *owned, at string, readOnly bool) {
	if at != sandbox.WorkspacePath {
		m := sandbox.Mount{Source: w.Dir, Target: at, ReadOnly: readOnly}
		if vol != nil {
			m = sandbox.Mount{Volume: vol.id, VolumeName: vol.name, Target: at, ReadOnly: readOnly}
		}
		want.Mounts = append(want.Mounts, m)
		return
	}
	switch {
	case vol != nil:
		want.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceVolume, Volume: vol.id, VolumeName: vol.name, ReadOnly: readOnly}
	case readOnly:
		want.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceReadOnly, Source: w.Dir}
	default:
		want.Workspace = sandbox.Workspace{Mode: sandbox.WorkspaceWritable, Source: w.Dir}
	}
}

// private is a workspace of the sandbox's own, whose disk holds a quota.
func private(limit, inodes int64, want *sandbox.Spec) record.Workspace {
	w := record.Workspace{Kind: record.Private, Limit: limit, Inodes: inodes}
	want.Workspace.Mode = sandbox.WorkspacePrivate
	if limit > 0 {
		want.Limits.Disk, want.Limits.Explicit[sandbox.LimitDisk] = limit, true
		w.Quota = request.QuotaHard
	}
	if inodes > 0 {
		want.Limits.Inodes, want.Limits.Explicit[sandbox.LimitInodes] = inodes, true
		w.Quota = request.QuotaHard
	}
	return w
}

// realMounts are those that are no skills, and that are mounted at all.
func (p *shaper) realMounts(owner string, mounts []request.Mount) []request.Mount {
	var list []request.Mount
	for _, m := range mounts {
		if m.Mode == request.NotMounted {
			continue
		}
		if _, ok, _ := p.skillOf(owner, m); !ok {
			list = append(list, m)
		}
	}
	return list
}

func (p *shaper) skillOf(owner string, m request.Mount) (skill.Placed, bool, error) {
	if p.skills == nil {
		return skill.Placed{}, false, nil
	}
	return p.skills.Place(owner, m)
}

// uidOf returns whose directories an owner may be shown; nil: anyone's.
func uidOf(owner string) *uint32 {
	n, ok := strings.CutPrefix(owner, "uid:")
	if !ok {
		return nil
	}
	uid, err := strconv.ParseUint(n, 10, 32)
	if err != nil {
		return nil
	}
	u := uint32(uid)
	return &u
}
