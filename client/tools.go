package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/carboy-sandbox/carboy/api/langbot"
)

// maxCollected is the size of an answer with as many attachments as there may
// be, in base64.
const maxCollected = langbot.MaxAttachmentsTotal/3*4 + 8<<20

// SessionRead reads a file of a session, or lists a directory. What a tool
// could not do is in its result.
func (c *Client) SessionRead(ctx context.Context, key string, q langbot.ReadRequest) (*langbot.ReadResult, error) {
	return ask[langbot.ReadResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+langbot.ToolRead), q)
}

// SessionWrite makes or changes a file of a session.
func (c *Client) SessionWrite(ctx context.Context, key string, q langbot.WriteRequest) (*langbot.WriteResult, error) {
	return ask[langbot.WriteResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+langbot.ToolWrite), q)
}

// SessionEdit replaces a text in a file of a session.
func (c *Client) SessionEdit(ctx context.Context, key string, q langbot.EditRequest) (*langbot.EditResult, error) {
	return ask[langbot.EditResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+langbot.ToolEdit), q)
}

// SessionGlob looks for names in a session.
func (c *Client) SessionGlob(ctx context.Context, key string, q langbot.GlobRequest) (*langbot.GlobResult, error) {
	return ask[langbot.GlobResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+langbot.ToolGlob), q)
}

// SessionGrep looks for lines in a session.
func (c *Client) SessionGrep(ctx context.Context, key string, q langbot.GrepRequest) (*langbot.GrepResult, error) {
	return ask[langbot.GrepResult](ctx, c, http.MethodPost, sessionPath(key, "/tools/"+langbot.ToolGrep), q)
}

// Deliver puts a query's attachments into a session.
func (c *Client) Deliver(ctx context.Context, key string, in langbot.AttachmentsIn) (*langbot.AttachmentsDelivered, error) {
	return ask[langbot.AttachmentsDelivered](ctx, c, http.MethodPost, sessionPath(key, "/attachments"), in)
}

// Purge removes the attachments of all queries from a session, those that were
// delivered and those that nobody collected: for a platform that starts anew.
func (c *Client) Purge(ctx context.Context, key string) (*langbot.Purged, error) {
	return ask[langbot.Purged](ctx, c, http.MethodDelete, sessionPath(key, "/attachments"), nil)
}

// SessionTools returns the native tools with a JSON Schema of each, as a model
// is told of them, and what to tell it besides. With a query's ID it is told
// where files for the user go; "" leaves that out.
func (c *Client) SessionTools(ctx context.Context, queryID string) (*langbot.ToolList, error) {
	return ask[langbot.ToolList](ctx, c, http.MethodGet, "/v1/session-tools?"+url.Values{"query_id": {queryID}}.Encode(), nil)
}

// Collect takes what the agent of a session left for its user, and empties its
// place.
func (c *Client) Collect(ctx context.Context, key, queryID string) (*langbot.Collected, error) {
	b, err := json.Marshal(langbot.CollectRequest{QueryID: queryID})
	if err != nil {
		return nil, err
	}
	resp, err := c.send(ctx, c.http, http.MethodPost, sessionPath(key, "/attachments/collect"), bytes.NewReader(b), "application/json")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := new(langbot.Collected)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxCollected)).Decode(out); err != nil {
		return nil, fmt.Errorf("decode collected attachments: %w", err)
	}
	return out, nil
}
