package client

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"syscall"

	"github.com/carboy-sandbox/carboy/api/action"
)

// shellPath returns the API's path of a shell of a sandbox.
func shellPath(id, shell, rest string) string {
	return path(id, "/shells/"+url.PathEscape(shell)+rest)
}

// OpenShell starts a shell on a terminal of a sandbox, under an id of the caller's: one
// that is open is a Conflict. A sandbox that ended by itself is started again. The action
// of a request is left out, here and below.
func (c *Client) OpenShell(ctx context.Context, id string, req action.OpenShellRequest) (*action.Shell, error) {
	req.Action = ""
	return ask[action.Shell](ctx, c, http.MethodPost, path(id, "/shells"), req)
}

// Shells lists the shells of a sandbox, those that have ended too.
func (c *Client) Shells(ctx context.Context, id string) ([]action.Shell, error) {
	list, err := ask[action.ListShellsReply](ctx, c, http.MethodGet, path(id, "/shells"), nil)
	if err != nil {
		return nil, err
	}
	return list.Shells, nil
}

// Shell returns the state of a shell, or a NotFound error.
func (c *Client) Shell(ctx context.Context, id, shell string) (*action.Shell, error) {
	return ask[action.Shell](ctx, c, http.MethodGet, shellPath(id, shell, ""), nil)
}

// ReadShell reads what the shell of the request wrote from its cursor on. 0 for
// MaxChars is 65,536. A daemon that went away is looked for once: to read twice loses nothing.
func (c *Client) ReadShell(ctx context.Context, id string, req action.ReadShellRequest) (*action.ReadShellReply, error) {
	q := url.Values{"cursor": {strconv.FormatInt(req.Cursor, 10)}}
	for name, n := range map[string]int{"max_chars": req.MaxChars, "wait_for_idle_ms": req.WaitForIdleMS, "wait_ms": req.WaitMS} {
		if n != 0 {
			q.Set(name, strconv.Itoa(n))
		}
	}
	if req.Plain {
		q.Set("plain", "1")
	}
	if req.Encoding != "" {
		q.Set("encoding", req.Encoding)
	}
	at := shellPath(id, req.ShellID, "/output?"+q.Encode())
	reply, err := ask[action.ReadShellReply](ctx, c, http.MethodGet, at, nil)
	if c.lost(err) {
		c.dialAgain(ctx)
		return ask[action.ReadShellReply](ctx, c, http.MethodGet, at, nil)
	}
	return reply, err
}

// WriteShell types something into the shell of the request. A daemon that is not there is
// looked for once; where one went away in the middle, it is not known whether the text came in.
func (c *Client) WriteShell(ctx context.Context, id string, req action.WriteShellRequest) (*action.WriteShellReply, error) {
	req.Action = ""
	at := shellPath(id, req.ShellID, "/input")
	reply, err := ask[action.WriteShellReply](ctx, c, http.MethodPost, at, req)
	if c.lost(err) && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)) { // nothing was sent
		c.dialAgain(ctx)
		return ask[action.WriteShellReply](ctx, c, http.MethodPost, at, req)
	}
	return reply, err
}

// SignalShell signals what runs in a shell's foreground: INT, TERM, HUP, QUIT or KILL.
func (c *Client) SignalShell(ctx context.Context, id, shell, signal string) (*action.SignalShellReply, error) {
	return ask[action.SignalShellReply](ctx, c, http.MethodPost, shellPath(id, shell, "/signal"), action.SignalShellRequest{ShellID: shell, Signal: signal})
}

// ResizeShell gives a shell's terminal another size.
func (c *Client) ResizeShell(ctx context.Context, id, shell string, cols, rows int) (*action.Shell, error) {
	return ask[action.Shell](ctx, c, http.MethodPost, shellPath(id, shell, "/size"), action.ResizeShellRequest{ShellID: shell, Cols: cols, Rows: rows})
}

// CloseShell ends a shell and all that it started.
func (c *Client) CloseShell(ctx context.Context, id, shell string) (*action.CloseShellReply, error) {
	return ask[action.CloseShellReply](ctx, c, http.MethodDelete, shellPath(id, shell, ""), nil)
}
