package launch

import (
	"context"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Check finds out what Create would say only after something slow, such as a pull or what
// a caller does before it: that a secret has no value, that the sandbox's name is taken,
// or what else the daemon knows. The values of secrets are read now, once.
func (l *Launcher) Check(ctx context.Context, req *Request) error {
	if req.checked {
		return nil
	}
	if err := l.addSecrets(ctx, req); err != nil {
		return err
	}
	if req.Name != "" {
		switch _, err := l.Service.Get(ctx, req.Name); {
		case err == nil:
			return sandbox.Errorf(sandbox.Conflict, "sandbox %s: the name is taken", req.Name).
				WithHint("choose another name, or carboy rm %s", req.Name)
		case sandbox.KindOf(err) != sandbox.NotFound:
			return err
		}
	}
	// What it starts from is what is not there yet.
	of := req.CreateRequest
	of.Image, of.Snapshot, of.Template = "", "", ""
	if err := l.Service.CheckCreate(ctx, of); err != nil {
		return err
	}
	req.checked = true
	return nil
}
