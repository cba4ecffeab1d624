package template

import (
	"maps"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

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
