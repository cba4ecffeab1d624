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

// AddSecret keeps a secret under its name. One that is there is a Conflict:
// RotateSecret changes it.
func (c *Client) AddSecret(ctx context.Context, req api.SecretRequest) (*api.Secret, error) {
	return ask[api.Secret](ctx, c, http.MethodPost, "/v1/secrets", req)
}

// RemoveSecret forgets a secret.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, secretPath(name, ""), nil, nil)
}

// RotateSecret gives a secret a new value, or takes it anew from where it
// comes from where req has none. Sandboxes that use it go on with the new one.
// req's Name must be empty.
func (c *Client) RotateSecret(ctx context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
	return ask[api.Secret](ctx, c, http.MethodPost, secretPath(name, "/rotate"), req)
}

func secretPath(name, rest string) string { return "/v1/secrets/" + url.PathEscape(name) + rest }
