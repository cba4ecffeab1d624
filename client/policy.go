package client

import (
	"context"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
)

// Policy returns what a sandbox may reach, as it holds now.
func (c *Client) Policy(ctx context.Context, id string) (*api.Policy, error) {
	return ask[api.Policy](ctx, c, http.MethodGet, path(id, "/policy"), nil)
}

// SetPolicy replaces it. What is open and is not allowed any more is cut. A
// policy with a mistake is an Invalid error that says where, and changes
// nothing; a sandbox without a network is a Conflict.
func (c *Client) SetPolicy(ctx context.Context, id string, p api.Policy) (*api.Sandbox, error) {
	return ask[api.Sandbox](ctx, c, http.MethodPut, path(id, "/policy"), p)
}

// AddPolicy adds the rules, presets and services of p to those that there are. Of two who add at
// once none undoes what the other did. All else is as with SetPolicy.
func (c *Client) AddPolicy(ctx context.Context, id string, p api.Policy) (*api.Sandbox, error) {
	return ask[api.Sandbox](ctx, c, http.MethodPut, path(id, "/policy?add=1"), p)
}

// TestPolicy tells what would become of a request. Nothing is sent for it.
func (c *Client) TestPolicy(ctx context.Context, id string, req api.PolicyTestRequest) (*api.PolicyVerdict, error) {
	return ask[api.PolicyVerdict](ctx, c, http.MethodPost, path(id, "/policy/test"), req)
}

// PolicyPresets lists the presets that the daemon has.
func (c *Client) PolicyPresets(ctx context.Context) ([]api.PolicyPreset, error) {
	list, err := ask[[]api.PolicyPreset](ctx, c, http.MethodGet, "/v1/policy/presets", nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}
