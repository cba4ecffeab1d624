package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api"
)

// Volumes lists the caller's volumes, and everyone's for an admin.
func (c *Client) Volumes(ctx context.Context) ([]api.Volume, error) {
	list, err := ask[[]api.Volume](ctx, c, http.MethodGet, "/v1/volumes", nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// CreateVolume makes an empty volume. A name that is taken is a Conflict.
func (c *Client) CreateVolume(ctx context.Context, req api.VolumeRequest) (*api.Volume, error) {
	return ask[api.Volume](ctx, c, http.MethodPost, "/v1/volumes", req)
}

// Volume returns the volume of that name or ID.
func (c *Client) Volume(ctx context.Context, ref string) (*api.Volume, error) {
	return ask[api.Volume](ctx, c, http.MethodGet, "/v1/volumes/"+url.PathEscape(ref), nil)
}

// RemoveVolume deletes a volume and what it holds. One that a sandbox has is a
// Conflict.
func (c *Client) RemoveVolume(ctx context.Context, ref string) error {
	return c.call(ctx, http.MethodDelete, "/v1/volumes/"+url.PathEscape(ref), nil, nil)
}

// DiscardVolume removes a volume that was made for one sandbox, of which nothing came: a
// Conflict where anybody has asked for it besides, or may have.
func (c *Client) DiscardVolume(ctx context.Context, ref string) error {
	return c.call(ctx, http.MethodDelete, "/v1/volumes/"+url.PathEscape(ref)+"?fresh=1", nil, nil)
}
