package service

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/actor"
	"github.com/carboy-sandbox/carboy/internal/pod/boxed"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Spawn is what a pod is asked for by.
type Spawn struct {
	Parent    string // a pod, or a sandbox that becomes one
	Name      string
	Task      string
	Scope     []scope.Rule // targets absolute, or from the workspace on
	Command   []string     // at each turn
	Cwd       string
	Env       map[string]string
	Isolation string // "": the parent's wall
	// Native says that Command speaks the pods' protocol itself, and is started once.
	Native bool
	// Network gives it the parent's network and secrets, with the same rules.
	Network bool
	// Policy gives it a network with rules of its own, and Secrets, all of which the parent has to have; nil: none, or the parent's.
	Policy  *policy.Policy
	Secrets []string
	// MaySpawn has its programs spawn pods by the tools at its gate, as many at once as its budget says.
	MaySpawn bool
	Limits   api.Limits    // 0: the parent's
	TTL      time.Duration // 0: the parent's end
	Budget   scope.Budget
	// EndHolders ends what runs in the parent and could go on writing where the pod will.
	EndHolders bool
}

// Spawn starts a pod with a part of its parent's scope, and gives it its task; it says what it ended for that. See
// pod.Registry.Spawn.
func (s *Service) Spawn(ctx context.Context, c sandbox.Caller, q Spawn) (out Pod, ended []string, err error) {
	p, err := s.of(ctx, c.Owner)
	if err != nil {
		return out, nil, err
	}
	if err := q.check(); err != nil {
		return out, nil, err
	}
	if q.Scope, err = s.rules(ctx, p, c, q); err != nil {
		return out, nil, err
	}
	var r record.Pod
	for range spawnTries {
		if q.Parent, err = s.install(ctx, p, c, q.Parent); err != nil {
			return out, nil, err
		}
		s.settle(ctx, p)
		parent, _ := p.Find(q.Parent)
		r, err = p.Spawn(ctx, pod.Request{
			Spawner: q.Parent, Name: q.Name, Task: q.Task, Allow: q.Scope, Bounds: q.bounds(parent, time.Now()), Env: q.Env,
			Program: record.Program{Command: q.Command, Cwd: q.Cwd, Isolation: q.Isolation, Native: q.Native, MaySpawn: q.MaySpawn},
			Parent:  pod.Enforcing{EndHolders: q.EndHolders, Ended: func(what string) { ended = append(ended, what) }},
		})
		if _, there := p.Find(q.Parent); there || r.Name != "" || sandbox.KindOf(err) != sandbox.NotFound {
			break // else its last pod has ended just now, and it became a sandbox alone
		}
	}
	if r.Name == "" { // nothing of it is left
		s.uninstall(ctx, p, q.Parent)
		return out, ended, err
	}
	p.listen(r, true)
	out, verr := s.view(ctx, p, r)
	if err == nil {
		err = verr
	}
	return out, ended, err
}

// spawnTries is how often a sandbox is made a pod for a spawn.
const spawnTries = 3

func (q Spawn) check() error {
	switch {
	case !sandbox.ValidName(q.Name):
		return sandbox.Errorf(sandbox.Invalid, "%.80q is no name for a pod: its sandbox has it, too", q.Name).
			WithHint("1 to %d of a-z, 0-9 and -, starting with a letter: docs-1", sandbox.MaxName)
	case q.Name == q.Parent:
		return ownName(q.Name)
	case len(q.Scope) == 0:
		return sandbox.Errorf(sandbox.Invalid, "scope must not be empty").WithHint("--scope src:write, or --scope .:read")
	case len(q.Command) == 0 || q.Command[0] == "":
		return sandbox.Errorf(sandbox.Invalid, "a pod needs a command").WithHint("it is given its task at %s, or on its standard input: -- claude -p %[1]s", actor.Place)
	case q.Cwd != "" && !path.IsAbs(q.Cwd):
		return sandbox.Errorf(sandbox.Invalid, "cwd %.200q: not an absolute path", q.Cwd)
	case slices.ContainsFunc(slices.Collect(maps.Keys(q.Env)), func(name string) bool { return strings.HasPrefix(name, boxed.EnvName) }):
		return sandbox.Errorf(sandbox.Invalid, "env: variables that begin with %s say what the pod is", boxed.EnvName).WithHint("give it another name")
	case q.Isolation != "" && !sandbox.ValidWall(q.Isolation):
		return sandbox.Errorf(sandbox.Invalid, "isolation %.80q: there is no such wall", q.Isolation).WithHint("%s or %s", sandbox.WallGVisor, sandbox.WallProcess)
	case q.TTL < 0:
		return sandbox.Errorf(sandbox.Invalid, "ttl %v: less than nothing", q.TTL)
	case q.Network && q.Policy != nil:
		return sandbox.Errorf(sandbox.Invalid, "network: it has the parent's, or rules of its own")
	case q.Policy == nil && len(q.Secrets) > 0:
		return sandbox.Errorf(sandbox.Invalid, "secrets: without a network nothing has a place for them")
	case q.MaySpawn && (q.Budget.Pods < 1 || q.Budget.Pods > sandbox.MaxSpawn):
		return sandbox.Errorf(sandbox.Invalid, "may spawn: from 1 to %d pods at once", sandbox.MaxSpawn)
	}
	return nil
}

func ownName(name string) error {
	return sandbox.Errorf(sandbox.Invalid, "spawned pod name `%s` collides with spawner's own name", name)
}

func (q Spawn) bounds(parent record.Pod, now time.Time) scope.Bounds {
	b := scope.Bounds{Limits: q.Limits, Budget: q.Budget}
	b.Network, b.Secrets = q.Policy, q.Secrets
	if q.Network && parent.Bounds.Network != nil {
		p := policy.Clone(parent.Bounds.Network)
		p.Services = slices.DeleteFunc(p.Services, func(name string) bool { return name == sandbox.ServicePods || name == sandbox.ServiceGit })
		b.Network, b.Secrets = p, slices.Clone(parent.Bounds.Secrets)
	}
	if q.TTL > 0 {
		b.Until = now.Add(q.TTL).UTC()
	}
	return b
}

// rules are those that are asked for, with absolute targets. What may be written has to be a directory that is there: a wall
// can hold nothing else.
func (s *Service) rules(ctx context.Context, p *pods, c sandbox.Caller, q Spawn) ([]scope.Rule, error) {
	volume, err := s.workspaceOf(ctx, p, c, q.Parent)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(q.Scope)
	for i := range out {
		r := &out[i]
		if !path.IsAbs(r.Target) {
			r.Target = path.Join(sandbox.WorkspacePath, r.Target)
		}
		r.Target = path.Clean(r.Target)
		if r.Permission != scope.Write {
			continue
		}
		if !r.Recursive {
			return nil, boxed.NotRecursive(*r)
		}
		if err := s.directory(ctx, c, q.Parent, volume, *r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// directory refuses a rule whose target is something else than a directory. What lies elsewhere the scopes refuse.
func (s *Service) directory(ctx context.Context, c sandbox.Caller, parent, volume string, r scope.Rule) error {
	v := volumes{s.o.Volumes, c.Owner}
	resolved, err := v.Resolve(ctx, volume, r.Target)
	if err != nil {
		return nil // which the registry says
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(resolved, sandbox.WorkspacePath), "/")
	if rel == "" {
		return nil
	}
	e, err := tree{v, volume}.Look(ctx, rel)
	if err == nil && e.Dir {
		return nil
	}
	if sandbox.KindOf(err) != sandbox.NotFound {
		return sandbox.Errorf(sandbox.Invalid, "scope %s: it is no directory", r).
			WithHint("a pod is given directories: %s is the one that it is in", scope.Shown(path.Dir(r.Target)))
	}
	return sandbox.Errorf(sandbox.Invalid, "scope %s: there is no such directory", r).
		WithHint("a pod writes to directories that are there: carboy exec %s mkdir -p %s", parent, scope.Shown(r.Target))
}

// workspaceOf is the volume of a pod, or of a sandbox that is to be one.
func (s *Service) workspaceOf(ctx context.Context, p *pods, c sandbox.Caller, name string) (string, error) {
	if r, ok := p.Find(name); ok {
		return r.Workspace, nil
	}
	sb, err := s.o.Sandboxes.Get(ctx, sandbox.Caller{Owner: c.Owner}, name)
	if err != nil {
		return "", err
	}
	if sb.Spec.Workspace.Mode == sandbox.WorkspaceVolume && sb.Spec.Workspace.ReadOnly {
		return "", sandbox.Errorf(sandbox.Conflict, "sandbox %s: its workspace is a volume that it can only read, and has nothing to give", sb.Spec.Name).
			WithHint("carboy create --volume %s:/workspace", sb.Spec.Workspace.VolumeName)
	}
	if sb.Spec.Workspace.Mode != sandbox.WorkspaceVolume {
		return "", sandbox.Errorf(sandbox.Unsupported, "sandbox %s: pods share a volume, and its workspace is none", sb.Spec.Name).
			WithHint("carboy volume import DIR NAME, and then carboy create --volume NAME:/workspace")
	}
	return sb.Spec.Workspace.Volume, nil
}

// install makes a pod of a sandbox, unless it is one, and returns its name.
func (s *Service) install(ctx context.Context, p *pods, c sandbox.Caller, name string) (string, error) {
	if r, ok := p.Find(name); ok && p.Liveness(ctx, r) == wire.Gone {
		if _, err := p.Reap(ctx); err != nil {
			return "", err
		}
	}
	if r, ok := p.Find(name); ok && r.Token != "" {
		return name, nil
	}
	sb, err := s.o.Sandboxes.Get(ctx, sandbox.Caller{Owner: c.Owner}, name)
	if err != nil {
		return "", err
	}
	if sb.Spec.TTL > 0 && sb.State != sandbox.StateRunning {
		return "", sandbox.Errorf(sandbox.Conflict, "sandbox %s: it has a time to live, which begins anew with its start, and no pod outlives that", sb.Spec.Name).
			WithHint("carboy start %s", sb.Spec.Name)
	}
	if r, ok := p.Find(sb.Spec.Name); ok { // it was named by its ID, or what it may do has changed
		if r.Token != "" {
			return r.Name, nil
		}
		return r.Name, p.SetBounds(ctx, r.Name, boxed.BoundsOf(sb))
	}
	g, err := p.Install(ctx, pod.Top{
		Name: sb.Spec.Name, Workspace: sb.Spec.Workspace.Volume, Ref: sb.ID, Bounds: boxed.BoundsOf(sb),
		Allow: []scope.Rule{{Target: sandbox.WorkspacePath, Permission: scope.Write, Recursive: true}},
	})
	if err != nil {
		return "", fmt.Errorf("make sandbox %s a pod: %w", sb.Spec.Name, err)
	}
	g.Leave()
	return sb.Spec.Name, nil
}

// uninstall has a pod be a sandbox alone again, where nothing is delegated any more.
func (s *Service) uninstall(ctx context.Context, p *pods, name string) {
	r, ok := p.Find(name)
	if !ok || r.Token != "" || r.Parent != "" || len(p.Children(name)) > 0 {
		return
	}
	err := p.Release(context.WithoutCancel(ctx), name)
	if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		s.o.Log.Warn("make a pod a sandbox again", "pod", name, "error", err)
	}
}
