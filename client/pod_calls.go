package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/client/pod"
)

func podPath(name, below string) string { return "/v1/pods/" + url.PathEscape(name) + below }

// Pods lists the caller's pods, by name.
func (c *Client) Pods(ctx context.Context) ([]api.Pod, error) {
	list, err := ask[[]api.Pod](ctx, c, http.MethodGet, "/v1/pods", nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// Pod returns a pod.
func (c *Client) Pod(ctx context.Context, name string) (*api.Pod, error) {
	return ask[api.Pod](ctx, c, http.MethodGet, podPath(name, ""), nil)
}

// SpawnPod starts a pod with a part of its parent's scope, and gives it its task. After an error before the pod was there nothing of it
// is left; one that was there and did not take its task stays, and the error says so.
func (c *Client) SpawnPod(ctx context.Context, req api.PodRequest) (*api.PodSpawned, error) {
	return ask[api.PodSpawned](ctx, c, http.MethodPost, "/v1/pods", req)
}

// SendToPod begins a pod's next turn. While one is under way that is a Conflict.
func (c *Client) SendToPod(ctx context.Context, name, message string) error {
	return c.call(ctx, http.MethodPost, podPath(name, "/messages"), api.PodMessage{Message: message}, nil)
}

// PodOutput returns what a pod has said from an entry on; from < 0: since that was asked for the last time. Where wait is set and that is
// nothing, it waits for more as long as a turn is under way.
func (c *Client) PodOutput(ctx context.Context, name string, from int, wait bool) (*api.PodOutput, error) {
	q := url.Values{}
	if from >= 0 {
		q.Set("from", strconv.Itoa(from))
	}
	if wait {
		q.Set("wait", "1")
	}
	return ask[api.PodOutput](ctx, c, http.MethodGet, podPath(name, "/output?")+q.Encode(), nil)
}

// AttachPod connects to a pod, in its own protocol. The caller closes the connection; the pod goes on.
func (c *Client) AttachPod(ctx context.Context, name string) (*pod.Conn, error) {
	conn, err := c.become(ctx, http.MethodGet, podPath(name, "/attach"), "carboy-pod")
	if err != nil {
		return nil, err
	}
	return pod.NewConn(conn, pod.Options{}), nil
}

// StopPod ends a pod; its parent has back what it had.
func (c *Client) StopPod(ctx context.Context, name string) (*api.PodStopped, error) {
	return ask[api.PodStopped](ctx, c, http.MethodDelete, podPath(name, ""), nil)
}
