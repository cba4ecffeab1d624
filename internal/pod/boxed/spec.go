package boxed

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// The variables that tell a pod's commands of it.
const (
	EnvName   = "CARBOY_POD"
	EnvParent = "CARBOY_POD_PARENT"
	EnvScope  = "CARBOY_POD_SCOPE" // a JSON list of rules
)

// AccessOf is what can be written to of a workspace by a scope whose paths are seen inside.
func AccessOf(s scope.Scope) (sandbox.AccessList, error) {
	for _, r := range slices.Concat(scope.Writes(s.Allow), s.Deny) {
		if !r.Recursive {
			return nil, NotRecursive(r)
		}
	}
	targets := []string{sandbox.WorkspacePath}
	for _, r := range slices.Concat(s.Allow, s.Deny) {
		targets = append(targets, r.Target)
	}
	slices.Sort(targets) // one around another comes before it
	var list sandbox.AccessList
	for _, t := range slices.Compact(targets) {
		rel, err := filepath.Rel(sandbox.WorkspacePath, t)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue // it is no part of the workspace
		}
		list = list.With(rel, !s.IsWritable(t))
	}
	return list, nil
}

// NotRecursive is the error of a rule that a wall can not hold.
func NotRecursive(r scope.Rule) error {
	return sandbox.Errorf(sandbox.Unsupported, "scope %s: a wall can't hold a rule to write that is not recursive", r).
		WithHint("delegate the directory with all below it, or a directory in it")
}

// BoundsOf is what a sandbox may do besides files.
func BoundsOf(sb *sandbox.Sandbox) scope.Bounds {
	l := sb.Spec.Limits
	return scope.Bounds{
		Network: sb.Spec.Policy, Secrets: slices.Clone(sb.Spec.Secrets), Until: sb.ExpiresAt,
		Limits: api.Limits{CPUs: l.CPUs, Memory: l.Memory, PIDs: l.PIDs, Disk: l.Disk, Inodes: l.Inodes},
		Budget: scope.Budget{Pods: sb.Spec.MaySpawn},
	}
}

// spec is the sandbox that a pod gets.
func (b *Backend) spec(ctx context.Context, p record.Pod, l pod.Launch) (spec sandbox.Spec, err error) {
	above, ok := b.o.Find(p.Parent)
	if !ok {
		return spec, sandbox.Errorf(sandbox.Conflict, "the pod that spawned `%s` has ended meanwhile", p.Name)
	}
	parent, err := b.Sandbox(ctx, above)
	if err != nil {
		return spec, err
	}
	wall := cmp.Or(p.Program.Isolation, parent.Backend)
	if sandbox.StrengthOf(wall) < sandbox.StrengthOf(parent.Backend) {
		return spec, sandbox.Errorf(sandbox.Denied, "pod `%s`: the wall %s is weaker than %s, which its parent has", p.Name, wall, parent.Backend)
	}
	rules, err := json.Marshal(p.Allow)
	if err != nil {
		return spec, err
	}
	env := map[string]string{EnvName: p.Name, EnvParent: p.Parent, EnvScope: string(rules)}
	maps.Copy(env, l.Env)
	spec = sandbox.Spec{
		Name: p.Name, Isolation: wall, Image: parent.Spec.Image, User: parent.Spec.User, Sudo: parent.Spec.Sudo, ReadOnlyRoot: parent.Spec.ReadOnlyRoot,
		Network: sandbox.NetworkOff, Workspace: parent.Spec.Workspace, Limits: limits(p.Bounds.Limits), Env: env,
		Labels: map[string]string{Label: p.Token},
	}
	if p.Bounds.Network != nil {
		spec.Network, spec.Policy, spec.Secrets = sandbox.NetworkPolicy, p.Bounds.Network, p.Bounds.Secrets
	}
	if p.Program.MaySpawn {
		spec.MaySpawn = p.Bounds.Budget.Pods
	}
	if !p.Bounds.Until.IsZero() {
		spec.TTL, spec.OnExpiry = max(p.Bounds.Until.Sub(b.o.Now()), sandbox.MinTTL), sandbox.OnExpiryRemove
	}
	return spec, nil
}

// limits are those that bounds say. Where the machine can't hold one it is no pod.
func limits(l api.Limits) sandbox.Limits {
	return sandbox.Limits{CPUs: l.CPUs, Memory: l.Memory, PIDs: l.PIDs, Disk: l.Disk, Inodes: l.Inodes}
}
