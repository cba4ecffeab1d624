package action

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
)

const (
	maxAtOnce = 64      // connections that are served
	maxError  = 4 << 10 // bytes of an error's text

	// Replies with more text than bulk, in bytes, are made and sent maxBulky at once:
	// in JSON a byte may be six.
	bulk     = 64 << 10
	maxBulky = 2

	replyTime  = 30 * time.Second // for a reply to be taken
	lingerTime = 2 * time.Second  // for a caller to read it and leave
	maxLinger  = 64 << 20         // bytes of an archive that was refused
)

// ErrClosed is why what was begun does not go on: the agent ends.
var ErrClosed = errors.New("the agent is shutting down")

// Options say by what a Server acts.
type Options struct {
	Engine *process.Engine
	Files  *files.Service
	// User is whom all is done as. Its error is shown.
	User func() (account.Account, error)
	// Dir is where commands begin and relative paths are meant where there is no
	// /workspace; "": the user's home.
	Dir func() string
	// Wait returns once commands may be started and files changed, or false where ctx
	// ends first; nil: always.
	Wait func(ctx context.Context) bool
	// Log gets what no reply can say; nil: nowhere.
	Log *slog.Logger
}

// Server answers requests. Its methods may be called from several goroutines.
type Server struct {
	opts     Options
	log      *slog.Logger
	slots    chan struct{}   // of requests
	bulky    chan struct{}   // of replies with much text
	ctx      context.Context // ends when the server closes
	cancel   context.CancelCauseFunc
	tasks    sync.WaitGroup // those that look after services
	shells   shells
	services services
	pace     pace
}

// New returns a Server that has started nothing yet.
func New(o Options) *Server {
	if o.Wait == nil {
		o.Wait = func(context.Context) bool { return true }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: o, log: o.Log, slots: make(chan struct{}, maxAtOnce), bulky: make(chan struct{}, maxBulky), pace: usual}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Close ends all services and every wait, and returns when nothing of the server's runs.
// Shells are the engine's to end.
func (s *Server) Close() {
	s.cancel(ErrClosed)
	s.services.close()
	s.tasks.Wait()
}

// Serve answers one request, which is read from in, on conn. It returns when the reply
// was sent and taken, or could not be, or when ctx has ended; then it has closed conn.
func (s *Server) Serve(ctx context.Context, conn net.Conn, in io.Reader) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer conn.Close()
	defer context.AfterFunc(s.ctx, func() { cancel(ErrClosed) })()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	c := &call{s: s, ctx: ctx, conn: conn, done: func() {}}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		c.refuse(fail(kindExhausted, "%d requests are being answered already: try again when one is done", maxAtOnce))
		return
	}
	err := c.answer(in)
	c.done()
	if err != nil {
		c.refuse(err)
	}
	c.linger()
}

// call is one request that is being answered.
type call struct {
	s    *Server
	ctx  context.Context // of the connection
	conn net.Conn
	rest io.Reader // what follows the request
	told bool      // the reply has begun: no other can be sent
	done func()    // lets another make a reply with much text
}

// take waits until a reply with so many bytes of text may be made.
func (c *call) take(text int) error {
	if text <= bulk {
		return nil
	}
	select {
	case c.s.bulky <- struct{}{}:
		c.done = func() { <-c.s.bulky }
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

// answer reads the request, does what it asks and replies.
func (c *call) answer(in io.Reader) error {
	_ = c.conn.SetReadDeadline(time.Now().Add(c.s.pace.header)) // without it, ctx is what ends the wait
	raw, more, rest, err := readHeader(in)
	_ = c.conn.SetReadDeadline(time.Time{})
	if err != nil {
		return err
	}
	c.rest = rest
	do, err := parse(raw, more)
	if err != nil {
		return err
	}
	if !c.s.opts.Wait(c.ctx) {
		return context.Cause(c.ctx)
	}
	reply, err := do(c)
	if err != nil || c.told {
		return err
	}
	return c.reply(reply)
}

// reply sends an object as a line.
func (c *call) reply(v any) error {
	line, err := encode(v)
	if err != nil {
		return err
	}
	c.told = true
	_ = c.conn.SetWriteDeadline(time.Now().Add(replyTime))
	if _, err := c.conn.Write(line); err != nil {
		c.s.log.Debug("send a reply", "err", err)
	}
	return nil
}

// encode makes a reply's line.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the reply: %w", err)
	}
	if buf.Len() > action.MaxReply {
		return nil, fmt.Errorf("the reply would have %d bytes, of at most %d: ask for less", buf.Len(), action.MaxReply)
	}
	return buf.Bytes(), nil
}

// refuse replies with an error, where nothing was sent yet. A reply that has begun is
// cut, which a caller can tell from a whole one.
func (c *call) refuse(err error) {
	if c.ctx.Err() != nil {
		return // nobody is there
	}
	if c.told {
		c.s.log.Warn("a reply broke off", "err", err)
		return
	}
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + "…"
	}
	_ = c.reply(action.ErrorReply{Error: text, Kind: kindOfError(err)})
}

// linger ends the reply and takes what is still sent, so that a caller who sends an
// archive that was refused comes to read why.
func (c *call) linger() {
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil && c.rest != nil {
		_ = c.conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.Copy(io.Discard, io.LimitReader(c.rest, maxLinger))
	}
}
