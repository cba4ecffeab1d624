package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"

	"github.com/carboy-sandbox/carboy/api"
)

// Approvals lists what sandboxes ask: what waits for an answer, and with all what
// became of the rest.
func (c *Client) Approvals(ctx context.Context, all bool) ([]api.Approval, error) {
	p := "/v1/approvals"
	if all {
		p += "?all=1"
	}
	list, err := ask[[]api.Approval](ctx, c, http.MethodGet, p, nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// Approval returns one.
func (c *Client) Approval(ctx context.Context, id int64) (*api.Approval, error) {
	return ask[api.Approval](ctx, c, http.MethodGet, fmt.Sprintf("/v1/approvals/%d", id), nil)
}

// Allow lets through what a question is about. One that is over is a Conflict.
func (c *Client) Allow(ctx context.Context, id int64, d api.ApprovalDecision) (*api.Approval, error) {
	return ask[api.Approval](ctx, c, http.MethodPost, fmt.Sprintf("/v1/approvals/%d/allow", id), d)
}

// Deny has it refused.
func (c *Client) Deny(ctx context.Context, id int64, d api.ApprovalDecision) (*api.Approval, error) {
	return ask[api.Approval](ctx, c, http.MethodPost, fmt.Sprintf("/v1/approvals/%d/deny", id), d)
}

// FollowApprovals yields what waits for an answer, and then each question again as
// it changes, until ctx ends. It looks for a daemon that went away, and what that one
// was asked is not asked any more. An error is yielded last.
func (c *Client) FollowApprovals(ctx context.Context) iter.Seq2[api.Approval, error] {
	return lines[api.Approval]{
		what: "approval", follow: true, endless: true,
		path: func() string { return "/v1/approvals?follow=1" },
	}.of(ctx, c)
}
