//lint:file-ignore SA1019 the next version of the protocol drops logging; clients of this one read it

package mcpgateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/mcpgateway/catalogue"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// port is where E2B's clients look for the gateway.
const port = 50005

const (
	sessionIdle = 30 * time.Minute
	maxBody     = 8 << 20 // bytes of a client's message
)

// listLimit is for reading all lists of a server.
var listLimit = time.Minute

var implementation = &mcp.Implementation{Name: "carboy-mcp-gateway", Version: "1"}

// Options are what a gateway works with.
type Options struct {
	Servers    []catalogue.Server
	Token      string   // what clients show; required
	Home       string   // where servers run, and below which they are cloned to
	Env        []string // what servers have, KEY=VALUE each
	Credential *syscall.Credential
	Log        io.Writer // what servers say on standard error; default: nowhere
}

// Gateway is an MCP server of others' parts. Close ends the servers.
type Gateway struct {
	o      Options
	mcp    *mcp.Server
	log    io.Writer
	ctx    context.Context // of servers
	cancel context.CancelFunc
	work   sync.WaitGroup

	backends []*backend
	names    registry

	calls    atomic.Int64
	progress sync.Map // token → *call, of calls that are under way
}

// call is one that a client wants to hear of.
type call struct {
	session *mcp.ServerSession
	token   any // the client's
}

// New returns a gateway whose servers do not run yet.
func New(o Options) (*Gateway, error) {
	if o.Token == "" {
		return nil, errors.New("GATEWAY_ACCESS_TOKEN: it is empty; it is what clients show to be let in")
	}
	g := &Gateway{o: o, log: o.Log, names: newRegistry()}
	if g.log == nil {
		g.log = io.Discard
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.mcp = mcp.NewServer(implementation, &mcp.ServerOptions{
		SubscribeHandler:   g.subscribe,
		UnsubscribeHandler: g.unsubscribe,
		CompletionHandler:  g.complete,
		Capabilities: &mcp.ServerCapabilities{
			Tools: &mcp.ToolCapabilities{ListChanged: true}, Prompts: &mcp.PromptCapabilities{ListChanged: true},
			Resources: &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
			Logging:   &mcp.LoggingCapabilities{}, Completions: &mcp.CompletionCapabilities{},
		},
	})
	g.mcp.AddReceivingMiddleware(surviving)
	for _, s := range o.Servers {
		g.backends = append(g.backends, &backend{Server: s, g: g, short: short(s.Name)})
	}
	return g, nil
}

// short is the last part of a server's name, of letters that names may have.
func short(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, path.Base(name))
}

// Start installs the servers, starts them, and reads what they have. After an
// error, Close ends those that run.
func (g *Gateway) Start(ctx context.Context) error {
	errs := make([]error, len(g.backends))
	var all sync.WaitGroup
	gone := make([]<-chan struct{}, len(g.backends))
	for i, b := range g.backends {
		all.Go(func() {
			if errs[i] = b.install(ctx); errs[i] == nil {
				gone[i], errs[i] = b.start(ctx)
			}
			if errs[i] != nil {
				errs[i] = fmt.Errorf("server %s: %w", b.Name, errs[i])
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, b := range g.backends { // in order, so that names clash the same way each time
		b.refresh(ctx)
		g.work.Go(func() { b.keep(gone[i]) })
	}
	return nil
}

// Close ends the servers and waits for them.
func (g *Gateway) Close() {
	g.cancel()
	for s := range g.mcp.Sessions() {
		_ = s.Close()
	}
	g.work.Wait()
}

// Handler answers /mcp to those who have the token.
func (g *Gateway) Handler() http.Handler {
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return g.mcp }, &mcp.StreamableHTTPOptions{
		SessionTimeout: sessionIdle, MaxRequestBodyBytes: maxBody,
		// Who is let in has the token, which no page of another site has. The
		// names that we are called by are the daemon's to choose.
		DisableLocalhostProtection: true,
	})
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	return withToken(g.o.Token, withPatience(mux))
}

// tell lets all clients know what happened to a server.
func (g *Gateway) tell(level slog.Level, server, text string) {
	fmt.Fprintf(g.log, "%s: %s: %s\n", level, server, text)
	word := mcp.LoggingLevel("warning")
	if level >= slog.LevelError {
		word = "error"
	}
	for s := range g.mcp.Sessions() {
		_ = s.Log(g.ctx, &mcp.LoggingMessageParams{Level: word, Logger: "mcp-gateway", Data: server + ": " + text})
	}
}

// follow has the progress of a call reported to the client that asked for it.
// It returns a token for the server, or nil, and what ends that.
func (g *Gateway) follow(s *mcp.ServerSession, token any) (any, func()) {
	if token == nil {
		return nil, func() {}
	}
	own := "carboy-" + strconv.FormatInt(g.calls.Add(1), 10)
	g.progress.Store(own, &call{s, token})
	return own, func() { g.progress.Delete(own) }
}

// options have what a server tells without being asked.
func (b *backend) options() *mcp.ClientOptions {
	changed := func(context.Context) { b.refreshSoon() }
	return &mcp.ClientOptions{
		Capabilities:               &mcp.ClientCapabilities{},
		ToolListChangedHandler:     func(ctx context.Context, _ *mcp.ToolListChangedRequest) { changed(ctx) },
		PromptListChangedHandler:   func(ctx context.Context, _ *mcp.PromptListChangedRequest) { changed(ctx) },
		ResourceListChangedHandler: func(ctx context.Context, _ *mcp.ResourceListChangedRequest) { changed(ctx) },
		ResourceUpdatedHandler: func(ctx context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			p := *r.Params
			p.URI = b.g.names.shown(kindResource, b, p.URI)
			_ = b.g.mcp.ResourceUpdated(ctx, &p)
		},
		LoggingMessageHandler: func(ctx context.Context, r *mcp.LoggingMessageRequest) {
			p := *r.Params
			p.Logger = strings.TrimSuffix(b.short+"/"+p.Logger, "/")
			for s := range b.g.mcp.Sessions() {
				_ = s.Log(ctx, &p)
			}
		},
		ProgressNotificationHandler: func(ctx context.Context, r *mcp.ProgressNotificationClientRequest) {
			own, _ := r.Params.ProgressToken.(string) // a server can send what can't be a key
			if c, ok := b.g.progress.Load(own); ok {
				p := *r.Params
				p.ProgressToken = c.(*call).token
				_ = c.(*call).session.NotifyProgress(ctx, &p)
			}
		},
	}
}

// withToken lets in who shows the token, as a bearer's.
func withToken(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(shown)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the gateway's token is needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
