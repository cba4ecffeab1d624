package boxservice

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/coder/websocket"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	relayProtocol = "mcp"
	maxRefusal    = 64 << 10
)

// Attachment is the input and output of a managed process, line by line. One
// goroutine may read while another writes.
type Attachment struct {
	ws    *websocket.Conn
	pings *rpc.Pings
	end   atomic.Pointer[error] // that the runtime gave it
}

// Attach attaches to a session's running process; id "" is DefaultProcess.
// One attachment reads at a time: a further one waits for the end of those
// before it. The process goes on when it ends, and the next one gets what was
// not read. ctx is for the attaching alone.
func (c *Client) Attach(ctx context.Context, session, id string) (*Attachment, error) {
	return c.attach(ctx, session, id, "")
}

// TakeOver is Attach without the wait: whoever reads now is detached, and told
// why. LangBot's own runtime has no such thing, and lets it wait.
func (c *Client) TakeOver(ctx context.Context, session, id string) (*Attachment, error) {
	return c.attach(ctx, session, id, "?takeover=1")
}

func (c *Client) attach(ctx context.Context, session, id, query string) (*Attachment, error) {
	u, header, err := c.relayURL(session, id)
	if err != nil {
		return nil, err
	}
	u += query
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	ws, pings, err := dialWebSocket(ctx, c.relay.http, u, header, relayProtocol)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(rpc.MaxMessage)
	return &Attachment{ws: ws, pings: pings}, nil
}

// dialWebSocket connects; protocol "" is none. What is written has to be by the
// Pings.
func dialWebSocket(ctx context.Context, via *http.Client, u string, header http.Header, protocol string) (*websocket.Conn, *rpc.Pings, error) {
	pings := rpc.NewPings()
	o := websocket.DialOptions{
		OnPingReceived: pings.Answer, HTTPHeader: header, HTTPClient: via,
		CompressionMode: websocket.CompressionDisabled,
	}
	if protocol != "" {
		o.Subprotocols = []string{protocol}
	}
	ws, resp, err := websocket.Dial(ctx, u, &o)
	if err != nil {
		return nil, nil, refusal(ctx, resp, err)
	}
	return ws, pings, nil
}

// webClient makes connections; trusted vouch for who is at the other end of TLS,
// nil are those that this machine trusts.
func webClient(trusted *x509.CertPool) *http.Client {
	c := &http.Client{CheckRedirect: stay}
	if trusted != nil {
		c.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: callTime,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted},
		}
	}
	return c
}

// stay has the token go to nobody else than to whom it was given.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// relayURL is where a process is attached to, and what has to be said there.
func (c *Client) relayURL(session, id string) (string, http.Header, error) {
	if c.relay.base == "" {
		return "", nil, sandbox.Errorf(sandbox.Unsupported, "this client has no relay: make it with a connector")
	}
	if session == "" {
		return "", nil, sandbox.Errorf(sandbox.Invalid, "session_id must not be empty")
	}
	header := c.relay.header.Clone()
	if c.scope != nil {
		session = rpc.KeyPrefix(*c.scope) + rpc.CleanID(session)
		header.Set(langbot.HeaderInstance, c.scope.InstanceUUID)
		header.Set(langbot.HeaderWorkspace, c.scope.WorkspaceUUID)
		header.Set(langbot.HeaderGeneration, strconv.FormatInt(c.scope.PlacementGeneration, 10))
	}
	u := "ws" + strings.TrimPrefix(c.relay.base, "http") + "/v1/sessions/" + url.PathEscape(session) + "/managed-process/"
	if id != "" && id != sessions.DefaultProcess {
		u += url.PathEscape(id) + "/"
	}
	return u + "ws", header, nil
}

// refusal is the error of a WebSocket that did not come about.
func refusal(ctx context.Context, resp *http.Response, err error) error {
	if resp == nil {
		if ctx.Err() != nil {
			return late(ctx, "connect")
		}
		return lost(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(text, &body) == nil && body.Error.Code != "" {
		return fromClass(body.Error.Code, body.Error.Message)
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return sandbox.Errorf(sandbox.Denied, "the box runtime refused the control token or the workspace")
	}
	return sandbox.Errorf(sandbox.Internal, "the box runtime answered %s", resp.Status)
}

// ReadLine returns the next line of the process's output without its newline,
// whole, of up to 16 MiB. It returns io.EOF when the process has ended and
// nothing is left to read, ErrUnavailable when the connection breaks, and an
// error that says why where the runtime ended the attachment: somebody took it
// over, or the session is gone. An end of ctx ends the attachment.
func (a *Attachment) ReadLine(ctx context.Context) ([]byte, error) {
	_, line, err := a.ws.Read(ctx)
	if err != nil {
		return nil, a.ended(ctx, err)
	}
	return line, nil
}

// WriteLine writes a line to the process's input, and a newline. It waits
// while the process reads nothing. A newline within it is refused. Where the
// attachment has ended it returns what ReadLine has; before that was called to
// the end it may not know more than that the connection is gone.
func (a *Attachment) WriteLine(ctx context.Context, line []byte) error {
	if bytes.IndexByte(line, '\n') >= 0 {
		return sandbox.Errorf(sandbox.Invalid, "a line for a process has a newline in it: send each line by itself")
	}
	if err := a.pings.Write(ctx, a.ws, line); err != nil {
		return a.ended(ctx, err)
	}
	return nil
}

// ended says why the attachment is over. Once the runtime has said so, nothing
// else is the reason.
func (a *Attachment) ended(ctx context.Context, err error) error {
	if known := a.end.Load(); known != nil {
		return *known
	}
	why := reason(ctx, err)
	if websocket.CloseStatus(err) != -1 {
		a.end.Store(&why)
	}
	return why
}

func reason(ctx context.Context, err error) error {
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed) && closed.Code == websocket.StatusNormalClosure:
		if closed.Reason == "" || closed.Reason == langbot.RelayEnded {
			return io.EOF
		}
		return sandbox.Errorf(sandbox.Conflict, "the attachment ended: %s", closed.Reason)
	case errors.As(err, &closed):
		return &sandbox.Error{
			Kind: sandbox.Unavailable, Msg: fmt.Sprintf("the attachment ended: %s", strings.TrimSpace(closed.Reason+" ("+closed.Code.String()+")")),
			Err: errors.Join(ErrUnavailable, err),
		}
	case ctx.Err() != nil:
		return late(ctx, "attachment")
	}
	return lost(err)
}

// Close detaches. The process goes on.
func (a *Attachment) Close() error {
	if err := a.ws.Close(websocket.StatusNormalClosure, ""); err != nil && websocket.CloseStatus(err) == -1 {
		_ = a.ws.CloseNow()
	}
	return nil
}
