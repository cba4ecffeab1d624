package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api"
)

// Secrets lists the caller's secrets by name. Values never come back.
func (c *Client) Secrets(ctx context.Context) ([]api.Secret, error) {
	list, err := ask[[]api.Secret](ctx, c, http.MethodGet, "/v1/secrets", nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// AddSecret keeps a secret under its name, in the place of one that is there.
func (c *Client) AddSecret(ctx context.Context, req api.SecretRequest) (*api.Secret, error) {
	return ask[api.Secret](ctx, c, http.MethodPost, "/v1/secrets", req)
}

// RemoveSecret forgets a secret. One that sandboxes use is a Conflict unless
// force is set: what they send and would need it is refused then.
func (c *Client) RemoveSecret(ctx context.Context, name string, force bool) error {
	rest := ""
	if force {
		rest = "?force=1"
	}
	return c.call(ctx, http.MethodDelete, secretPath(name, rest), nil, nil)
}

// RotateSecret gives a secret a new value, or takes it anew from where it
// comes from where req has none. Sandboxes that use it go on with the new one.
// req's Name must be empty.
func (c *Client) RotateSecret(ctx context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
	return ask[api.Secret](ctx, c, http.MethodPost, secretPath(name, "/rotate"), req)
}

func secretPath(name, rest string) string { return "/v1/secrets/" + url.PathEscape(name) + rest }
