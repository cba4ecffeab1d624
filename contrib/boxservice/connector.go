package boxservice

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// State is where a Connector is with its runtime.
type State string

// The states of a Connector.
const (
	Idle         State = "idle"         // not opened yet
	Connecting   State = "connecting"   // a connection is being made
	Connected    State = "connected"    // the runtime answers
	Disconnected State = "disconnected" // the connection ended or none came about; another try follows
	Disabled     State = "disabled"     // by its options: it connects to nothing
	Closed       State = "closed"       // for good
)

// Times of a connection.
const (
	connectTime    = 30 * time.Second
	heartbeatEvery = 20 * time.Second
	heartbeatMiss  = 3 // in a row
	firstWait      = 3 * time.Second
	longestWait    = time.Minute
)

// Connector keeps a Client connected to its runtime: it connects, asks every 20
// seconds whether the runtime is there, and where the connection ends, or three
// answers in a row are missing, connects again: at once, then after 3 seconds,
// 6, and so on to 60, for as long as it is not closed.
type Connector struct {
	o      Options
	at     place
	dial   func(ctx context.Context) (rpc.Conn, error)
	client *Client

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup

	mu         sync.Mutex
	state      State
	err        error // of the newest attempt or connection
	generation int64 // of the newest attempt
	link       *link // nil: not connected
}

// NewConnector returns a connector that has not connected to anything.
func NewConnector(o Options) (*Connector, error) {
	at, err := placeOf(o)
	if err != nil {
		return nil, err
	}
	if o.RootCAs != nil && !strings.HasPrefix(at.rpc, "wss:") {
		return nil, sandbox.Errorf(sandbox.Invalid, "RootCAs are for an endpoint of wss:// alone")
	}
	child := at.rpc == ""
	if child && o.Token == "" {
		o.Token = rand.Text() + rand.Text()
	}
	header, err := headers(o)
	if err != nil {
		return nil, err
	}
	o.Init = maps.Clone(o.Init)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Connector{o: o, at: at, state: Idle}
	if o.Disabled {
		c.state = Disabled
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	via := webClient(o.RootCAs)
	c.client = &Client{link: c.current, relay: relay{at.relay, header, via}}
	if child {
		c.dial = func(context.Context) (rpc.Conn, error) { return startChild(o) }
	} else {
		c.dial = func(ctx context.Context) (rpc.Conn, error) { return dialSocket(ctx, via, at.rpc, header) }
	}
	return c, nil
}

// UsesWebSocket says whether the runtime is somebody else's process, with a
// file system of its own as far as anybody can tell.
func (c *Connector) UsesWebSocket() bool { return c.at.rpc != "" }

// RelayURL is where managed processes' input and output are:
// "http://127.0.0.1:5410".
func (c *Connector) RelayURL() string { return c.at.relay }

// Client returns the client that this connector keeps connected. Its calls fail
// with ErrUnavailable while it is not.
func (c *Connector) Client() *Client { return c.client }

// State returns where the connector is, and why, where it is disconnected.
func (c *Connector) State() (State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.err
}

// Generation counts the attempts to connect. While connected it is that of the
// connection, for Reconnect.
func (c *Connector) Generation() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

// Open begins to connect, and returns what became of the first attempt; nil
// where the connector is disabled. After an error it goes on to try until it is
// closed. A second call is an error.
func (c *Connector) Open(ctx context.Context) error {
	c.mu.Lock()
	switch c.state {
	case Disabled:
		c.mu.Unlock()
		return nil
	case Idle:
	default:
		c.mu.Unlock()
		return sandbox.Errorf(sandbox.Conflict, "the connector is %s: it is opened once", c.state)
	}
	c.state = Connecting
	first := make(chan error, 1)
	c.work.Go(func() { c.run(first) })
	c.mu.Unlock()
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reconnect gives up the connection of a generation, where it is still the
// newest: what has found it to be of no use need not know whether somebody else
// did before.
func (c *Connector) Reconnect(generation int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == generation && c.link != nil {
		c.link.cut()
	}
}

// Close ends the connection and the child, and waits for their end. The
// sessions stay where a runtime goes on; Client.Shutdown drops them. It is not
// for OnConnect and OnDisconnect, which it waits for.
func (c *Connector) Close() error {
	c.mu.Lock()
	first := c.state != Closed
	opened := first && c.state != Idle && c.state != Disabled
	c.state = Closed
	c.generation++ // what is on its way is late
	c.mu.Unlock()
	c.stop()
	c.work.Wait()
	if opened {
		c.tell(errClosed)
	}
	return nil
}

var errClosed = &sandbox.Error{Kind: sandbox.Unavailable, Msg: "box runtime: the connector is closed", Err: ErrUnavailable}

// current is the connection that calls go over.
func (c *Connector) current() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.link != nil:
		return c.link, nil
	case c.state == Closed:
		return nil, errClosed
	case c.state == Disabled:
		return nil, &sandbox.Error{Kind: sandbox.Unavailable, Msg: "Box is disabled by configuration", Err: ErrUnavailable}
	}
	return nil, &sandbox.Error{
		Kind: sandbox.Unavailable, Msg: "box runtime not connected", Retry: firstWait,
		Err: errors.Join(ErrUnavailable, c.err),
	}
}

// run connects, again and again, until the connector is closed.
func (c *Connector) run(first chan<- error) {
	var wait time.Duration
	for {
		l, err := c.connect()
		select {
		case first <- err:
		default:
		}
		if err == nil {
			began := time.Now()
			c.hold(l)
			if time.Since(began) >= heartbeatEvery {
				wait = 0 // it was no connection that only seemed to be one
			}
		} else {
			wait = max(wait, firstWait)
			if c.detach(err) {
				c.tell(err)
			}
		}
		if !c.pause(wait) {
			return
		}
		wait = min(max(firstWait, 2*wait), longestWait)
	}
}

// pause waits, for up to a quarter less: many clients of one runtime do not
// come back at one moment. It returns false once the connector is closed.
func (c *Connector) pause(d time.Duration) bool {
	if d > 0 {
		d -= mathrand.N(d/4 + 1)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return c.ctx.Err() == nil
	case <-c.ctx.Done():
		return false
	}
}

// connect makes one attempt, which has 30 seconds. What it still brings after
// them is closed.
func (c *Connector) connect() (*link, error) {
	generation := c.begin()
	ctx, cancel := context.WithTimeout(c.ctx, connectTime)
	result := make(chan error, 1)
	c.work.Go(func() {
		defer cancel()
		l, err := c.handshake(ctx)
		if err == nil && !c.adopt(generation, l) {
			l.Close()
			err = errClosed
		}
		result <- err
	})
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		select {
		case err = <-result: // both at once
		default:
			err = &sandbox.Error{Kind: sandbox.Unavailable, Msg: "box runtime: no connection within 30 seconds", Err: errors.Join(ErrUnavailable, ctx.Err())}
		}
	}
	c.mu.Lock()
	l := c.link
	if err != nil {
		c.link = nil
		c.generation++ // what comes now is late
	}
	c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		err = errClosed
	case err == nil && l == nil:
		err = errClosed
	}
	if err != nil && l != nil {
		l.Close()
	}
	return l, err
}

// begin begins an attempt, and returns its generation.
func (c *Connector) begin() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != Closed {
		c.state = Connecting
	}
	c.generation++
	return c.generation
}

// handshake makes a connection, and tells the runtime what it has to know.
func (c *Connector) handshake(ctx context.Context) (*link, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := newLink(conn)
	hands := &Client{link: func() (*link, error) { return l, nil }}
	if err = hands.Ping(ctx); err == nil && c.o.Init != nil {
		var ignored []string
		if ignored, err = hands.Init(ctx, c.o.Init); len(ignored) > 0 {
			c.o.Log.Info("box runtime: some of the configuration does nothing there", "ignored", ignored)
		}
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// adopt makes l the connection that calls go over, unless its attempt is not
// the newest any more.
func (c *Connector) adopt(generation int64, l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation || c.state == Closed {
		return false
	}
	c.link, c.state, c.err = l, Connected, nil
	return true
}

// hold keeps a connection until it ends, and notes why it did.
func (c *Connector) hold(l *link) {
	c.o.Log.Info("box runtime: connected")
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var told sync.WaitGroup
	if f := c.o.OnConnect; f != nil {
		told.Go(func() { f(ctx, c.client) })
	}
	err := c.watch(l)
	cancel()
	open := c.detach(err)
	l.Close()
	told.Wait()
	if open {
		c.tell(err)
	}
}

// watch returns why a connection is of no use any more.
func (c *Connector) watch(l *link) error {
	t := time.NewTicker(heartbeatEvery)
	defer t.Stop()
	hands := &Client{link: func() (*link, error) { return l, nil }}
	for missed := 0; ; {
		select {
		case <-c.ctx.Done():
			return errClosed
		case <-l.peer.Done():
			return lost(rpc.ErrClosed)
		case <-t.C:
		}
		err := hands.Ping(c.ctx)
		if err == nil {
			missed = 0
			continue
		}
		if missed++; missed == heartbeatMiss {
			return lost(errors.New("the runtime did not answer three times in a row"))
		}
		c.o.Log.Warn("box runtime: no answer", "missed", missed, "error", err)
	}
}

// detach notes why there is no connection. It returns false where the connector
// is closed.
func (c *Connector) detach(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = nil
	if c.state == Closed {
		return false
	}
	c.state, c.err = Disconnected, err
	return true
}

func (c *Connector) tell(err error) {
	level := slog.LevelWarn
	if errors.Is(err, errClosed) {
		level = slog.LevelInfo
	}
	c.o.Log.Log(context.Background(), level, "box runtime: disconnected", "error", err)
	if c.o.OnDisconnect != nil {
		c.o.OnDisconnect(err)
	}
}
