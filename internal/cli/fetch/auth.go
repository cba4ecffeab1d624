package fetch

import (
	"context"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/carboy-sandbox/carboy/api"
)

// credentials returns what the caller's Docker configuration has for the
// registry of ref, by its helper programs where it names any; nil for nothing.
// They run in this process's place and with its rights: the daemon never reads
// a user's files. Where they fail, the pull goes on as anybody's, and a note
// says so: most images are for everybody.
func (f *Fetcher) credentials(ctx context.Context, ref string) (*api.RegistryAuth, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, nil //nolint:nilerr // the daemon says what is wrong with it, in its own words
	}
	type answer struct {
		conf *authn.AuthConfig
		err  error
	}
	found := make(chan answer, 1)
	go func() {
		var got answer
		var how authn.Authenticator
		if how, got.err = authn.Resolve(ctx, authn.DefaultKeychain, r.Context()); got.err == nil {
			got.conf, got.err = authn.Authorization(ctx, how)
		}
		found <- got
	}()
	select {
	case <-ctx.Done(): // a helper that hangs ends with this process
		return nil, context.Cause(ctx)
	case got := <-found:
		if got.err != nil {
			f.Console.NoteReason("credentials", r.Context().RegistryStr()+": "+credentialsError(got.err)+"; going on without credentials")
			return nil, nil
		}
		return registryAuth(got.conf), nil
	}
}

// credentialsError says what is wrong in words of its own: a helper's output
// is a part of the error, and may hold what it is to keep.
func credentialsError(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "executable file not found"):
		return "the credential helper that your Docker configuration names was not found"
	case strings.Contains(text, "getting credentials"):
		return "the credential helper that your Docker configuration names failed"
	}
	return "your Docker configuration can't be read"
}

func registryAuth(c *authn.AuthConfig) *api.RegistryAuth {
	if c == nil {
		return nil
	}
	auth := api.RegistryAuth{
		Username: c.Username, Password: c.Password,
		IdentityToken: c.IdentityToken, RegistryToken: c.RegistryToken,
	}
	if auth == (api.RegistryAuth{}) {
		return nil
	}
	return &auth
}
