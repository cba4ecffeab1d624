// Package boxservice is the Go half of LangBot's Box for programs that embed it:
// sessions of sandboxes by a key of the program's choosing, through a runtime
// that `carboy langbot serve` is, or LangBot's own.
//
// There are three things, each of use without the next. A [Client] calls a
// runtime's actions. A [Connector] keeps a Client connected: to an endpoint, or
// to a child process that it starts, restarts and never leaves behind. A
// [Service] is what a platform gives its agents: it makes a session's key of a
// query, applies a profile, cuts output to what a model reads, and keeps the
// newest errors.
//
// The package builds no sandbox and keeps nothing on disk. It refuses an
// endpoint that is not ws, wss, http or https, control tokens that are weak,
// and answers that are no messages; an error of the runtime's comes back as
// what it was there, to be asked for by [Class] or errors.Is. No call is sent
// twice: where a connection breaks its calls fail with [ErrUnavailable].
package boxservice

import (
	"context"
	"net/http"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
)

// How long a runtime has for an answer, where the caller's context does not
// end first.
const (
	callTime    = 15 * time.Second
	dropTime    = 30 * time.Second // sessions and processes that end, or begin
	createTime  = 2 * time.Minute  // an image may have to be fetched
	previewTime = time.Minute
	installTime = 2 * time.Minute
	// execAllowance is what an exec has beyond its command's own time: until
	// its session is there, and until the answer is here. Time in the queue
	// counts as the command's.
	execAllowance = createTime
)

// Client calls the actions of one runtime. It is safe for use by several
// goroutines. An error of the runtime's has its class ([Class]); where no
// runtime is connected, or the connection breaks, it is [ErrUnavailable].
type Client struct {
	link  func() (*link, error)
	relay relay
	scope *Context
}

// relay is where the input and output of managed processes are.
type relay struct {
	base   string // "http://127.0.0.1:5410"
	header http.Header
	http   *http.Client
}

// For returns a client whose calls are for one workspace. It shares the
// connection.
func (c *Client) For(scope Context) *Client {
	d := *c
	d.scope = &scope
	return &d
}

// call asks for one action and decodes its answer into out, unless that is nil.
func (c *Client) call(ctx context.Context, d time.Duration, action string, in, out any) error {
	l, err := c.link()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.call(ctx, action, in, c.scope, out)
}

type none struct{}

// Ping asks whether the runtime is there.
func (c *Client) Ping(ctx context.Context) error {
	return c.call(ctx, callTime, langbot.ActionPing, none{}, nil)
}

// Init tells the runtime of the client's configuration. It returns which of its
// keys the runtime does nothing with, nil where it does not say. A Connector
// does this by itself.
func (c *Client) Init(ctx context.Context, config map[string]any) (ignored []string, err error) {
	var out struct {
		Ignored []string `json:"ignored"`
	}
	err = c.call(ctx, callTime, langbot.ActionInit, config, &out)
	return out.Ignored, err
}

// Health asks for the wall that sessions are behind, and fails where the
// runtime is not ready to make one.
func (c *Client) Health(ctx context.Context) (Backend, error) {
	return ask[Backend](ctx, c, langbot.ActionHealth, none{})
}

// Backend is the wall that sessions are behind.
func (c *Client) Backend(ctx context.Context) (Backend, error) {
	return ask[Backend](ctx, c, langbot.ActionBackendInfo, none{})
}

// Status is what the runtime says of itself.
func (c *Client) Status(ctx context.Context) (RuntimeStatus, error) {
	return ask[RuntimeStatus](ctx, c, langbot.ActionStatus, none{})
}

func ask[T any](ctx context.Context, c *Client, action string, in any) (out T, err error) {
	err = c.call(ctx, callTime, action, in, &out)
	return out, err
}

// Exec makes or takes up the spec's session and runs its command there. A
// command whose time is up is a Result, not an error.
func (c *Client) Exec(ctx context.Context, spec Spec) (Result, error) {
	var out Result
	d := time.Duration(spec.TimeoutSec) * time.Second
	if spec.TimeoutSec <= 0 {
		d = sessions.DefaultTimeoutSec * time.Second
	}
	err := c.call(ctx, d+execAllowance, langbot.ActionExec, specBody(spec), &out)
	return out, err
}

// Create makes or takes up the spec's session.
func (c *Client) Create(ctx context.Context, spec Spec) (SessionInfo, error) {
	var out SessionInfo
	err := c.call(ctx, createTime, langbot.ActionCreate, specBody(spec), &out)
	return out, err
}

type sessionID struct {
	ID string `json:"session_id"`
}

// Get returns one session, with its managed processes.
func (c *Client) Get(ctx context.Context, id string) (SessionInfo, error) {
	return ask[SessionInfo](ctx, c, langbot.ActionGet, sessionID{id})
}

// List returns the sessions of the caller.
func (c *Client) List(ctx context.Context) ([]SessionInfo, error) {
	out, err := ask[sessions.SessionList](ctx, c, langbot.ActionList, none{})
	return out.Sessions, err
}

// Delete ends a session, with what it has.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.call(ctx, dropTime, langbot.ActionDelete, sessionID{id}, nil)
}

type processID struct {
	Session string `json:"session_id"`
	Process string `json:"process_id"`
}

func process(session, id string) processID {
	if id == "" {
		id = sessions.DefaultProcess
	}
	return processID{session, id}
}

// StartProcess starts a process that the session keeps. One that runs under
// the same ID is ended, and replaced.
func (c *Client) StartProcess(ctx context.Context, session string, spec ProcessSpec) (ProcessInfo, error) {
	var out ProcessInfo
	spec = processBody(spec)
	in := struct {
		Session string      `json:"session_id"`
		Spec    ProcessSpec `json:"spec"`
	}{session, spec}
	err := c.call(ctx, dropTime, langbot.ActionStartProcess, in, &out)
	return out, err
}

// Process returns a session's process; id "" is DefaultProcess.
func (c *Client) Process(ctx context.Context, session, id string) (ProcessInfo, error) {
	return ask[ProcessInfo](ctx, c, langbot.ActionGetProcess, process(session, id))
}

// StopProcess ends a session's process with all that it started, and forgets
// it; id "" is DefaultProcess.
func (c *Client) StopProcess(ctx context.Context, session, id string) error {
	return c.call(ctx, dropTime, langbot.ActionStopProcess, process(session, id), nil)
}

// PutGrant lets a workspace have a sandbox for a while.
func (c *Client) PutGrant(ctx context.Context, g Grant) error {
	return c.call(ctx, callTime, langbot.ActionGrant, g, nil)
}

// Revoke takes a workspace's grants back, and ends its sessions.
func (c *Client) Revoke(ctx context.Context, r Revocation) error {
	return c.call(ctx, dropTime, langbot.ActionRevoke, r, nil)
}

// Marker is a file of a workspace, as the runtime sees it.
type Marker struct {
	SHA256 string `json:"sha256"`
}

// VerifyShared has the runtime read a file of its default workspace, by which
// both sides see whether they have the same one. Its name is
// ".langbot-box-volume-probe-" and 32 hexadecimal digits.
func (c *Client) VerifyShared(ctx context.Context, name string) (Marker, error) {
	in := struct {
		Name string `json:"marker_name"`
	}{name}
	return ask[Marker](ctx, c, langbot.ActionVerifyShared, in)
}

// Shutdown has the runtime drop the caller's sessions. It goes on to run.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.call(ctx, dropTime, langbot.ActionShutdown, none{}, nil)
}
