package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/carboy-sandbox/carboy/api"
)

// maxImageLine bounds one line of the answer of a pull or an import: the last
// one has a whole image.
const maxImageLine = 16 << 20

// PullImage makes the daemon fetch an image and returns it. progress, which
// may be nil, is called for each piece of news, from this goroutine. The end
// of ctx ends the work; what is there already need not be fetched again.
func (c *Client) PullImage(ctx context.Context, req api.PullRequest, progress func(api.ImageProgress)) (*api.Image, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	resp, err := c.send(ctx, c.http, http.MethodPost, "/v1/images/pull", bytes.NewReader(b), "application/json")
	if err != nil {
		return nil, err
	}
	return c.readImage(ctx, resp, progress)
}

// ImportImage makes an image of a tar stream: what `docker save` writes, an
// OCI archive, or a plain root file system. With an empty name it gets those
// that the archive has. progress is as with PullImage. An error of reading tar
// ends the work, and is in the error's chain.
func (c *Client) ImportImage(ctx context.Context, name string, tar io.Reader, progress func(api.ImageProgress)) (*api.Image, error) {
	p := "/v1/images/import"
	if name != "" {
		p += "?" + url.Values{"name": {name}}.Encode()
	}
	body := &sentReader{r: tar}
	defer body.end()
	resp, err := c.send(ctx, c.http, http.MethodPost, p, body, "application/x-tar")
	if err != nil {
		return nil, body.orElse(ctx, err)
	}
	img, err := c.readImage(ctx, resp, progress)
	if err != nil {
		return nil, body.orElse(ctx, err)
	}
	return img, nil
}

// Images lists the caller's images.
func (c *Client) Images(ctx context.Context) ([]api.Image, error) {
	list, err := ask[[]api.Image](ctx, c, http.MethodGet, "/v1/images", nil)
	if err != nil {
		return nil, err
	}
	return *list, nil
}

// Image returns the image that ref names: a name, a name with a digest, or the
// start of a digest. Where the daemon has none, that is a NotFound error.
func (c *Client) Image(ctx context.Context, ref string) (*api.Image, error) {
	list, err := ask[[]api.Image](ctx, c, http.MethodGet, imagePath(ref), nil)
	if err != nil {
		return nil, err
	}
	if len(*list) != 1 {
		return nil, fmt.Errorf("decode answer: %d images of one name", len(*list))
	}
	return &(*list)[0], nil
}

// RemoveImage takes an image's name away. Sandboxes that were made of it go
// on; its files stay until CollectImages.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	return c.call(ctx, http.MethodDelete, imagePath(ref), nil, nil)
}

// CollectImages deletes the images that no name and no sandbox of anybody
// needs. Only the daemon's own user and root may, over its unix socket.
func (c *Client) CollectImages(ctx context.Context) (*api.ImageGC, error) {
	return ask[api.ImageGC](ctx, c, http.MethodPost, "/v1/images/gc", nil)
}

func imagePath(ref string) string {
	return "/v1/images?" + url.Values{"ref": {ref}}.Encode()
}

// readImage reads lines of progress up to the image or the error that is the
// last one.
func (c *Client) readImage(ctx context.Context, resp *http.Response, progress func(api.ImageProgress)) (*api.Image, error) {
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, maxImageLine)
	for sc.Scan() {
		if len(sc.Bytes()) == 0 {
			continue
		}
		var ev api.ImageEvent
		if err := json.Unmarshal(sc.Bytes(), &ev); err != nil {
			return nil, fmt.Errorf("decode news of an image: %w", err)
		}
		switch {
		case ev.Error != nil:
			return nil, eventError(ev.Error)
		case ev.Image != nil:
			return ev.Image, nil
		case ev.Progress != nil && progress != nil:
			progress(*ev.Progress)
		}
	}
	err := sc.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	if errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("decode news of an image: %w", err)
	}
	return nil, c.sendError(ctx, err)
}

// eventError is an error that is the last line of a stream.
func eventError(e *api.Error) error {
	return &Error{Kind: cmp.Or(kindOfText(e.Code), Internal), Msg: e.Message, Hint: e.Hint, Again: e.Again}
}

// sentReader remembers why reading what is sent failed: the connection that
// breaks by that says nothing of it. It is not read any more once the call
// that sends it has returned.
type sentReader struct {
	r io.Reader

	mu    sync.Mutex
	ended bool
	err   error // other than io.EOF
}

var errSent = errors.New("the request is over")

// Read reads for the transport.
func (s *sentReader) Read(b []byte) (int, error) {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended {
		return 0, errSent
	}
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF { // as io.Reader has it
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

// end is called when nothing more is to be read.
func (s *sentReader) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// orElse returns why reading failed, if it did, and err otherwise. What the
// daemon answered goes first: it may be why the rest could not be sent.
func (s *sentReader) orElse(ctx context.Context, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := errors.AsType[*Error](err); s.err == nil || ctx.Err() != nil || ok && e.Kind != Unavailable {
		return err
	}
	return fmt.Errorf("read the archive: %w", s.err)
}
