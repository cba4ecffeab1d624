// Package login finds what a user's own Docker configuration has for a registry, by its
// helper programs where it names any. They run with the rights of whoever asks: a daemon
// that serves others asks for nobody. It shows nothing that a helper printed.
package login

import (
	"context"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/program/order"
)

// Find asks for the registry of an image's reference. Its error is the cause of ctx.
func Find(ctx context.Context, ref string) (order.Login, error) {
	r, err := name.ParseReference(ref)
	if err != nil {
		return order.Login{}, nil //nolint:nilerr // the daemon says what is wrong with it, in its own words
	}
	found := make(chan order.Login, 1)
	go func() {
		got := order.Login{Registry: r.Context().RegistryStr()}
		var conf *authn.AuthConfig
		how, err := authn.Resolve(ctx, authn.DefaultKeychain, r.Context())
		if err == nil {
			conf, err = authn.Authorization(ctx, how)
		}
		if err == nil {
			got.Auth = registryAuth(conf)
		} else {
			got.Failed = failed(err)
		}
		found <- got
	}()
	select {
	case <-ctx.Done(): // a helper that hangs ends with this process
		return order.Login{}, context.Cause(ctx)
	case got := <-found:
		return got, nil
	}
}

// failed says what is wrong in words of its own: a helper's output is a part of the error.
func failed(err error) string {
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
