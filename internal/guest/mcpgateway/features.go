package mcpgateway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// refresh reads what a server has, and shows it to clients. Those are told of
// what is new and what is gone.
func (b *backend) refresh(ctx context.Context) {
	b.lists.Lock()
	defer b.lists.Unlock()
	b.stale.Store(false)
	ctx, cancel := context.WithTimeoutCause(ctx, listLimit, errLists) // pages may have no end
	defer cancel()
	if err := tried(func() { b.read(ctx) }); err != nil {
		b.g.tell(slog.LevelWarn, b.Name, "a list could not be read: "+err.Error())
	}
}

var errLists = errors.New("the lists took too long")

// refreshSoon refreshes in the background. However often a server says that
// something changed, at most one reading waits for the one that goes on.
func (b *backend) refreshSoon() {
	if b.stale.CompareAndSwap(false, true) {
		b.g.work.Go(func() { b.refresh(b.g.ctx) })
	}
}

func (b *backend) read(ctx context.Context) {
	s, err := b.running()
	if err != nil {
		return
	}
	has := s.InitializeResult().Capabilities
	if has == nil {
		return
	}
	if has.Tools != nil {
		read(b, kindTool, s.Tools(ctx, nil), func(t *mcp.Tool) string { return t.Name }, b.addTool)
	}
	if has.Prompts != nil {
		read(b, kindPrompt, s.Prompts(ctx, nil), func(p *mcp.Prompt) string { return p.Name }, b.addPrompt)
	}
	if has.Resources != nil {
		read(b, kindResource, s.Resources(ctx, nil), func(r *mcp.Resource) string { return r.URI }, b.addResource)
		read(b, kindTemplate, s.ResourceTemplates(ctx, nil), func(t *mcp.ResourceTemplate) string { return t.URITemplate }, b.addTemplate)
	}
}

// read shows one list of a server's. A list that can't be read to its end
// leaves what was there before.
func read[T any](b *backend, k kind, list iter.Seq2[*T, error], nameOf func(*T) string, add func(*T, string)) {
	keep := map[string]bool{}
	n := 0
	for v, err := range list {
		if err != nil {
			b.g.tell(slog.LevelWarn, b.Name, "a list could not be read: "+err.Error())
			return
		}
		if n++; n > maxListed {
			b.g.tell(slog.LevelWarn, b.Name, fmt.Sprintf("a list is longer than %d, and was cut", maxListed))
			break
		}
		if v == nil {
			b.g.tell(slog.LevelWarn, b.Name, "a list has a null in it, which is left out")
			continue
		}
		name, ok := b.g.names.claim(k, b, nameOf(v))
		if !ok {
			b.g.tell(slog.LevelWarn, b.Name, fmt.Sprintf("%.100q is left out: the name is taken twice", nameOf(v)))
			continue
		}
		if err := tried(func() { add(v, name) }); err != nil {
			b.g.tell(slog.LevelWarn, b.Name, fmt.Sprintf("%.100q is left out: %v", nameOf(v), err))
			continue
		}
		keep[name] = true
	}
	b.g.remove(k, b.g.names.release(k, b, keep))
}

// surviving turns a panic into an error: what servers and clients say is not to
// end the gateway for all others.
func surviving(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (res mcp.Result, err error) {
		if perr := tried(func() { res, err = next(ctx, method, r) }); perr != nil {
			return nil, fmt.Errorf("%s: what was sent can't be handled: %w", method, perr)
		}
		return res, err
	}
}

// tried runs f. The library panics where a server describes what it has
// wrongly: that is the server's error, not ours.
func tried(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%.200v", p)
		}
	}()
	f()
	return nil
}

func (g *Gateway) remove(k kind, names []string) {
	if len(names) == 0 {
		return
	}
	switch k {
	case kindTool:
		g.mcp.RemoveTools(names...)
	case kindPrompt:
		g.mcp.RemovePrompts(names...)
	case kindResource:
		g.mcp.RemoveResources(names...)
	case kindTemplate:
		g.mcp.RemoveResourceTemplates(names...)
	}
}

// unlist takes away all that a server had.
func (g *Gateway) unlist(b *backend) {
	b.lists.Lock()
	defer b.lists.Unlock()
	for k := range kinds {
		g.remove(k, g.names.release(k, b, nil))
	}
}

func (b *backend) addTool(t *mcp.Tool, name string) {
	shown, inner := *t, t.Name
	shown.Name = name
	b.g.mcp.AddTool(&shown, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s, err := b.running()
		if err != nil {
			return nil, err
		}
		p := &mcp.CallToolParams{Name: inner}
		if len(r.Params.Arguments) > 0 {
			p.Arguments = r.Params.Arguments
		}
		token, done := b.g.follow(r.Session, r.Params.GetProgressToken())
		defer done()
		if token != nil {
			p.SetProgressToken(token)
		}
		return s.CallTool(ctx, p)
	})
}

func (b *backend) addPrompt(p *mcp.Prompt, name string) {
	shown, inner := *p, p.Name
	shown.Name = name
	b.g.mcp.AddPrompt(&shown, func(ctx context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		s, err := b.running()
		if err != nil {
			return nil, err
		}
		return s.GetPrompt(ctx, &mcp.GetPromptParams{Name: inner, Arguments: r.Params.Arguments})
	})
}

func (b *backend) addResource(r *mcp.Resource, uri string) {
	shown := *r
	shown.URI = uri
	b.g.mcp.AddResource(&shown, b.reader(uri != r.URI))
}

func (b *backend) addTemplate(t *mcp.ResourceTemplate, template string) {
	shown := *t
	shown.URITemplate = template
	b.g.mcp.AddResourceTemplate(&shown, b.reader(template != t.URITemplate))
}

// reader reads resources of the server, whose addresses have a prefix or not.
func (b *backend) reader(hasPrefix bool) mcp.ResourceHandler {
	return func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		s, err := b.running()
		if err != nil {
			return nil, err
		}
		uri := r.Params.URI
		if hasPrefix {
			uri = strings.TrimPrefix(uri, scheme(b.short)+"+")
		}
		res, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
		if err != nil || !hasPrefix {
			return res, err
		}
		for _, c := range res.Contents {
			if c == nil {
				return nil, fmt.Errorf("server %s: a null among the contents of %.200q", b.Name, uri)
			}
			c.URI = scheme(b.short) + "+" + c.URI
		}
		return res, nil
	}
}

func (g *Gateway) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	n, s, err := g.resource(r.Params.URI)
	if err != nil {
		return err
	}
	return s.Subscribe(ctx, &mcp.SubscribeParams{URI: n.name})
}

// unsubscribe leaves the server as it is: another client may want to know.
// What nobody wants to know, nobody is told.
func (g *Gateway) unsubscribe(_ context.Context, r *mcp.UnsubscribeRequest) error {
	_, _, err := g.resource(r.Params.URI)
	return err
}

func (g *Gateway) resource(uri string) (shownName, *mcp.ClientSession, error) {
	n, ok := g.names.find(kindResource, uri)
	if !ok {
		return n, nil, mcp.ResourceNotFoundError(uri)
	}
	s, err := n.b.running()
	return n, s, err
}

func (g *Gateway) complete(ctx context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	p := *r.Params
	if p.Ref == nil {
		return nil, fmt.Errorf("ref: it is missing")
	}
	k, name := kindPrompt, p.Ref.Name
	if p.Ref.Type == "ref/resource" {
		k, name = kindTemplate, p.Ref.URI
	}
	n, ok := g.names.find(k, name)
	if !ok {
		return nil, fmt.Errorf("%.200q: there is no such prompt or template", name)
	}
	s, err := n.b.running()
	if err != nil {
		return nil, err
	}
	ref := *p.Ref
	if k == kindPrompt {
		ref.Name = n.name
	} else {
		ref.URI = n.name
	}
	p.Ref = &ref
	return s.Complete(ctx, &p)
}
