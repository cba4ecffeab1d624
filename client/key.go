package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api"
)

// Keys lists the keys that were made of the caller's team, oldest first, and
// everybody's for an administrator.
func (c *Client) Keys(ctx context.Context) ([]api.Key, error) {
	list, err := ask[[]api.Key](ctx, c, http.MethodGet, "/v1/keys", nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// MakeKey makes a key. The answer is the only place that has it.
func (c *Client) MakeKey(ctx context.Context, req api.KeyRequest) (*api.NewKey, error) {
	return ask[api.NewKey](ctx, c, http.MethodPost, "/v1/keys", req)
}

// DeleteKey deletes a key. What it had opened ends.
func (c *Client) DeleteKey(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(id), nil, nil)
}
