package langbot

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

const (
	beat     = 30 * time.Second // between pings of a relay
	beatTime = 15 * time.Second // for the answer to one
	sendTime = 30 * time.Second // for a line of a process's output
	// queueBytes of what a client sent may wait for its turn, or for the process
	// to read; then the client waits too.
	queueBytes = 4 << 20
)

// relay attaches a client to a managed process: a text message is a line,
// either way. What can't be is refused before the connection is upgraded.
func (h *Handler) relay(w http.ResponseWriter, r *http.Request) {
	if h.stranger(w, r) {
		return
	}
	instance, ok := h.authenticate(r, false)
	if !ok {
		unauthorized(w)
		return
	}
	about, ok := relayContext(r, instance)
	if !ok || about == nil && h.fence.tenanted(instance) {
		unauthorized(w)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	stop := context.AfterFunc(h.ctx, func() { cancel(errLeaving) })
	defer stop()
	t := h.tenant(about)
	if about != nil {
		leased, leave, err := h.fence.join(ctx, about)
		if err != nil {
			unauthorized(w)
			return
		}
		defer leave()
		ctx = leased
	}
	id, process := r.PathValue("session"), r.PathValue("process")
	if process == "" {
		process = sessions.DefaultProcess
	}
	if !t.has(id) {
		unauthorized(w)
		return
	}
	id, err := h.reached(ctx, t, id, process)
	if err == nil {
		err = h.mayAttach(ctx, t, id, process)
	}
	if err != nil {
		refuseError(w, err)
		return
	}
	out, ok := h.relays.enter()
	if !ok {
		tooMany(w)
		return
	}
	defer out()
	pings := rpc.NewPings()
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mcp"}, OnPingReceived: pings.Answer})
	if err != nil {
		h.log.Debug("a relay was not upgraded", "why", err)
		return
	}
	if !h.join() {
		_ = c.CloseNow()
		return
	}
	defer h.live.Done()
	takeover := r.URL.Query().Get("takeover") == "1"
	attach := func(ctx context.Context) (Attachment, error) {
		return h.o.Attach(ctx, t.caller, id, process, takeover)
	}
	relayed(ctx, c, pings, attach)
}

// relayContext reads for whom a relay is; nil for a client without workspaces.
func relayContext(r *http.Request, instance string) (*langbot.Context, bool) {
	workspace := strings.TrimSpace(r.Header.Get(langbot.HeaderWorkspace))
	generation := strings.TrimSpace(r.Header.Get(langbot.HeaderGeneration))
	if workspace == "" && generation == "" {
		return nil, true
	}
	n, err := strconv.ParseInt(generation, 10, 64)
	if instance == "" || workspace == "" || len(workspace) > 256 || err != nil || n < 1 || strconv.FormatInt(n, 10) != generation {
		return nil, false
	}
	return &langbot.Context{InstanceUUID: instance, WorkspaceUUID: workspace, PlacementGeneration: n}, true
}

// mayAttach says what keeps a process from being attached to.
func (h *Handler) mayAttach(ctx context.Context, t tenant, id, process string) error {
	if h.admit.required() {
		g, err := h.admit.admitted(ctx, t.about)
		if err != nil {
			return err
		}
		if g.MaxProcesses <= 0 {
			return admissionError("Sandbox admission grant does not permit managed process relay")
		}
	}
	p, err := h.o.Sessions.Process(ctx, t.caller, id, process)
	switch {
	case err != nil:
		return err
	case h.o.Attach == nil:
		return sandbox.Errorf(sandbox.Unsupported, "this runtime has no relays")
	case p.Status != sessions.ProcessRunning:
		return fault.ProcessConflict(id, process, "is not running")
	}
	return nil
}

// relayed carries lines until either side ends. The process goes on.
func relayed(ctx context.Context, c *websocket.Conn, pings *rpc.Pings, attach func(context.Context) (Attachment, error)) {
	c.SetReadLimit(rpc.MaxMessage)
	ctx, cancel := context.WithCancelCause(ctx)
	in := newQueue()
	var wg sync.WaitGroup
	// What reads also answers pings: it goes on while others wait their turn.
	// It ends by the connection, not by ctx, so that this is closed in order.
	wg.Go(func() { cancel(receive(ctx, c, in)) })
	wg.Go(func() { heartbeat(ctx, c, in, cancel) })
	a, err := attach(ctx)
	if err == nil {
		wg.Go(func() { cancel(toProcess(ctx, in, a)) })
		cancel(fromProcess(ctx, a, c, pings))
		_ = a.Close() // its reader is gone
	} else {
		cancel(err)
	}
	cause := context.Cause(ctx)
	_ = c.Close(closing(cause)) // it ends what receives
	_ = c.CloseNow()
	wg.Wait()
}

// closing says to a client why it ends.
func closing(cause error) (websocket.StatusCode, string) {
	switch {
	case errors.Is(cause, io.EOF):
		return websocket.StatusNormalClosure, langbot.RelayEnded
	case errors.Is(cause, errLeaving):
		return websocket.StatusGoingAway, "Box runtime shutting down"
	case errors.Is(cause, errStale):
		return websocket.StatusPolicyViolation, "a newer placement generation was seen"
	}
	if e, ok := errors.AsType[*sandbox.Error](cause); ok {
		return websocket.StatusNormalClosure, cutReason(e.Msg)
	}
	return websocket.StatusNormalClosure, ""
}

// cutReason keeps within what a close frame has room for.
func cutReason(s string) string {
	const most = 120
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// fromProcess sends each line of output as it comes; the process waits for a
// client that reads slowly.
func fromProcess(ctx context.Context, a Attachment, c *websocket.Conn, pings *rpc.Pings) error {
	for {
		line, err := a.ReadLine(ctx)
		if err != nil {
			return err
		}
		text := line
		if !utf8.Valid(line) {
			text = []byte(term.Repair(line))
		}
		if err := send(ctx, c, pings, text); err != nil {
			if a, ok := a.(interface{ Unread() bool }); ok {
				a.Unread()
			}
			return err
		}
	}
}

// lastTime is for how long a line that is on its way when a relay ends may take.
const lastTime = time.Second

// send writes one line. Where ctx ends meanwhile it has a moment more: a write
// that is broken off breaks the connection, and its client is not told why.
func send(ctx context.Context, c *websocket.Conn, pings *rpc.Pings, line []byte) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		last := time.AfterFunc(lastTime, cancel)
		context.AfterFunc(limit, func() { last.Stop() })
	})()
	return pings.Write(limit, c, line)
}

// toProcess gives the process what the client sends. One that reads no more has
// perhaps ended, and its client is not done before it has the output's rest:
// what it sends meanwhile goes nowhere, as with a process that does not read it.
func toProcess(ctx context.Context, in *queue, a Attachment) error {
	closed := false
	for {
		line, err := in.get(ctx)
		if err != nil {
			return err
		}
		if closed {
			continue
		}
		err = a.WriteLine(ctx, line)
		closed = errors.Is(err, io.ErrClosedPipe)
		if err != nil && !closed {
			return err
		}
	}
}

func receive(ctx context.Context, c *websocket.Conn, in *queue) error {
	for {
		kind, r, err := c.Reader(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		if kind != websocket.MessageText {
			return sandbox.Errorf(sandbox.Invalid, "text messages alone")
		}
		message, err := io.ReadAll(counted{r, &in.arrived})
		if err != nil {
			return err
		}
		if err := in.put(ctx, message); err != nil {
			return err
		}
	}
}

// heartbeat keeps an idle relay from being taken for a dead one, by what is
// between, and finds one that is. A client that waits for the process answers
// no ping, nor does one in the middle of a long line; neither is dead.
func heartbeat(ctx context.Context, c *websocket.Conn, in *queue, dead context.CancelCauseFunc) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := in.arrived.Load()
		ping, cancel := context.WithTimeout(ctx, beatTime)
		err := c.Ping(ping)
		cancel()
		if err != nil && ctx.Err() == nil && !in.blocked() && in.arrived.Load() == before {
			dead(errors.New("the client answers no ping"))
			return
		}
	}
}

// queue holds what a client sent until the process takes it, one message at
// least.
type queue struct {
	arrived atomic.Int64 // bytes, of lines that are not whole yet too

	mu      sync.Mutex
	lines   [][]byte
	bytes   int // with what each line takes besides
	waits   bool
	changed chan struct{} // closed and replaced at each change
}

func newQueue() *queue { return &queue{changed: make(chan struct{})} }

func (q *queue) change() {
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *queue) blocked() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waits
}

func (q *queue) put(ctx context.Context, line []byte) error {
	for {
		q.mu.Lock()
		if len(q.lines) == 0 || q.bytes+size(line) <= queueBytes {
			q.lines, q.bytes, q.waits = append(q.lines, line), q.bytes+size(line), false
			q.change()
			q.mu.Unlock()
			return nil
		}
		q.waits = true
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (q *queue) get(ctx context.Context) ([]byte, error) {
	for {
		q.mu.Lock()
		if len(q.lines) > 0 {
			line := q.lines[0]
			q.lines, q.bytes = q.lines[1:], q.bytes-size(line)
			q.change()
			q.mu.Unlock()
			return line, nil
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func size(line []byte) int { return len(line) + 64 }

// counted counts what is read.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}
