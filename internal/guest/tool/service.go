package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
	"github.com/carboy-sandbox/carboy/internal/guest/files"
	"github.com/carboy-sandbox/carboy/internal/text/strict"
)

// Prefix is where the tools are, each below its name.
const Prefix = "/carboy/tools/"

const (
	maxBody       = 16 << 20 // bytes of a request
	maxAtOnce     = 4        // calls under way, and so bodies in memory
	bodyTimeout   = time.Minute
	defaultBudget = 10 * time.Second
)

// Options say where a Service works and for whom.
type Options struct {
	// MountNS is the mount namespace whose files are meant; nil: the current
	// one. It must stay open until Close has returned.
	MountNS *os.File
	// Confine is what each thread in MountNS does before it acts for a user; nil:
	// nothing.
	Confine func() error
	// Lookup finds the user whom a call names. Required.
	Lookup func(name string) (account.Account, error)
	// DefaultUser names the user of a call that names none; nil: "user".
	DefaultUser func() string
	// Turn waits until nobody else writes to a file; nil: nobody does.
	Turn func(ctx context.Context, dev, ino uint64) (release func(), err error)
	// Budget is the time that a search may take; 0: ten seconds.
	Budget time.Duration
	// Log gets what no answer can say; nil: nowhere.
	Log *slog.Logger
}

// Service answers the tools' calls. It holds threads; Close gives them back.
type Service struct {
	opts    Options
	log     *slog.Logger
	workers *files.Workers
	slots   chan struct{}
}

// New returns a Service that has touched nothing yet.
func New(o Options) *Service {
	if o.DefaultUser == nil {
		o.DefaultUser = func() string { return account.User }
	}
	if o.Turn == nil {
		o.Turn = func(context.Context, uint64, uint64) (func(), error) { return func() {}, nil }
	}
	if o.Budget <= 0 {
		o.Budget = defaultBudget
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		opts: o, log: o.Log,
		workers: files.NewWorkers(files.WorkerOptions{MountNS: o.MountNS, Confine: o.Confine}),
		slots:   make(chan struct{}, maxAtOnce),
	}
}

// Close ends all threads and waits for them; the caller stops the HTTP server
// first.
func (s *Service) Close() error { return s.workers.Close() }

// Register adds the service's routes to mux. The query of each has root, the
// directory that paths are below (default /workspace), and user.
func (s *Service) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+Prefix+tools.ToolRead, answer(s, (*call).read))
	mux.HandleFunc("POST "+Prefix+tools.ToolWrite, answer(s, (*call).write))
	mux.HandleFunc("POST "+Prefix+tools.ToolEdit, answer(s, (*call).edit))
	mux.HandleFunc("POST "+Prefix+tools.ToolGlob, answer(s, (*call).glob))
	mux.HandleFunc("POST "+Prefix+tools.ToolGrep, answer(s, (*call).grep))
	mux.HandleFunc("POST "+Prefix+"clear", answer(s, (*call).clear))
	mux.HandleFunc("POST "+Prefix+"collect", s.collect)
}

// call is one call: for whom and where.
type call struct {
	s       *Service
	ctx     context.Context // of the request
	account account.Account
	root    string // absolute and clean
}

// badRequest is an error of who made the call, and not of what was called for.
type badRequest struct {
	status int
	err    error
}

func (e *badRequest) Error() string { return e.err.Error() }
func (e *badRequest) Unwrap() error { return e.err }

func badf(status int, format string, args ...any) error {
	return &badRequest{status, fmt.Errorf(format, args...)}
}

// answer decodes a call's request, runs it and answers with its result.
func answer[Q, R any](s *Service, run func(*call, *Q) (R, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-r.Context().Done():
			return // nobody listens
		}
		var q Q
		c, err := s.begin(w, r, &q)
		if err != nil {
			s.refuse(w, err)
			return
		}
		res, err := run(c, &q)
		if err != nil {
			s.refuse(w, err)
			return
		}
		reply(w, http.StatusOK, res)
	}
}

// begin reads what a request asks, and of whom.
func (s *Service) begin(w http.ResponseWriter, r *http.Request, q any) (*call, error) {
	c := &call{s: s, ctx: r.Context(), root: tools.WorkspacePath}
	name := s.opts.DefaultUser()
	for key, values := range r.URL.Query() {
		switch {
		case len(values) != 1:
			return nil, badf(http.StatusBadRequest, "query parameter %.32q is there %d times", key, len(values))
		case key == "root":
			c.root = values[0]
		case key == "user":
			name = values[0]
		default:
			return nil, badf(http.StatusBadRequest, "query parameter %.32q is not known", key)
		}
	}
	var err error
	if c.root, err = cleanRoot(c.root); err != nil {
		return nil, badf(http.StatusBadRequest, "query parameter root: %w", err)
	}
	if c.account, err = s.opts.Lookup(name); errors.Is(err, files.ErrDenied) {
		return nil, badf(http.StatusForbidden, "%w", err)
	} else if err != nil {
		return nil, badf(http.StatusUnauthorized, "%w", err)
	}
	// Who sends nothing keeps nobody waiting. Not every connection has deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err != nil {
		return nil, badf(http.StatusBadRequest, "read the request: %w", err)
	}
	if len(body) > maxBody {
		return nil, badf(http.StatusRequestEntityTooLarge, "the request is longer than %d bytes", maxBody)
	}
	if err := decode(body, q); err != nil {
		return nil, badf(http.StatusBadRequest, "read the request: %w", err)
	}
	return c, nil
}

// decode reads one JSON object strictly: what would be changed or ignored in
// silence is refused.
func decode(body []byte, q any) error {
	if !utf8.Valid(body) {
		return errors.New("it is no UTF-8; send other bytes as base64")
	}
	if b := bytes.TrimLeft(body, " \t\r\n"); len(b) == 0 || b[0] != '{' {
		return errors.New("it is no JSON object")
	}
	return strict.Unmarshal(body, q)
}

// refuse answers with an error: with a tool's own as its result.
func (s *Service) refuse(w http.ResponseWriter, err error) {
	if bad, ok := errors.AsType[*badRequest](err); ok {
		reply(w, bad.status, struct {
			Message string `json:"message"`
			Code    int    `json:"code"`
		}{shown(bad.Error()), bad.status})
		return
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{tools.ToolFailed, err.Error()}
	}
	if f.code == tools.ToolFailed {
		s.log.Warn("tool failed", "err", err)
	}
	reply(w, http.StatusOK, tools.Failure{Error: shown(f.text), Code: f.code})
}

// reply answers with v. What can't be sent is the caller's loss: it is gone.
func reply(w http.ResponseWriter, status int, v any) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		http.Error(w, "the answer can't be encoded", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes())
}

// do runs fn on a thread with the user's rights, with the root open.
func (c *call) do(fn func(root int) error) error {
	return c.s.workers.Do(c.ctx, c.account, func() error {
		root, err := openRoot(c.root)
		if err != nil {
			return explain(c.root, err)
		}
		defer unix.Close(root)
		return fn(root)
	})
}

// openRoot opens the directory that paths are below. No part of its own path
// may be a link.
func openRoot(root string) (int, error) {
	slash, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(slash)
	rel := "." + root
	if root == "/" {
		rel = "."
	}
	return beneath.OpenNoLinks(slash, rel, unix.O_PATH|unix.O_DIRECTORY)
}
