package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/disk/sparse"
)

// DiskList lists what a path of a stopped sandbox's disk names, as it was seen inside, ordered by whole
// paths: a directory's entries and, recursively, all below it, or the one thing that it is.
func (c *Client) DiskList(ctx context.Context, id, at string, recursive bool) (*api.DiskListing, error) {
	q := url.Values{"path": {at}}
	if recursive {
		q.Set("recursive", "1")
	}
	resp, err := c.send(ctx, c.http, http.MethodGet, path(id, "/disk")+"?"+q.Encode(), nil, "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	list := new(api.DiskListing)
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDiskList)).Decode(list); err != nil {
		return nil, c.sendError(ctx, err)
	}
	return list, nil
}

// maxDiskList bounds a listing, in bytes: a million entries and more.
const maxDiskList = 1 << 30

// DiskRead reads the beginning of a file of a stopped sandbox's disk: at most so many bytes.
func (c *Client) DiskRead(ctx context.Context, id, at string, maxBytes int64) (*action.ReadFileReply, error) {
	q := url.Values{"path": {at}, "max_bytes": {strconv.FormatInt(maxBytes, 10)}}
	return ask[action.ReadFileReply](ctx, c, http.MethodGet, path(id, "/disk/file")+"?"+q.Encode(), nil)
}

// maxImage bounds the image of a disk, in bytes.
const maxImage = 1 << 46

// DiskExport writes the image of a stopped sandbox's disk to an empty file, holes left out, and
// returns its length. What was in runtime directories is not in it. progress, where it is not
// nil, is told how many bytes came.
func (c *Client) DiskExport(ctx context.Context, id string, to *os.File, progress func(int64)) (int64, error) {
	resp, err := c.send(ctx, c.http, http.MethodGet, path(id, "/disk/image"), nil, "")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := sparse.Read(bufio.NewReaderSize(resp.Body, 1<<20), to, maxImage, progress)
	if err != nil {
		return 0, c.sendError(ctx, err)
	}
	return n, nil
}

// DiskScrub erases runtime directories of a stopped sandbox's disk. progress, where it is not nil, is
// told how far that is, from this goroutine.
func (c *Client) DiskScrub(ctx context.Context, id string, progress func(api.DiskNews)) error {
	resp, err := c.send(ctx, c.http, http.MethodPost, path(id, "/disk/scrub"), nil, "")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		var n api.DiskNews
		if err := json.Unmarshal(sc.Bytes(), &n); err != nil {
			return fmt.Errorf("decode news of a disk: %w", err)
		}
		switch {
		case n.Error != nil:
			return eventError(n.Error)
		case n.Scrubbed:
			return nil
		case progress != nil:
			progress(n)
		}
	}
	err = sc.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return c.sendError(ctx, err)
}
