package guestcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/api/envd/filesystem/filesystemconnect"
)

// ErrNotThere is the cause of an error for a directory of the guest that
// is not there.
var ErrNotThere = errors.New("there is no such directory")

// Replace puts a tar's entries into a new directory, as root and for owner,
// which takes the place of the one at path in one step. What was there gets
// the name keep beside it, or is removed where that is "".
func (g *Guest) Replace(ctx context.Context, path, owner, keep string, tar io.Reader) error {
	q := url.Values{"path": {path}, "user": {"root"}, "owner": {owner}, "mode": {"replace"}}
	if keep != "" {
		q.Set("keep", keep)
	}
	return g.archive(ctx, http.MethodPost, q, tar, nil)
}

// Fetch hands a tar of the directory at path to take, read as root and
// without entries of the names of except. The tar is a guest's: hostile, and
// without an end that could be relied on. One that take does not read to its
// end is given up.
func (g *Guest) Fetch(ctx context.Context, path string, except []string, take func(tar io.Reader) error) error {
	return g.archive(ctx, http.MethodGet, url.Values{"path": {path}, "user": {"root"}, "except": except}, nil, take)
}

func (g *Guest) archive(ctx context.Context, method string, q url.Values, body io.Reader, take func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://guest/carboy/archive?"+q.Encode(), body)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := g.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 && take != nil {
		return take(resp.Body)
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if resp.StatusCode/100 == 2 {
		return nil
	}
	var refusal struct {
		Message string `json:"message"`
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return ErrNotThere
	case json.Unmarshal(answer, &refusal) != nil || refusal.Message == "":
		return fmt.Errorf("%w: an archive, with status %d", ErrBroken, resp.StatusCode)
	}
	return &Refusal{fmt.Sprintf("%.*q", maxReason, refusal.Message)}
}

// Remove removes a file or a directory with all that it has, as root. One
// that is not there is removed already.
func (g *Guest) Remove(ctx context.Context, path string) error {
	req := connect.NewRequest(&filesystem.RemoveRequest{Path: path})
	asRoot(req.Header())
	_, err := g.files().Remove(ctx, req)
	return g.told(ctx, err)
}

// Names lists the names in a directory, as root; one that is not there is
// ErrNotThere.
func (g *Guest) Names(ctx context.Context, path string) ([]string, error) {
	req := connect.NewRequest(&filesystem.ListDirRequest{Path: path, Depth: 1})
	asRoot(req.Header())
	res, err := g.files().ListDir(ctx, req)
	if err != nil {
		return nil, g.told(ctx, err)
	}
	var names []string
	for _, e := range res.Msg.GetEntries() {
		names = append(names, e.GetName())
	}
	return names, nil
}

func (g *Guest) files() filesystemconnect.FilesystemClient {
	return filesystemconnect.NewFilesystemClient(g.http, "http://guest", connect.WithReadMaxBytes(maxMessage))
}

// asRoot names the user for whom the guest acts.
func asRoot(h http.Header) { h.Set("Authorization", "Basic cm9vdDo=") }

func (g *Guest) told(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case connect.CodeOf(err) == connect.CodeNotFound:
		return ErrNotThere
	}
	return refused(err)
}
