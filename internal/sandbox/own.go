package sandbox

import (
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// Services of a sandbox's gate that the daemon itself serves.
const (
	ServiceGit  = "git"  // its remotes
	ServicePods = "pods" // its programs spawn pods by it
)

// MaxSpawn is how many pods a sandbox's programs may have spawned at once.
const MaxSpawn = 200

// Own is what a sandbox has of the services that the daemon serves.
type Own struct {
	Remotes  []Remote
	MaySpawn int // how many pods its programs may have spawned at once
}

// Own is what s has.
func (s Spec) Own() Own { return Own{Remotes: s.Remotes, MaySpawn: s.MaySpawn} }

// Services are the names of those.
func (o Own) Services() (names []string) {
	if len(o.Remotes) > 0 {
		names = append(names, ServiceGit)
	}
	if o.MaySpawn > 0 {
		names = append(names, ServicePods)
	}
	return names
}

// Network is a network and a policy, resolved as ResolveNetwork does, by which a sandbox reaches those services, and
// the hosts of its remotes by nothing else that could push. It returns the same again for what it returned.
func (o Own) Network(network string, p *policy.Policy) (string, *policy.Policy, error) {
	services := o.Services()
	if len(services) == 0 {
		return ResolveNetwork(network, p)
	}
	if p == nil && (network == "" || network == NetworkOff) {
		network, p = NetworkPolicy, &policy.Policy{}
	}
	network, p, err := ResolveNetwork(network, p)
	if err != nil {
		return "", nil, err
	}
	out := policy.WithServices(*p, services...)
	if len(o.Remotes) == 0 {
		return network, &out, nil
	}
	out.Rules = slices.DeleteFunc(out.Rules, func(r policy.Rule) bool {
		return r.Action == policy.ActionDeny && strings.HasPrefix(r.ID, RuleRemotes)
	})
	out.Rules = append(out.Rules, closing(o.Remotes)...)
	return network, &out, nil
}

func (s Spec) checkSpawn() *Error {
	switch {
	case s.MaySpawn < 0 || s.MaySpawn > MaxSpawn:
		return Errorf(Invalid, "may_spawn %d: from 0 to %d", s.MaySpawn, MaxSpawn)
	case s.MaySpawn > 0 && (s.Workspace.Mode != WorkspaceVolume || s.Workspace.ReadOnly):
		return Errorf(Invalid, "may_spawn: pods share a volume, and its workspace is none that it can write to").
			WithHint("carboy volume import DIR NAME, and then carboy create --volume NAME:/workspace")
	}
	return nil
}
