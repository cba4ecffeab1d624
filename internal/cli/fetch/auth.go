package fetch

import (
	"context"

	"github.com/carboy-sandbox/carboy/api"
)

// credentials returns what the caller's Docker configuration has for the
// registry of ref; nil for nothing. It is asked for with the caller's rights: the daemon
// never reads a user's files. Where that fails, the pull goes on as anybody's, and a note
// says so: most images are for everybody.
func (f *Fetcher) credentials(ctx context.Context, ref string) (*api.RegistryAuth, error) {
	if f.Login == nil {
		return nil, nil
	}
	got, err := f.Login(ctx, ref)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		f.Console.NoteReason("credentials", "your Docker configuration could not be asked: "+err.Error()+"; going on without credentials")
	case got.Failed != "":
		f.Console.NoteReason("credentials", got.Registry+": "+got.Failed+"; going on without credentials")
	}
	return got.Auth, nil
}
