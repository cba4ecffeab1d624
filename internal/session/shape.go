package session

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
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

// shape turns what was asked of a session into what its sandbox is to be.
func (r *Runtime) shape(ctx context.Context, c sandbox.Caller, spec Spec, f *found) (sandbox.Spec, record.Session, error) {
	recID, err := r.random(newID)
	if err != nil {
		return sandbox.Spec{}, record.Session{}, err
	}
	rec := record.Session{
		ID: recID, Owner: c.Owner, Key: spec.Key, Sandbox: namePrefix + strings.TrimPrefix(recID, idPrefix), Spec: spec.Lasting(),
	}
	want := sandbox.Spec{
		Name: rec.Sandbox, Isolation: r.wall(spec), User: sandbox.DefaultUser, Network: spec.Network,
		ReadOnlyRoot: spec.ReadOnlyRoot, Labels: map[string]string{Label: spec.Key},
		Limits: sandbox.Limits{
			CPUs: spec.CPUs, Memory: spec.Memory, PIDs: spec.PIDs,
			Explicit: map[string]bool{sandbox.LimitCPUs: true, sandbox.LimitMemory: true, sandbox.LimitPIDs: true},
		},
	}
	// Where none of the owner's may last for long, this one is stopped in time,
	// and started by its next call.
	want.TTL = min(r.o.Manager.Quota(c.Owner).TTL, sandbox.MaxTTL)
	if err := r.allows(want.Isolation); err != nil {
		return want, rec, err
	}
	if walls := r.o.Manager.Offer().Walls; !slices.Contains(walls, want.Isolation) {
		return want, rec, noWall(want.Isolation, walls)
	}
	if want.Image, err = r.image(ctx, c, spec.Image); err != nil {
		return want, rec, err
	}
	rec.Image = want.Image
	if err := r.place(ctx, c, spec, &want, &rec, f); err != nil {
		return want, rec, err
	}
	want.Mounts = append(want.Mounts, sandbox.Mount{Own: true, Target: tools.SkillsPath})
	return want, rec, nil
}

// KeepWarm has sandboxes that would do for sessions of spec be ready before
// anyone asks for one. It fails with Unsupported where there can be none: with
// a network, or anything of the host in it.
func (r *Runtime) KeepWarm(ctx context.Context, c sandbox.Caller, spec Spec) error {
	ctx, done, err := r.begin(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	if err := request.Check(spec); err != nil {
		return err
	}
	want, _, err := r.shape(ctx, c, spec, new(found))
	if err != nil {
		return tidied(err, spec.Key, "keep one warm")
	}
	want.Name, want.Labels = "", nil
	return r.o.Manager.KeepWarm(ctx, c, want)
}

func (r *Runtime) wall(spec Spec) string {
	return cmp.Or(spec.Isolation, r.c.Isolation)
}

// allows refuses a wall that is weaker than the operator's, unless that names it
// too: who asks for a session does not decide what the host is worth.
func (r *Runtime) allows(wall string) error {
	if !sandbox.WeakerWall(wall, r.c.Isolation) || slices.Contains(r.c.AllowedIsolation, wall) || weak.On(weak.SessionWallOpen) {
		return nil
	}
	return fault.Invalid("isolation %s: it is weaker than %s, which sessions have here", wall, r.c.Isolation).
		WithHint("leave it out, or have box.allowed_isolation name it")
}

// ImageName returns what a Spec's image means: the configured one where it names
// none.
func (r *Runtime) ImageName(name string) string { return cmp.Or(name, r.c.Image) }

// image pins an image.
func (r *Runtime) image(ctx context.Context, c sandbox.Caller, name string) (string, error) {
	name = r.ImageName(name)
	if r.o.Images == nil {
		if name == sandbox.DefaultImage {
			return name, nil
		}
		return "", sandbox.Errorf(sandbox.Unsupported, "image %.200q: there is only the machine's own here", name).
			WithHint("leave the image out")
	}
	return r.o.Images(ctx, c, name)
}

// place finds what is to be seen at the workspace's place, and at the other
// mounts'.
func (r *Runtime) place(ctx context.Context, c sandbox.Caller, spec Spec, want *sandbox.Spec, rec *record.Session, f *found) error {
	w, err := r.workspace(ctx, c, spec, want, f)
	if err != nil {
		return err
	}
	rec.Workspace = w
	for _, m := range r.realMounts(c.Owner, spec.Mounts) {
		at := sandbox.Mount{Target: m.Target, ReadOnly: m.Mode == request.ReadOnly}
		dir, vol, err := r.locate(ctx, c, m.HostPath, m.Mode, 0, 0)
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
func (r *Runtime) workspace(ctx context.Context, c sandbox.Caller, spec Spec, want *sandbox.Spec, f *found) (record.Workspace, error) {
	limit, inodes := spec.Workspace.Size, spec.Workspace.Inodes
	hard := spec.Workspace.Quota == request.QuotaHard || r.c.Quota == request.QuotaHard
	at := path.Clean(spec.Workspace.Target)
	if !spec.Workspace.OfHost() {
		if at != sandbox.WorkspacePath && !strings.HasPrefix(at, sandbox.WorkspacePath+"/") {
			return record.Workspace{}, fault.Invalid("mount_path %q: a workspace of the session's own is at %s, or below", at, sandbox.WorkspacePath).
				WithHint("leave mount_path out, or name a host_path to be seen there")
		}
		return private(limit, inodes, want), nil
	}
	dir, vol, err := r.locate(ctx, c, spec.Workspace.HostPath, spec.Workspace.Mode, limit, inodes)
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
		if w, err = r.enforced(ctx, w, spec, hard, f); err != nil {
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
func (r *Runtime) realMounts(owner string, mounts []request.Mount) []request.Mount {
	var list []request.Mount
	for _, m := range mounts {
		if m.Mode == request.NotMounted {
			continue
		}
		if _, ok, _ := r.skillOf(owner, m); !ok {
			list = append(list, m)
		}
	}
	return list
}

func (r *Runtime) skillOf(owner string, m request.Mount) (skill.Placed, bool, error) {
	if r.o.Skills == nil {
		return skill.Placed{}, false, nil
	}
	return r.o.Skills.Place(owner, m)
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

// open opens a directory of the host that was accepted, to look at what is in
// it. It fails where it is another by now, and never waits for what is there
// instead, such as a fifo.
func open(d sandbox.HostDir) (*os.File, error) {
	f, err := openDir(d.Path)
	if err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if !isDir(f, d) {
		_ = f.Close()
		return nil, otherDir(d)
	}
	return f, nil
}
