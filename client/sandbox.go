package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/agent"
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

// CreateWatched is Create that tells how far the copy of a workspace is, where one has to be
// made, and of each step of a set-up: news is called from this goroutine.
func (c *Client) CreateWatched(ctx context.Context, req api.CreateRequest, news func(api.CreateEvent)) (*api.Sandbox, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return watched[api.Sandbox](ctx, c, "/v1/sandboxes", b, news)
}

// SetUp does s in a sandbox, which is started where it is stopped, and tells of each step.
func (c *Client) SetUp(ctx context.Context, id string, s *api.SetUp, news func(api.CreateEvent)) (*api.Sandbox, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return watched[api.Sandbox](ctx, c, path(id, "/setup"), b, news)
}

// watched asks for what takes its time, and tells news of it until it is made.
func watched[T any, E interface{ Result() (*T, *api.Error) }](ctx context.Context, c *Client, path string, b []byte, news func(E)) (*T, error) {
	var again agent.Backoff
	for {
		made, err := watchedOnce(ctx, c, path, b, news)
		if err == nil {
			return made, nil
		}
		if err := c.nextDaemon(ctx, err, &again); err != nil {
			return nil, err
		}
	}
}

// CheckCreate says why a sandbox could not be created, as far as that is known without
// making anything.
func (c *Client) CheckCreate(ctx context.Context, req api.CreateRequest) error {
	return c.call(ctx, http.MethodPost, "/v1/sandboxes?check=1", req, nil)
}

// watchedOnce is one attempt, which may fail after news.
func watchedOnce[T any, E interface{ Result() (*T, *api.Error) }](ctx context.Context, c *Client, path string, b []byte, news func(E)) (*T, error) {
	resp, err := c.sendAccepting(ctx, c.http, http.MethodPost, path, bytes.NewReader(b), "application/json", api.CreateNews)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	if resp.Header.Get("Content-Type") != api.CreateNews {
		made := new(T)
		if err := dec.Decode(made); err != nil {
			return nil, fmt.Errorf("decode what was made: %w", err)
		}
		return made, nil
	}
	for {
		var ev E
		if err := dec.Decode(&ev); err != nil {
			return nil, c.sendError(ctx, err)
		}
		switch made, failed := ev.Result(); {
		case failed != nil:
			return nil, eventError(failed)
		case made != nil:
			return made, nil
		}
		news(ev)
	}
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

// Set changes a sandbox that is there. The answer says of each thing whether it
// holds now or from the next start on. A request with a mistake is an error, and
// changes nothing.
func (c *Client) Set(ctx context.Context, id string, req api.ChangeRequest) (*api.ChangeResult, error) {
	return ask[api.ChangeResult](ctx, c, http.MethodPatch, path(id, ""), req)
}

// LockWorkspace makes directories of a workspace that others share, or all of it, read-only for what runs inside. What could go on
// writing there is in the way: a Conflict that names it, and nothing is changed; or it is ended where the request says so.
func (c *Client) LockWorkspace(ctx context.Context, id string, req api.LockRequest) (*api.LockResult, error) {
	return ask[api.LockResult](ctx, c, http.MethodPost, path(id, "/workspace/lock"), req)
}

// UnlockWorkspace undoes LockWorkspace.
func (c *Client) UnlockWorkspace(ctx context.Context, id string, req api.UnlockRequest) (*api.LockResult, error) {
	return ask[api.LockResult](ctx, c, http.MethodPost, path(id, "/workspace/unlock"), req)
}

// Processes lists what runs in a running sandbox, as that says itself.
func (c *Client) Processes(ctx context.Context, id string) (*api.Processes, error) {
	return ask[api.Processes](ctx, c, http.MethodGet, path(id, "/processes"), nil)
}

// Usage says what a running sandbox uses.
func (c *Client) Usage(ctx context.Context, id string) (*api.Usage, error) {
	return ask[api.Usage](ctx, c, http.MethodGet, path(id, "/usage"), nil)
}

// Held says how much of the host's disk a sandbox takes, running or not.
func (c *Client) Held(ctx context.Context, id string) (*api.Held, error) {
	return ask[api.Held](ctx, c, http.MethodGet, path(id, "/held"), nil)
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
