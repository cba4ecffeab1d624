package provider

import (
	"errors"
	"path"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// packageDir is where a template has its package.
const packageDir = "/var/lib/carboy/agent"

// Build is how a template is built from a provider's package.
type Build struct {
	Steps   []string // commands for a shell, as root
	Program string   // where the program is then
	Image   string   // to start from where this machine has not what Needs names
	Needs   string
	Presets []string // what the steps reach
}

// Build says how the package's version is built; "" is the pinned one.
func (k *Pack) Build(version string) (*Build, error) {
	if len(k.Steps) == 0 {
		return nil, errors.New("there is no package to build it from")
	}
	if version == "" {
		version = k.Version
	}
	if err := CheckVersion(version); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "%w", err)
	}
	// Of all values, only these two are known to steps.
	v := &struct{ Version, Dir string }{version, packageDir}
	b := &Build{Program: path.Join(packageDir, k.Path), Image: k.Image, Needs: k.Needs, Presets: k.Presets}
	b.Steps = []string{"mkdir -p " + packageDir} // npm makes a prefix, and not the directory above
	for _, s := range k.Steps {
		text, err := textOf("package.steps", s, v)
		if err != nil {
			return nil, err
		}
		b.Steps = append(b.Steps, text)
	}
	return b, nil
}
