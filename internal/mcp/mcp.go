// Package mcp declares tools for models, and serves them by the Model Context Protocol.
//
// A tool is a function of a struct, from which its schema is made. Whoever calls is taken for hostile, and so is what a tool has to say: the
// length of a call and of a result, the calls that are under way and those of a minute are bounded, and text is escaped so that a terminal
// shows all of it.
//
// It refuses arguments that the schema does not have. It keeps nothing between two calls: a server that was restarted goes on where the last
// one was.
package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// Bounds of a server.
const (
	MaxCall   = 1 << 20  // bytes of a call, with its arguments
	MaxResult = 64 << 10 // bytes of a result's text; what is beyond is left out, and the result says so
	MaxCalls  = 16       // that are under way at once
	perSecond = 20       // calls, after the first burst
	burst     = 200
	readTime  = 30 * time.Second // in which a call has to arrive
)

// Options say what a server is.
type Options struct {
	Name         string // of the server, for its clients
	Version      string // default: "1"
	Instructions string // to the model: what the tools are for
	// Inside says that callers are in a sandbox, and can't type what hints name of the command line.
	Inside bool
	Log    *slog.Logger
}

// Server has tools. Add puts them there before it serves.
type Server struct {
	sdk    *sdk.Server
	log    *slog.Logger
	inside bool
	room   chan struct{} // one for each call that is under way
	pace   *rate.Limiter
}

// New makes a Server without tools.
func New(o Options) *Server {
	s := &Server{log: o.Log, inside: o.Inside, room: make(chan struct{}, MaxCalls), pace: rate.NewLimiter(perSecond, burst)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: o.Name, Version: cmp.Or(o.Version, "1")}, &sdk.ServerOptions{
		Instructions: o.Instructions, Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
	})
	return s
}

// Tool says what a tool is, to models and to those who look after them.
type Tool struct {
	Name        string
	Description string
	ReadOnly    bool // it changes nothing
	Destructive bool // what it ends can't be had back
}

// Add puts a tool into a server: In is a struct, whose fields have their descriptions in the tag jsonschema. What f returns is the result's
// text, and an error of its is the result too, with what to do next: a model reads it. Of an error that is no *sandbox.Error nothing is told.
func Add[In any](s *Server, t Tool, f func(ctx context.Context, in In) (string, error)) {
	destructive := t.Destructive
	sdk.AddTool(s.sdk, &sdk.Tool{
		Name: t.Name, Description: t.Description,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: t.ReadOnly, DestructiveHint: &destructive},
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		text, err := s.call(ctx, t.Name, func() (string, error) { return f(ctx, in) })
		out := &sdk.CallToolResult{IsError: err != nil}
		if err != nil {
			text = s.describe(t.Name, err)
		}
		out.Content = []sdk.Content{&sdk.TextContent{Text: bounded(text)}}
		return out, nil, nil
	})
}

// call makes a call where there is room for it.
func (s *Server) call(ctx context.Context, tool string, f func() (string, error)) (string, error) {
	if !s.pace.Allow() {
		return "", sandbox.Errorf(sandbox.Exhausted, "%s: too many calls", tool).WithHint("wait a few seconds")
	}
	select {
	case s.room <- struct{}{}:
	default:
		return "", sandbox.Errorf(sandbox.Exhausted, "%s: %d calls are under way", tool, MaxCalls).WithHint("wait for one to end")
	}
	defer func() { <-s.room }()
	if err := ctx.Err(); err != nil {
		return "", context.Cause(ctx)
	}
	return f()
}

// describe is an error as a model reads it.
func (s *Server) describe(tool string, err error) string {
	if e, ok := errors.AsType[*sandbox.Error](err); ok && e.Kind != sandbox.Internal {
		if e.Hint != "" && !(s.inside && strings.Contains(e.Hint, "carboy ")) {
			return e.Msg + "\nhint: " + e.Hint
		}
		return e.Msg
	}
	s.log.Warn("a tool failed", "tool", tool, "error", err)
	return tool + " failed: the daemon's log says why"
}

// bounded is a text as a result has it.
func bounded(text string) string {
	out := string(term.EscapeText([]byte(text)))
	if len(out) <= MaxResult {
		return out
	}
	return fmt.Sprintf("%s\n[%d more bytes are left out]", strings.ToValidUTF8(out[:MaxResult], ""), len(out)-MaxResult)
}

// JSON is v as a result's text.
func JSON(v any) (string, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	return string(b), err
}

// Handler serves the tools by MCP's streamable HTTP, at any path. Who calls is known to who mounts it.
func (s *Server) Handler() http.Handler {
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk }, &sdk.StreamableHTTPOptions{
		Stateless: true,
		// The names by which a server is called are those of who mounts it.
		DisableLocalhostProtection: true,
	})
	requests := make(chan struct{}, 2*MaxCalls)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case requests <- struct{}{}:
			defer func() { <-requests }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests are under way", http.StatusServiceUnavailable)
			return
		}
		if arrived(w, r) {
			h.ServeHTTP(w, r)
		}
	})
}

// arrived reads a request's body, and answers where it does not come, or is too long.
func arrived(w http.ResponseWriter, r *http.Request) bool {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(readTime)) // not everything that carries a request knows deadlines
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxCall))
	_ = c.SetReadDeadline(time.Time{})
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		http.Error(w, fmt.Sprintf("a call has at most %d bytes", MaxCall), http.StatusRequestEntityTooLarge)
		return false
	}
	if err != nil {
		http.Error(w, "the call did not arrive", http.StatusBadRequest)
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return true
}
