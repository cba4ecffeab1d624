package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/carboy-sandbox/carboy/api"
)

// path returns the API's path of a sandbox, by ID or name.
func path(id string, rest string) string {
	return "/v1/sandboxes/" + url.PathEscape(id) + rest
}

// ask sends one request and returns its answer.
func ask[T any](ctx context.Context, c *Client, method, path string, in any) (*T, error) {
	out := new(T)
	if err := c.call(ctx, method, path, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Create makes and starts a sandbox, and returns once its guest answers.
// Paths in req are those of the daemon's host.
func (c *Client) Create(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error) {
	return ask[api.Sandbox](ctx, c, http.MethodPost, "/v1/sandboxes", req)
}

// Get returns a sandbox by ID or name, or a NotFound error.
func (c *Client) Get(ctx context.Context, id string) (*api.Sandbox, error) {
	return ask[api.Sandbox](ctx, c, http.MethodGet, path(id, ""), nil)
}

// ListOptions select sandboxes. The zero value selects all.
type ListOptions struct {
	Labels map[string]string // all of these
	State  string            // "" or one state
}

// List returns the caller's sandboxes, oldest first.
func (c *Client) List(ctx context.Context, o ListOptions) ([]api.Sandbox, error) {
	q := url.Values{}
	for k, v := range o.Labels {
		q.Add("label", k+"="+v)
	}
	if o.State != "" {
		q.Set("state", o.State)
	}
	p := "/v1/sandboxes"
	if len(q) > 0 {
		p += "?" + q.Encode()
	}
	list, err := ask[[]api.Sandbox](ctx, c, http.MethodGet, p, nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// Start starts a stopped sandbox; one that runs is left as it is.
func (c *Client) Start(ctx context.Context, id string) (*api.Sandbox, error) {
	return ask[api.Sandbox](ctx, c, http.MethodPost, path(id, "/start"), nil)
}

// Stop ends a sandbox's processes and keeps its workspace. Lost of what it
// returns says what else was not kept.
func (c *Client) Stop(ctx context.Context, id string) (*api.Sandbox, error) {
	return ask[api.Sandbox](ctx, c, http.MethodPost, path(id, "/stop"), nil)
}

// Pause stops a sandbox so that it can go on when it is started: with its
// processes, unless that is not wanted or its wall can't. Suspended of what it
// returns says which.
func (c *Client) Pause(ctx context.Context, id string, req api.PauseRequest) (*api.Sandbox, error) {
	return ask[api.Sandbox](ctx, c, http.MethodPost, path(id, "/pause"), req)
}

// Remove deletes a sandbox and all it holds. One that runs is a Conflict
// unless force is set.
func (c *Client) Remove(ctx context.Context, id string, force bool) error {
	p := path(id, "")
	if force {
		p += "?force=1"
	}
	return c.call(ctx, http.MethodDelete, p, nil, nil)
}

// SetTimeout makes a sandbox end ttl from now; 0 means that it does not.
func (c *Client) SetTimeout(ctx context.Context, id string, ttl time.Duration) (*api.Sandbox, error) {
	return ask[api.Sandbox](ctx, c, http.MethodPost, path(id, "/timeout"), api.TimeoutRequest{TTLMillis: ttl.Milliseconds()})
}

// Version says what the daemon is.
func (c *Client) Version(ctx context.Context) (*api.Version, error) {
	return ask[api.Version](ctx, c, http.MethodGet, "/v1/version", nil)
}

// Status says how the daemon is.
func (c *Client) Status(ctx context.Context) (*api.Status, error) {
	return ask[api.Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Shutdown asks the daemon to leave. Sandboxes run on. Only the daemon's own
// user and root may, over its unix socket.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/shutdown", nil, nil)
}
