package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/api/envd/filesystem/filesystemconnect"
)

// Skip is a member of an archive that was left out, and why. Both texts come
// from the sandbox: escape them before they are shown.
type Skip struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// UploadOptions say where an archive goes.
type UploadOptions struct {
	Path string // inside; absolute, or relative to the user's start directory
	User string // whose rights are used and who owns what is made; "": the sandbox's default
	// Mode is "into" (default): the members go into the directory Path; or
	// "as": the archive's one top-level member becomes Path.
	Mode string
	// Skipped is called for each member that was left out.
	Skipped func(Skip)
}

// Upload extracts a tar stream inside a sandbox.
func (c *Client) Upload(ctx context.Context, id string, o UploadOptions, tar io.Reader) error {
	resp, err := c.send(ctx, c.guest, http.MethodPost, archivePath(id, o.Path, o.User, o.Mode), tar, "application/x-tar")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var res struct {
		Skipped []Skip `json:"skipped"`
		More    int64  `json:"skipped_more"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&res); err != nil {
		return fmt.Errorf("decode answer to upload: %w", err)
	}
	if o.Skipped == nil {
		return nil
	}
	for _, s := range res.Skipped {
		o.Skipped(s)
	}
	if res.More > 0 {
		o.Skipped(more(res.More))
	}
	return nil
}

// more stands for members of which only the number is known.
func more(n int64) Skip { return Skip{Name: fmt.Sprintf("%d more", n), Reason: "not listed"} }

// Download returns a file or directory inside as a tar stream: an *Archive.
// A stream that is cut short ends with an error.
func (c *Client) Download(ctx context.Context, id, name, user string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, c.guest, http.MethodGet, archivePath(id, name, user, ""), nil, "") //nolint:bodyclose // the Archive closes it
	if err != nil {
		return nil, err
	}
	return &Archive{resp: resp}, nil
}

func archivePath(id, name, user, mode string) string {
	q := url.Values{"path": {name}}
	for k, v := range map[string]string{"user": user, "mode": mode} {
		if v != "" {
			q.Set(k, v)
		}
	}
	return path(id, "/guest/carboy/archive") + "?" + q.Encode()
}

// Archive is a tar stream out of a sandbox.
type Archive struct{ resp *http.Response }

// Read implements io.Reader.
func (a *Archive) Read(b []byte) (int, error) { return a.resp.Body.Read(b) }

// Close implements io.Closer.
func (a *Archive) Close() error { return a.resp.Body.Close() }

// Skipped returns the members that were left out. It is known once Read has
// returned io.EOF.
func (a *Archive) Skipped() []Skip {
	var skipped []Skip
	if json.Unmarshal([]byte(a.resp.Trailer.Get("Carboy-Skipped")), &skipped) != nil {
		skipped = nil // of a guest that means harm, or of none
	}
	n, err := strconv.ParseInt(a.resp.Trailer.Get("Carboy-Skipped-Count"), 10, 64)
	if left := n - int64(len(skipped)); err == nil && left > 0 {
		skipped = append(skipped, more(left))
	}
	return skipped
}

// RemoveFile removes a file or a directory inside, with the rights of the sandbox's user.
// One that is not there is no error.
func (c *Client) RemoveFile(ctx context.Context, id, name string) error {
	files := filesystemconnect.NewFilesystemClient(c.guest, c.base+path(id, "/guest"))
	_, err := files.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: name}))
	if err == nil {
		return nil
	}
	if e, _ := c.rpcError(err); e.Kind != NotFound {
		return e
	}
	return nil
}
