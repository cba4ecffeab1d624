// Package launch turns what a user says of a sandbox into a request, and makes
// the sandbox: with the image fetched that it needs, and the secrets that are
// here. Whatever starts sandboxes for a person shares it: run, create, sessions.
//
// It refuses what the daemon would refuse and can be known before one is asked,
// in words that name the flag. It reads of this machine what the Spec names, with
// the caller's rights, and follows no link that a sandbox could have made.
package launch

import (
	"errors"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/cache"
	"github.com/carboy-sandbox/carboy/internal/launch/usage"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/shell"
)

// Spec is what a user said of a sandbox, as it was typed. What is left at its
// zero takes the daemon's default.
type Spec struct {
	Name      string
	Isolation string // walls with commas between them, the one asked for first
	User      string

	Image, Snapshot, Template string
	ImageNamed                bool   // Image is a reference, whatever is at a path of that name
	Pull                      string // PullMissing, PullAlways, PullNever

	Workspace string   // DIR[:rw|:ro]
	Mounts    []string // HOST:GUEST[:ro]
	Volumes   []string // NAME:PATH[:ro]
	Caches    []string // tools, as package cache has them
	Homes     []string // PROGRAM=PATH[,PATH...]: what a program keeps in its home
	Own       []string // where it is to have further directories of its user's own, on its disk
	ReadOnly  bool     // the root file system
	Labels    []string // KEY=VALUE
	Env       Env

	Network string   // sandbox.NetworkOff or NetworkOn
	Allow   []string // what --allow takes
	Policy  string   // the name of a file
	Secrets []string // NAME[=FROM]
	// SecretOf is who asks for Secrets where no flag does: "the bottle dev"; "": --secret.
	SecretOf string
	// Base is what it may reach besides, whatever those say, and Given are secrets whose
	// values are here already: of what makes sandboxes for one program.
	Base  *policy.Policy
	Given []api.SandboxSecret

	Publish []string // [HOSTPORT:]PORT

	MaySpawn int64 // how many pods its programs may have spawned at once

	CPUs         float64
	PIDs         int64
	Memory, Disk int64 // bytes
	TTL          time.Duration

	NoProject bool         // leave the project's own file out
	Project   *api.Project // what was taken from it; nil: nothing
}

// Request is a request that was checked. Create adds what only the daemon's side
// or the moment can tell: the image, and the secrets.
type Request struct {
	api.CreateRequest

	pull    string
	named   bool // Image is a reference
	secrets []namedSecret
	of      string // Spec.SecretOf
	checked bool   // by Check: Secrets are complete
}

// Request checks s and turns it into a request. lookup knows variables; note
// tells what was not taken over from a policy in another form.
func (s *Spec) Request(lookup func(string) (string, bool), note func(string)) (*Request, error) {
	if s.Name != "" && !sandbox.ValidName(s.Name) {
		return nil, usage.Errorf("--name: %q is not a name", s.Name).
			WithHint("use 1 to %d of a-z, 0-9 and -, a letter first", sandbox.MaxName)
	}
	if err := checkPull(s.Image, s.Pull); err != nil {
		return nil, err
	}
	walls, err := parseIsolation(s.Isolation)
	if err != nil {
		return nil, err
	}
	req := &Request{pull: s.Pull, named: s.ImageNamed, of: s.SecretOf, CreateRequest: api.CreateRequest{
		Name:      s.Name,
		Isolation: walls[0],
		Stronger:  walls[1:],
		Image:     s.Image,
		Snapshot:  s.Snapshot,
		Template:  s.Template,
		User:      s.User,
		Limits:    api.Limits{CPUs: s.CPUs, Memory: s.Memory, PIDs: s.PIDs, Disk: s.Disk},
		TTLMillis: s.TTL.Milliseconds(),
		Project:   s.Project,
	}}
	if req.Env, err = s.Env.Collect(lookup); err != nil {
		return nil, err
	}
	if req.Labels, err = ParseLabels(s.Labels); err != nil {
		return nil, err
	}
	if err := s.reach(req, note); err != nil {
		return nil, err
	}
	if s.Workspace != "" {
		if req.Workspace, err = workspaceOf(s.Workspace); err != nil {
			return nil, err
		}
	}
	req.ReadOnlyRoot, req.MaySpawn = s.ReadOnly, int(min(s.MaySpawn, math.MaxInt32))
	if req.Publish, err = ParsePorts(s.Publish); err != nil {
		return nil, usage.Errorf("--publish: %v", err)
	}
	if req.Caches, err = s.caches(); err != nil {
		return nil, err
	}
	if req.Homes, err = s.homes(); err != nil {
		return nil, err
	}
	if req.Mounts, err = s.mounted(); err != nil {
		return nil, err
	}
	return req, volumeAsWorkspace(&req.CreateRequest)
}

// caches refuses caches that no directory could have, and tools that have none.
func (s *Spec) caches() ([]string, error) {
	if len(s.Caches) == 0 {
		return nil, nil
	}
	if s.Workspace == "" {
		return nil, usage.Errorf("--cache: it is kept for the directory that is the workspace, and there is none").
			WithHint("--workspace DIR, or a volume of your own: --volume NAME:PATH")
	}
	names := slices.Compact(slices.Sorted(slices.Values(s.Caches)))
	if e, ok := errors.AsType[*cache.Error](cache.Check(names)); ok {
		return nil, usage.Errorf("--%w", e).WithHint("%s", e.Hint())
	}
	return names, nil
}

// homes refuses homes that no directory could have, and what is none.
func (s *Spec) homes() ([]api.Home, error) {
	if len(s.Homes) > 0 && s.Workspace == "" {
		return nil, usage.Errorf("--home: it is kept for the directory that is the workspace, and there is none").
			WithHint("--workspace DIR, or a volume of your own: --volume NAME:PATH")
	}
	var homes []api.Home
	for _, text := range s.Homes {
		program, paths, ok := strings.Cut(text, "=")
		h := api.Home{Program: program, Paths: strings.Split(paths, ",")}
		if !ok || program == "" || slices.ContainsFunc(h.Paths, func(p string) bool { return !path.IsAbs(p) }) {
			return nil, usage.Errorf("--home: %q is not a program and what it keeps: use PROGRAM=PATH[,PATH...], each path absolute", text)
		}
		homes = append(homes, h)
	}
	return homes, nil
}

// volumeAsWorkspace takes the volume that is to be at /workspace from the
// mounts.
func volumeAsWorkspace(req *api.CreateRequest) error {
	i := slices.IndexFunc(req.Mounts, func(m api.Mount) bool { return m.Volume != "" && m.Target == sandbox.WorkspacePath })
	if i < 0 {
		return nil
	}
	m := req.Mounts[i]
	if req.Workspace != nil {
		return usage.Errorf("--volume: %s is to be the workspace, and --workspace names another", shell.Word(m.Volume)).
			WithHint("leave one of them out")
	}
	req.Workspace = &api.Workspace{Mode: string(sandbox.WorkspaceVolume), Volume: m.Volume, ReadOnly: m.ReadOnly}
	req.Mounts = slices.Delete(req.Mounts, i, i+1)
	return nil
}

// mounted is what is to be seen besides the workspace.
func (s *Spec) mounted() ([]api.Mount, error) {
	var mounts []api.Mount
	for _, m := range s.Mounts {
		arg, err := parseMount(m)
		if err != nil {
			return nil, usage.Errorf("--mount: %v", err)
		}
		host, err := hostDir("--mount", arg.Host)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, api.Mount{Source: host, Target: arg.Guest, ReadOnly: arg.ReadOnly})
	}
	for _, v := range s.Volumes {
		arg, err := ParseVolume(v)
		if err != nil {
			return nil, usage.Errorf("--volume: %v", err)
		}
		mounts = append(mounts, arg)
	}
	for _, at := range s.Own {
		mounts = append(mounts, api.Mount{Own: true, Owner: sandbox.DefaultUser, Target: at})
	}
	return mounts, nil
}

// parseIsolation reads walls, the one asked for first. None is the default.
func parseIsolation(s string) ([]string, error) {
	walls := strings.Split(s, ",")
	for i, w := range walls {
		switch {
		case w == "" && len(walls) > 1:
			return nil, usage.Errorf("--isolation: %s names an empty wall", shell.Word(s)).WithHint("--isolation process,gvisor")
		case slices.Contains(walls[:i], w):
			return nil, usage.Errorf("--isolation: %s is there twice", shell.Word(w))
		}
	}
	return walls, nil
}

func workspaceOf(s string) (*api.Workspace, error) {
	arg, err := parseWorkspace(s)
	if err != nil {
		return nil, usage.Errorf("--workspace: %v", err)
	}
	dir, err := hostDir("--workspace", arg.Dir)
	if err != nil {
		return nil, err
	}
	return &api.Workspace{Mode: arg.Mode, Source: dir}, nil
}

// ParseLabels reads labels, each KEY=VALUE and once.
func ParseLabels(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(list))
	for _, l := range list {
		k, v, err := parseLabel(l)
		if err != nil {
			return nil, usage.Errorf("--label: %v", err)
		}
		if _, ok := labels[k]; ok {
			return nil, usage.Errorf("--label: %s was given twice", shell.Word(k))
		}
		labels[k] = v
	}
	return labels, nil
}
