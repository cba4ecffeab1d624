package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/carboy-sandbox/carboy/api/action"
)

// servicePath returns the API's path of a service of a sandbox.
func servicePath(id, name, rest string) string {
	return path(id, "/services/"+url.PathEscape(name)+rest)
}

// StartService starts a program of a sandbox that goes on, and returns once it is ready; one
// that is not in time is ended, and the error tells what it wrote last. The action of the
// request is left out. A sandbox that ended by itself is started again.
func (c *Client) StartService(ctx context.Context, id string, req action.StartServiceRequest) (*action.Service, error) {
	req.Action = ""
	return ask[action.Service](ctx, c, http.MethodPost, path(id, "/services"), req)
}

// Services lists the services of a sandbox, those that have ended too.
func (c *Client) Services(ctx context.Context, id string) ([]action.Service, error) {
	list, err := ask[action.ListServicesReply](ctx, c, http.MethodGet, path(id, "/services"), nil)
	if err != nil {
		return nil, err
	}
	return list.Services, nil
}

// Service returns the state of a service, or a NotFound error.
func (c *Client) Service(ctx context.Context, id, name string) (*action.Service, error) {
	return ask[action.Service](ctx, c, http.MethodGet, servicePath(id, name, ""), nil)
}

// ServiceLogs returns the last lines that a service wrote; 0: all that is kept.
func (c *Client) ServiceLogs(ctx context.Context, id, name string, tail int) (*action.LogsServiceReply, error) {
	return ask[action.LogsServiceReply](ctx, c, http.MethodGet, servicePath(id, name, "/logs?tail="+strconv.Itoa(tail)), nil)
}

// StopService ends a service and all that it started.
func (c *Client) StopService(ctx context.Context, id, name string) (*action.Service, error) {
	return ask[action.Service](ctx, c, http.MethodDelete, servicePath(id, name, ""), nil)
}
