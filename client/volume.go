package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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

// ImportVolume makes a volume that begins as a copy of req.From, and tells how far that is: news is called from this goroutine.
func (c *Client) ImportVolume(ctx context.Context, req api.VolumeRequest, news func(api.VolumeEvent)) (*api.Volume, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return watched[api.Volume](ctx, c, "/v1/volumes", b, news)
}

// VolumeChanges is Changes of a volume that began as a copy of a directory. Whole and Hold are refused.
func (c *Client) VolumeChanges(ctx context.Context, ref string, o ChangesOptions) (io.ReadCloser, error) {
	return c.changes(ctx, "/v1/volumes/"+url.PathEscape(ref)+"/changes", o)
}

// ExportVolume returns all that a volume holds, as a tar of one directory. The caller closes it; one that is cut short is no whole
// archive.
func (c *Client) ExportVolume(ctx context.Context, ref string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, c.http, http.MethodGet, "/v1/volumes/"+url.PathEscape(ref)+"/archive", nil, "")
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
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
