package instance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/term"
)

// Dial implements sandbox.Backend. The only port of this wall that is dialled
// from outside is the agent's: the agent forwards to others.
func (h *Host) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	dir, err := h.dir(id)
	if err != nil {
		return nil, err
	}
	c, err := dialAgent(ctx, dir)
	if errors.Is(err, errOlder) {
		return nil, olderError(id)
	}
	if err != nil {
		return nil, &sandbox.Error{
			Kind: sandbox.Unavailable, Msg: "the sandbox's guest agent does not answer", Err: err,
		}
	}
	if port == sandbox.GuestPort {
		return c, nil
	}
	return forwarded(ctx, c, port)
}

// dialAgent connects to the agent of the instance at path.
func dialAgent(ctx context.Context, path string) (net.Conn, error) {
	dir, err := beneath.OpenDir(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	key, err := readKey(dir)
	if errors.Is(err, os.ErrNotExist) && older(path) {
		return nil, errOlder
	}
	if err != nil {
		return nil, err
	}
	at, done, err := socketDir(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	return control.Dial(ctx, at, fileSocket, key)
}

// forwarded asks the agent to connect c to a port on the guest's loopback.
func forwarded(ctx context.Context, c net.Conn, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		c.Close()
		return nil, sandbox.Errorf(sandbox.Invalid, "port %d: not between 1 and 65535", port)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	target := fmt.Sprintf("127.0.0.1:%d", port)
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		c.Close()
		return nil, fmt.Errorf("ask for port %d: %w", port, err)
	}
	head := &io.LimitedReader{R: c, N: maxHead}
	r := bufio.NewReaderSize(head, 4096)
	//nolint:bodyclose // it is the connection
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	head.N = math.MaxInt64 // what follows is a stream
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("ask for port %d: %w", port, err)
	}
	if resp.StatusCode != http.StatusOK {
		c.Close()
		return nil, sandbox.Errorf(sandbox.Unavailable, "port %d: nothing listens there", port)
	}
	return &bufferedConn{Conn: c, r: r}, nil
}

// bufferedConn returns what was read with the answer first.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite ends the direction to the guest, as *net.UnixConn does.
func (c *bufferedConn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// healthy asks the agent how it is.
func (h *Host) healthy(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return h.ask(ctx, id, http.MethodGet, "/health")
}

// maxHead bounds an agent's answer to what we ask of it, in bytes: net/http
// reads a header of any length, and whoever is root inside may be the agent.
const maxHead = 64 << 10

// ask sends a request without a body and wants a 2xx.
func (h *Host) ask(ctx context.Context, id, method, path string) error {
	return h.askWith(ctx, id, method, path, nil)
}

// conflict is why an agent will not do something, in its own words.
type conflict struct{ text string }

func (c *conflict) Error() string { return "guest agent: " + c.text }

const maxConflict = 256 // bytes

func (h *Host) askWith(ctx context.Context, id, method, path string, body []byte) error {
	return h.converse(ctx, id, method, path, body, nil)
}

// converse sends a request, wants a 2xx, and hands on what follows on the
// connection where next is not nil.
func (h *Host) converse(ctx context.Context, id, method, path string, body []byte, next func(io.Reader) error) error {
	c, err := h.Dial(ctx, id, sandbox.GuestPort)
	if err != nil {
		return err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	const head = "%s %s HTTP/1.1\r\nHost: guest\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
	if _, err := fmt.Fprintf(c, head, method, path, len(body), body); err != nil {
		return err
	}
	r := bufio.NewReaderSize(io.LimitReader(c, maxHead), 4096)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusConflict:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxConflict)) // what is lost of it is not worth more
		return &conflict{term.Escape(strings.TrimSpace(string(text)))}
	case resp.StatusCode == http.StatusPreconditionFailed:
		return errNoUser
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("guest agent: %s %s: status %d", method, path, resp.StatusCode)
	case next != nil:
		return next(r)
	}
	return nil
}

// errNoUser is a guest agent's answer where commands can't be run as the user
// that it was told.
var errNoUser = sandbox.Errorf(sandbox.Invalid, "user: the image has no such account, or it is root's where root is not allowed").
	WithHint("user, root, or one of the image's accounts")

// Bounds of waiting for a guest agent.
const (
	guestStart = 30 * time.Second      // its start, on a loaded machine
	guestTick  = 20 * time.Millisecond // between looks at whether its instance is alive
)

// awaitGuest waits until the agent answers or the instance's main process has
// ended. What is said to the agent before it listens waits for it.
func (h *Host) awaitGuest(ctx context.Context, id string, main procid.ID) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(guestTick)
		defer tick.Stop()
		late := time.NewTimer(guestStart)
		defer late.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-late.C:
				cancel(errors.New("no answer in time"))
			case <-tick.C:
				if !procid.Alive(main) {
					cancel(fmt.Errorf("the sandbox ended while it started: %w", os.ErrProcessDone))
				}
			}
		}
	}()
	err := h.ask(ctx, id, http.MethodGet, "/health")
	if errors.Is(err, errNoUser) {
		return err
	}
	if err != nil {
		err = fmt.Errorf("wait for guest agent: %w", errors.Join(context.Cause(ctx), err))
	}
	cancel(nil)
	<-watched
	return err
}

// Claim makes an instance that was started for nobody sb's: it gets sb's
// environment. Its identity and its limits are what it was started with.
func (h *Host) Claim(ctx context.Context, sb *sandbox.Sandbox) error {
	dir, err := h.dir(sb.ID)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"env": sb.Spec.Env})
	if err != nil {
		return err
	}
	if err := h.askWith(ctx, sb.ID, http.MethodPost, "/carboy/claim", body); err != nil {
		return fmt.Errorf("claim a warm instance: %w", err)
	}
	now := time.Now()
	return os.Chtimes(filepath.Join(dir, fileSince), now, now)
}
