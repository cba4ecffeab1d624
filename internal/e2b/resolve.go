package e2b

import (
	"context"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/template"
)

// Templates has what sandboxes are made from.
type Templates interface {
	// Resolve returns the build that ref names for c: NAME, NAME:TAG,
	// OWNER/NAME, or the ID of a template or of a snapshot. What c may not use
	// is NotFound.
	Resolve(ctx context.Context, c sandbox.Caller, ref string) (template.Build, error)
}

// resolve returns what a sandbox of the template ref starts from, if c's key
// may have it.
func (h *handler) resolve(ctx context.Context, c Caller, ref string) (template.Build, error) {
	b, err := template.BaseBuild(), error(nil)
	switch {
	case h.o.Templates != nil:
		b, err = h.o.Templates.Resolve(ctx, c.Caller, ref)
	case ref != template.Base:
		err = sandbox.Errorf(sandbox.NotFound, "template %.80q: there is no such template", ref).WithHint("use %s", template.Base)
	}
	if err == nil && b.Image == sandbox.DefaultImage && !c.HostImage {
		err = sandbox.Errorf(sandbox.Denied, "template %.80s: this key may not use the machine's own programs, which it is made of", ref).
			WithHint(`set "host_image": true in the key file`)
	}
	return b, err
}
