package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api"
)

// Snapshot saves what a sandbox wrote, for others to start from, and returns
// once that is kept. A running one stands still meanwhile. A sandbox whose
// workspace is a directory of the host is Unsupported.
func (c *Client) Snapshot(ctx context.Context, id string) (*api.Snapshot, error) {
	return ask[api.Snapshot](ctx, c, http.MethodPost, "/v1/sandboxes/"+url.PathEscape(id)+"/snapshots", nil)
}

// Snapshots lists the caller's snapshots, oldest first.
func (c *Client) Snapshots(ctx context.Context) ([]api.Snapshot, error) {
	list, err := ask[[]api.Snapshot](ctx, c, http.MethodGet, "/v1/snapshots", nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// GetSnapshot returns the snapshot of that ID.
func (c *Client) GetSnapshot(ctx context.Context, id string) (*api.Snapshot, error) {
	return ask[api.Snapshot](ctx, c, http.MethodGet, "/v1/snapshots/"+url.PathEscape(id), nil)
}

// RemoveSnapshot removes a snapshot: no sandbox starts from it any more. Those
// that did go on; its files go with the last of them.
func (c *Client) RemoveSnapshot(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/v1/snapshots/"+url.PathEscape(id), nil, nil)
}
