package template

import (
	"maps"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Template is a name for builds.
type Template struct {
	ID        string    `json:"id"`
	Owner     string    `json:"owner"`
	Name      string    `json:"name"`
	Public    bool      `json:"public,omitempty"` // others may use it, by its owner's namespace
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	SpawnedAt time.Time `json:"spawned_at,omitzero"` // when a sandbox was last made from it
	Spawns    int64     `json:"spawns,omitempty"`
}

// Status is where a build is.
type Status string

// The statuses.
const (
	Waiting  Status = "waiting"  // asked for, or queued
	Building Status = "building" // at work
	Ready    Status = "ready"
	Failed   Status = "error" // Reason says why
)

// Record is one build, and what came of it.
type Record struct {
	ID       string   `json:"id"` // a UUID
	Template string   `json:"template"`
	Owner    string   `json:"owner"` // who asked for it
	Status   Status   `json:"status"`
	Tags     []string `json:"tags"`              // which lead to it once it is ready
	Started  bool     `json:"started,omitempty"` // its steps are known
	Reason   *Reason  `json:"reason,omitempty"`

	Image    string           `json:"image,omitempty"`
	Snapshot string           `json:"snapshot,omitempty"`
	CPUs     float64          `json:"cpus,omitempty"`
	Memory   int64            `json:"memory,omitempty"` // bytes
	Disk     int64            `json:"disk,omitempty"`   // bytes
	Startup  *sandbox.Startup `json:"startup,omitempty"`
	Context
	EnvdVersion string `json:"envd_version,omitempty"`
	// What its steps might reach.
	Network string         `json:"network,omitempty"`
	Policy  *policy.Policy `json:"policy,omitempty"`

	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
}

// Context is with what a step runs, and later a sandbox's commands.
type Context struct {
	Env  map[string]string `json:"env,omitempty"`
	User string            `json:"user,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

func (c Context) clone() Context {
	c.Env = maps.Clone(c.Env)
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	return c
}

// Reason is why a build failed.
type Reason struct {
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do next
	Step    string `json:"step,omitempty"` // "base", "finalize", or a step's number from 1
}

// Text is the message with the hint, for those who get one text alone.
func (r Reason) Text() string {
	if r.Hint == "" {
		return r.Message
	}
	return r.Message + " (" + r.Hint + ")"
}

func (r Record) clone() Record {
	r.Tags = slices.Clone(r.Tags)
	r.Context = r.Context.clone()
	r.Startup = r.Startup.Clone()
	r.Policy = policy.Clone(r.Policy)
	if r.Reason != nil {
		c := *r.Reason
		r.Reason = &c
	}
	return r
}

func (r Record) done() bool { return r.Status == Ready || r.Status == Failed }

// Tag leads from a template to one of its builds.
type Tag struct {
	Template, Name, Build string
	CreatedAt             time.Time
}

// Cached is what a step led to.
type Cached struct {
	Key      string  `json:"key"`
	Owner    string  `json:"owner"`
	Image    string  `json:"image"`
	Snapshot string  `json:"snapshot"` // "": nothing was written yet
	Context  Context `json:"context"`
	UsedAt   time.Time
}

// Step is one step of a build.
type Step struct {
	Type      string   // RUN, COPY, ADD, WORKDIR, USER, ENV or ARG, in any case
	Args      []string // as E2B's clients have them
	FilesHash string   // what is copied: see FileLink
	Force     bool     // it and those after it are not taken from the cache
}

// Plan is what a build is to do.
type Plan struct {
	FromImage    string // the name of an image; "" and base's own names: the machine's programs
	FromTemplate string
	Auth         *Auth // for FromImage's registry
	Force        bool  // nothing is taken from the cache
	Steps        []Step
	StartCmd     string
	ReadyCmd     string
	// Network and Policy are what its steps may reach, as a Spec has them; "" and nil:
	// what Options say. There are no secrets: what a step leads to is kept and shared.
	Network string
	Policy  *policy.Policy
	// HostImage says that the caller may use the machine's own programs.
	HostImage bool
	// Outside says that no registry of this host or its networks is to be asked.
	Outside bool
}

// Auth is for a registry.
type Auth struct{ Username, Password string }

// String keeps the password out of logs.
func (Auth) String() string { return "[secret]" }

// GoString is String.
func (Auth) GoString() string { return "[secret]" }

// Base is the template that is there without being built: the machine's own
// programs.
const Base = "base"

// Build is what a sandbox of a template starts from.
type Build struct {
	TemplateID, BuildID, Alias string
	Image, Snapshot            string  // as in sandbox.Spec
	CPUs                       float64 // 0: the default, as for the other limits
	Memory, Disk               int64   // bytes
	Env                        map[string]string
	User, Cwd                  string
	Startup                    *sandbox.Startup
}

// BaseBuild returns the build that Base stands for.
func BaseBuild() Build { return Build{TemplateID: Base, Alias: Base, Image: sandbox.DefaultImage} }

// Apply fills in what the caller of a create left out. Variables of the caller
// stand above those of the template.
func (b Build) Apply(spec *sandbox.Spec) {
	fill(&spec.Image, b.Image)
	fill(&spec.Snapshot, b.Snapshot)
	fill(&spec.User, b.User)
	fill(&spec.Cwd, b.Cwd)
	fill(&spec.Limits.CPUs, b.CPUs)
	fill(&spec.Limits.Memory, b.Memory)
	fill(&spec.Limits.Disk, b.Disk)
	if spec.Startup == nil {
		spec.Startup = b.Startup.Clone()
	}
	if len(b.Env) > 0 {
		env := maps.Clone(b.Env)
		maps.Copy(env, spec.Env)
		spec.Env = env
	}
	if b.TemplateID != "" && b.TemplateID != Base {
		spec.Template = &sandbox.TemplateRef{ID: b.TemplateID, Build: b.BuildID, Alias: b.Alias}
	}
}

func fill[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}
