package tools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/pod/service"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// spawnInput is what SpawnPod is called with.
type spawnInput struct {
	Name  string      `json:"name" jsonschema:"1 to 63 of a-z, 0-9 and -, a letter first"`
	Task  string      `json:"task" jsonschema:"what it is to do"`
	Scope []ruleInput `json:"scope" jsonschema:"what it may do with the workspace; what it may write you can't write until it has stopped"`
	// Command is the caller's own, where it is left out.
	Command    []string          `json:"command,omitempty" jsonschema:"the program and its arguments, run at each task: the task takes the place of {}, or is its standard input. Default: your own command, where you are a pod"`
	Protocol   bool              `json:"protocol,omitempty" jsonschema:"the command speaks the pods' protocol itself"`
	Cwd        string            `json:"cwd,omitempty" jsonschema:"an absolute path; default: the workspace"`
	Env        map[string]string `json:"env,omitempty" jsonschema:"of its commands; nothing of yours is there by itself"`
	Network    string            `json:"network,omitempty" jsonschema:"off, which is the default, or parent: yours, with its rules and secrets"`
	Allow      []string          `json:"allow,omitempty" jsonschema:"what it may reach, in the place of network: hosts, presets such as pypi, addresses; all within what you may reach"`
	Secrets    []string          `json:"secrets,omitempty" jsonschema:"with allow: the names of those of your secrets that its requests may have"`
	CPUs       float64           `json:"cpus,omitempty" jsonschema:"at most your own; default: your own"`
	MemoryMB   int64             `json:"memory_mb,omitempty" jsonschema:"MiB, at most your own; default: your own"`
	PIDs       int64             `json:"pids,omitempty" jsonschema:"how many processes and threads; at most your own"`
	TTLSeconds int64             `json:"ttl_seconds,omitempty" jsonschema:"it is stopped after that long"`
	MaySpawn   int               `json:"may_spawn,omitempty" jsonschema:"how many pods it may have spawned at once; default: none"`
	EndWriters bool              `json:"end_writers,omitempty" jsonschema:"end those of your own processes that could go on writing where it may; otherwise they are named, and nothing is done"`
}

type ruleInput struct {
	Target     string `json:"target" jsonschema:"a directory of the workspace, absolute or from the workspace on"`
	Permission string `json:"permission" jsonschema:"read or write"`
	Recursive  *bool  `json:"recursive,omitempty" jsonschema:"with all below; default: true"`
}

func (t *tools) spawn(ctx context.Context, in spawnInput) (string, error) {
	q, err := in.request()
	if err != nil {
		return "", err
	}
	if len(q.Command) == 0 {
		if q.Command, err = t.own(ctx); err != nil {
			return "", err
		}
	}
	if !t.spawns.Allow() {
		return "", errTooManySpawns
	}
	p, ended, err := t.Pods.Spawn(ctx, q)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("spawned pod `%s`; delegated scope: %s", p.Name, service.RulesText(p.Allow))
	for _, what := range ended {
		text += "\nended " + what
	}
	t.Note("by its tools: " + text)
	return text, nil
}

// own is the command of the caller, which is a pod or has none.
func (t *tools) own(ctx context.Context) ([]string, error) {
	c, err := t.Pods.Own(ctx)
	if err == nil && len(c) == 0 {
		err = sandbox.Errorf(sandbox.Invalid, "command: it is missing, and you are no pod whose command it could have").WithHint(`"command": ["claude", "-p", "{}"]`)
	}
	return c, err
}

func (in *spawnInput) request() (q service.Spawn, err error) {
	q = service.Spawn{
		Name: in.Name, Task: in.Task, Command: in.Command, Native: in.Protocol, Cwd: in.Cwd, Env: in.Env,
		Limits: api.Limits{CPUs: in.CPUs, Memory: in.MemoryMB << 20, PIDs: in.PIDs},
		TTL:    time.Duration(in.TTLSeconds) * time.Second, EndHolders: in.EndWriters,
		MaySpawn: in.MaySpawn != 0, Budget: scope.Budget{Pods: in.MaySpawn},
	}
	if in.MemoryMB < 0 || in.MemoryMB > maxMemoryMB {
		return q, sandbox.Errorf(sandbox.Invalid, "memory_mb %d: that is no amount of memory", in.MemoryMB)
	}
	if most := int64(sandbox.MaxTTL / time.Second); in.TTLSeconds < 0 || in.TTLSeconds > most {
		return q, sandbox.Errorf(sandbox.Invalid, "ttl_seconds: from 0 to %d", most)
	}
	for _, r := range in.Scope {
		one := scope.Rule{Target: r.Target, Recursive: r.Recursive == nil || *r.Recursive}
		if err := one.Permission.UnmarshalText([]byte(r.Permission)); err != nil {
			return q, sandbox.Errorf(sandbox.Invalid, "scope: %v", err)
		}
		q.Scope = append(q.Scope, one)
	}
	switch network := cmp.Or(in.Network, sandbox.NetworkOff); {
	case network == "parent" && len(in.Allow)+len(in.Secrets) == 0:
		q.Network = true
	case network != sandbox.NetworkOff:
		return q, sandbox.Errorf(sandbox.Invalid, "network %.40q: off, or parent and no allow beside it", network)
	case len(in.Allow) > 0:
		q.Policy, q.Secrets, err = policyOf(in.Allow, in.Secrets)
	case len(in.Secrets) > 0:
		err = sandbox.Errorf(sandbox.Invalid, "secrets: without allow there is no request that could have one")
	}
	return q, err
}

const maxMemoryMB = 1 << 30

// policyOf are rules by what --allow takes.
func policyOf(allow, secrets []string) (*policy.Policy, []string, error) {
	p := policy.Policy{}
	for _, word := range allow {
		if strings.HasPrefix(word, "service:") {
			return nil, nil, sandbox.Errorf(sandbox.Invalid, "allow %.80q: services are offered to one sandbox, and a pod has none", word)
		}
		var err error
		if p, err = policy.Allow(p, word); err != nil {
			return nil, nil, sandbox.Errorf(sandbox.Invalid, "allow %.80q: %v", word, err)
		}
	}
	return &p, slices.Clone(secrets), nil
}
