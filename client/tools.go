package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api/tools"
)

// maxCollected is the size of an answer with as many attachments as there may
// be, in base64.
const maxCollected = tools.MaxAttachmentsTotal/3*4 + 8<<20

// SessionRead reads a file of a session, or lists a directory. What a tool
// could not do is in its result.
func (c *Client) SessionRead(ctx context.Context, key string, q tools.ReadRequest) (*tools.ReadResult, error) {
	return ask[tools.ReadResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+tools.ToolRead), q)
}

// SessionWrite makes or changes a file of a session.
func (c *Client) SessionWrite(ctx context.Context, key string, q tools.WriteRequest) (*tools.WriteResult, error) {
	return ask[tools.WriteResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+tools.ToolWrite), q)
}

// SessionEdit replaces a text in a file of a session.
func (c *Client) SessionEdit(ctx context.Context, key string, q tools.EditRequest) (*tools.EditResult, error) {
	return ask[tools.EditResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+tools.ToolEdit), q)
}

// SessionGlob looks for names in a session.
func (c *Client) SessionGlob(ctx context.Context, key string, q tools.GlobRequest) (*tools.GlobResult, error) {
	return ask[tools.GlobResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+tools.ToolGlob), q)
}

// SessionGrep looks for lines in a session.
func (c *Client) SessionGrep(ctx context.Context, key string, q tools.GrepRequest) (*tools.GrepResult, error) {
	return ask[tools.GrepResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+tools.ToolGrep), q)
}

// Deliver puts a query's attachments into a session.
func (c *Client) Deliver(ctx context.Context, key string, in tools.AttachmentsIn) (*tools.AttachmentsDelivered, error) {
	return ask[tools.AttachmentsDelivered](ctx, c, http.MethodPost, sessionPath(key, "/attachments"), in)
}

// Purge removes the attachments of all queries from a session, those that were
// delivered and those that nobody collected: for a platform that starts anew.
func (c *Client) Purge(ctx context.Context, key string) (*tools.Purged, error) {
	return ask[tools.Purged](ctx, c, http.MethodDelete, sessionPath(key, "/attachments"), nil)
}

// SessionTools returns the native tools with a JSON Schema of each, as a model
// is told of them, and what to tell it besides. With a query's ID it is told
// where files for the user go; "" leaves that out.
func (c *Client) SessionTools(ctx context.Context, queryID string) (*tools.ToolList, error) {
	return ask[tools.ToolList](ctx, c, http.MethodGet, "/v1/session-tools?"+url.Values{"query_id": {queryID}}.Encode(), nil)
}

// Collect takes what the agent of a session left for its user, and empties its
// place.
func (c *Client) Collect(ctx context.Context, key, queryID string) (*tools.Collected, error) {
	b, err := json.Marshal(tools.CollectRequest{QueryID: queryID})
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, c.http, http.MethodPost, sessionPath(key, "/attachments/collect"), bytes.NewReader(b), "application/json")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := new(tools.Collected)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxCollected)).Decode(out); err != nil {
		return nil, fmt.Errorf("decode collected attachments: %w", err)
	}
	return out, nil
}
