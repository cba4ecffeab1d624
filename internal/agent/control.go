package agent

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
	"net/url"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// What follows is said by walls and gates alone. Each question has a
// connection of its own, which ends with the answer.

const (
	// maxHead bounds an agent's answer, in bytes: net/http reads a header of any
	// length, and root inside may be the agent.
	maxHead = 64 << 10
	// maxConflict bounds an agent's reason, in bytes: what is lost of it is not worth more.
	maxConflict = 256

	bufferSize = 4096

	pathProcesses = "/carboy/processes"
	// maxProcesses bounds a list of processes, in bytes.
	maxProcesses = 2 << 20
)

// StatusError is an agent's answer outside 2xx.
type StatusError struct {
	Code int
	// Text is the agent's reason where Code is 409, escaped and bounded.
	Text string
	what string
}

// Error says what was asked, and none of the agent's words but Text.
func (e *StatusError) Error() string {
	if e.Text != "" {
		return "guest agent: " + e.Text
	}
	return fmt.Sprintf("guest agent: %s: status %d", e.what, e.Code)
}

// Health fails where the agent does not answer, and with status 412 where
// commands can't be run as the sandbox's user.
func (g *Guest) Health(ctx context.Context) error { return g.ask(ctx, http.MethodGet, "/health") }

// Sync returns once the guest's kernel has written back what it holds.
func (g *Guest) Sync(ctx context.Context) error {
	return g.ask(ctx, http.MethodPost, "/carboy/sync")
}

// Claim gives a warm instance its owner's environment.
func (g *Guest) Claim(ctx context.Context, c guest.Claim) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return g.converse(ctx, http.MethodPost, "/carboy/claim", body, func(*http.Response, *bufio.Reader) error { return nil })
}

// Limit changes what holds for all commands together. An agent of a version that
// can't answers with status 404.
func (g *Guest) Limit(ctx context.Context, l guest.Limits) error {
	body, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return g.converse(ctx, http.MethodPost, "/carboy/limits", body, func(*http.Response, *bufio.Reader) error { return nil })
}

// Machine changes what commands are shown of their limits. An agent of a version that
// shows nothing answers with status 404.
func (g *Guest) Machine(ctx context.Context, m guest.Machine) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return g.converse(ctx, http.MethodPost, "/carboy/machine", body, func(*http.Response, *bufio.Reader) error { return nil })
}

// Bounds of what an agent says of what was in the way of a lock.
const (
	maxHolders    = 16
	maxHolderText = 200 // bytes
)

// Lock makes a mount of the instance's read-only for all inside, or writable again, and returns what was in the way or was
// ended: the guest's word, escaped and bounded.
func (g *Guest) Lock(ctx context.Context, l guest.Lock) (answer guest.LockAnswer, err error) {
	body, err := json.Marshal(l)
	if err != nil {
		return answer, err
	}
	err = g.converse(ctx, http.MethodPost, "/carboy/lock", body, func(resp *http.Response, _ *bufio.Reader) error {
		return json.NewDecoder(resp.Body).Decode(&answer)
	})
	for _, list := range []*[]guest.Holder{&answer.Holders, &answer.Ended} {
		*list = (*list)[:min(len(*list), maxHolders)]
		for i := range *list {
			h := &(*list)[i]
			h.Program, h.Path = bounded(h.Program), bounded(h.Path)
		}
	}
	return answer, err
}

// bounded is a text of the guest's as it may be shown.
func bounded(text string) string {
	return term.Escape(strings.ToValidUTF8(text[:min(len(text), maxHolderText)], "?"))
}

// Metrics returns what the agent measures. None of it is to be believed.
func (g *Guest) Metrics(ctx context.Context) (raw []byte, err error) {
	err = g.converse(ctx, http.MethodGet, "/metrics", nil, func(resp *http.Response, _ *bufio.Reader) error {
		raw, err = io.ReadAll(resp.Body)
		return err
	})
	return raw, err
}

// maxLack bounds what an agent says that it could not do, in bytes, and maxLacks how
// many such things are heard.
const (
	maxLack  = 400
	maxLacks = 8
	// maxAsked is how many names are heard.
	maxAsked = 128
)

// Lacks returns what the agent could not do, of those things whose text begins with
// about. It is the guest's word: escaped and bounded.
func (g *Guest) Lacks(ctx context.Context, about string) (lacks []string, err error) {
	var status struct {
		Lacks []string `json:"lacks"`
	}
	err = g.converse(ctx, http.MethodGet, "/carboy/status", nil, func(resp *http.Response, _ *bufio.Reader) error {
		return json.NewDecoder(resp.Body).Decode(&status)
	})
	for _, l := range status.Lacks {
		if text, ok := strings.CutPrefix(l, about); ok && len(lacks) < maxLacks {
			lacks = append(lacks, term.Escape(strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxLack)], "?"))))
		}
	}
	return lacks, err
}

// Asked returns which names were asked for in vain in an instance without a network.
// None of it is to be believed; a name holds nothing that a terminal obeys.
func (g *Guest) Asked(ctx context.Context) (answer guest.AskedAnswer, err error) {
	err = g.converse(ctx, http.MethodGet, "/carboy/asked", nil, func(resp *http.Response, _ *bufio.Reader) error {
		return json.NewDecoder(resp.Body).Decode(&answer)
	})
	answer.Names = answer.Names[:min(len(answer.Names), maxAsked)]
	for i := range answer.Names {
		a := &answer.Names[i]
		a.Name, a.Type = term.Escape(a.Name), term.Escape(a.Type)
	}
	return answer, err
}

// Processes lists what runs inside. None of it is to be believed, nor shown as it is.
func (g *Guest) Processes(ctx context.Context) (p guest.Processes, err error) {
	err = g.converse(ctx, http.MethodGet, pathProcesses, nil, func(resp *http.Response, _ *bufio.Reader) error {
		return json.NewDecoder(resp.Body).Decode(&p)
	})
	return p, err
}

// Probe makes attempts from inside, with the rights of a command.
func (g *Guest) Probe(ctx context.Context, p guest.Probe) (results []guest.ProbeResult, err error) {
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	var answer guest.ProbeAnswer
	err = g.converse(ctx, http.MethodPost, "/carboy/probe", body, func(resp *http.Response, _ *bufio.Reader) error {
		return json.NewDecoder(resp.Body).Decode(&answer)
	})
	return answer.Results, err
}

// Suspend has the agent give up its connections, and returns once the last one
// has ended, which is the one over which it was asked. A program's socket that
// can't be written down is status 409, and its text the socket's path.
func (g *Guest) Suspend(ctx context.Context) error {
	return g.converse(ctx, http.MethodPost, "/carboy/suspend", nil, func(_ *http.Response, c *bufio.Reader) error {
		switch n, err := io.CopyN(io.Discard, c, 1); {
		case n > 0:
			return errors.New("something follows the guest agent's answer")
		case !errors.Is(err, io.EOF):
			return err
		}
		return nil
	})
}

// Hold stops all commands until release is called or ctx ends, and waits at
// most limit until they have stopped.
//
// The connection is what they are held by: with its end they go on, whichever
// side ends it. Nothing is frozen from outside: a frozen file system or control
// group would stay so when this process is killed, and a kernel of its own could
// not write back what it holds.
func (g *Guest) Hold(ctx context.Context, limit time.Duration) (release func(), err error) {
	c, stop, err := g.open(ctx)
	if err != nil {
		return nil, err
	}
	release = func() { stop(); c.Close() }
	if err = c.SetReadDeadline(time.Now().Add(limit)); err == nil {
		_, _, err = exchange(c, maxHead, http.MethodPost, "/carboy/hold", "", nil) //nolint:bodyclose // it ends with the connection
	}
	if err != nil {
		release()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return release, nil
}

// Held fails where commands were not held without a break.
func (g *Guest) Held(ctx context.Context) error { return g.ask(ctx, http.MethodGet, "/carboy/hold") }

// ask sends a request without a body and wants a 2xx.
func (g *Guest) ask(ctx context.Context, method, path string) error {
	return g.converse(ctx, method, path, nil, func(*http.Response, *bufio.Reader) error { return nil })
}

// converse sends a request, wants a 2xx, and hands on the answer and what
// follows on the connection.
func (g *Guest) converse(ctx context.Context, method, path string, body []byte, next func(*http.Response, *bufio.Reader) error) error {
	c, stop, err := g.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	defer stop()
	resp, r, err := exchange(c, limitOf(path), method, path, "Connection: close\r\n", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return next(resp, r)
}

// open makes a connection that ends with ctx, until stop is called.
func (g *Guest) open(ctx context.Context) (c net.Conn, stop func() bool, err error) {
	if c, err = g.dial(ctx); err != nil {
		return nil, nil, err
	}
	return c, interrupt(ctx, c), nil
}

// interrupt has ctx end what is read from a connection or written to it.
func interrupt(ctx context.Context, c net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
}

// limitOf bounds an answer, in bytes.
func limitOf(path string) int64 {
	if path == pathProcesses {
		return maxProcesses
	}
	return maxHead
}

// exchange, which reads limit bytes at most, sends a request and reads the head of the answer, which is a 2xx.
func exchange(c net.Conn, limit int64, method, path, header string, body []byte) (*http.Response, *bufio.Reader, error) {
	const head = "%s %s HTTP/1.1\r\nHost: guest\r\n%sContent-Length: %d\r\n\r\n%s"
	if _, err := fmt.Fprintf(c, head, method, path, header, len(body), body); err != nil {
		return nil, nil, err
	}
	r := bufio.NewReaderSize(io.LimitReader(c, limit), bufferSize)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, r, nil
	}
	defer resp.Body.Close()
	e := &StatusError{Code: resp.StatusCode, what: method + " " + path}
	if e.Code == http.StatusConflict {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxConflict))
		e.Text = term.Escape(strings.TrimSpace(string(text)))
	}
	return nil, nil, e
}

// Forward asks the agent at the other end of c to connect it to a port of the
// guest's loopback. It returns c, or closes it. Where nothing listens there,
// that is a StatusError.
func Forward(ctx context.Context, c net.Conn, port int) (net.Conn, error) {
	return through(ctx, c, fmt.Sprintf("127.0.0.1:%d", port), "")
}

// ErrNobody says that nobody listens at a socket inside.
var ErrNobody = errors.New("nobody listens there")

// Socket asks the agent at the other end of c to connect it to a unix socket inside. It returns c, or closes it. The cause of its error is
// ErrNobody where nobody listens at the path, and ErrOld for an agent that can't.
func Socket(ctx context.Context, c net.Conn, path string) (net.Conn, error) {
	c, err := through(ctx, c, guest.SocketTarget, guest.SocketHeader+": "+url.QueryEscape(path)+"\r\n")
	e, ok := errors.AsType[*StatusError](err)
	switch {
	case ok && e.Code == http.StatusNotFound:
		return nil, fmt.Errorf("%w: %w", ErrNobody, err)
	case ok && e.Code == http.StatusBadRequest:
		return nil, fmt.Errorf("%w: %w", ErrOld, err)
	}
	return c, err
}

// Actions asks the agent at the other end of c to answer one request of the
// action protocol on it; see package api/action. It returns c, or closes it. The
// cause of its error is ErrOld for an agent that speaks no such protocol.
func Actions(ctx context.Context, c net.Conn) (net.Conn, error) {
	c, err := through(ctx, c, guest.ActionsTarget, "")
	if e, ok := errors.AsType[*StatusError](err); ok && e.Code == http.StatusBadRequest {
		return nil, fmt.Errorf("%w: %w", ErrOld, err)
	}
	return c, err
}

// through makes c a connection to what target, and further header lines, say.
func through(ctx context.Context, c net.Conn, target, header string) (net.Conn, error) {
	defer interrupt(ctx, c)()
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, target, header); err != nil {
		c.Close()
		return nil, fmt.Errorf("ask for %s: %w", target, err)
	}
	head := &io.LimitedReader{R: c, N: maxHead}
	r := bufio.NewReaderSize(head, bufferSize)
	//nolint:bodyclose // it is the connection
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	head.N = math.MaxInt64 // what follows is a stream
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("ask for %s: %w", target, err)
	}
	if resp.StatusCode != http.StatusOK {
		c.Close()
		return nil, &StatusError{Code: resp.StatusCode, what: http.MethodConnect + " " + target}
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
