//lint:file-ignore SA1019 the next version of the protocol drops logging; clients of this one read it

package mcpgateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/carboy-sandbox/carboy/internal/guest/mcpgateway"
	"github.com/carboy-sandbox/carboy/internal/guest/mcpgateway/catalogue"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// TestMain is also the servers that the gateway runs.
func TestMain(m *testing.M) {
	if name := os.Getenv("TEST_MCP_SERVER"); strings.HasPrefix(name, "hostile") {
		hostile(os.Getenv("HOSTILE"), os.Stdin, os.Stdout)
		return
	} else if name != "" {
		if err := server(name).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type text struct {
	Text string `json:"text"`
}

func said(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

func server(name string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: name, Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{name + ":" + r.Params.Ref.Name}}}, nil
		},
	})
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
		return said("%s: %s", name, in.Text), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "env-" + name}, func(_ context.Context, _ *mcp.CallToolRequest, in text) (*mcp.CallToolResult, any, error) {
		v, ok := os.LookupEnv(in.Text)
		return said("%v %s", ok, v), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "crash-" + name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		os.Exit(3)
		return nil, nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "slow-" + name}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 2, Message: "half"})
		<-ctx.Done()
		_ = os.WriteFile(os.Getenv("CANCELLED"), []byte("yes"), 0o600)
		return nil, nil, ctx.Err()
	})
	mcp.AddTool(s, &mcp.Tool{Name: "grow-" + name}, func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		s.AddPrompt(&mcp.Prompt{Name: "grown"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Description: "grown"}, nil
		})
		_ = s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "x://file"})
		return said("ok"), nil, nil
	})
	read := func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, Text: name}}}, nil
	}
	s.AddResource(&mcp.Resource{Name: "file", URI: "x://file"}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "any", URITemplate: "x://any/{id}"}, read)
	s.AddPrompt(&mcp.Prompt{Name: "ask"}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: name + r.Params.Arguments["x"]}, nil
	})
	return s
}

const token = "the-token"

// withBearer shows a token.
type withBearer string

func (b withBearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

type rig struct {
	url     string
	g       *mcpgateway.Gateway
	session *mcp.ClientSession
	logs    chan string
	news    chan string
}

// newRig has a gateway of the named servers, and a client of it.
func newRig(t *testing.T, names ...string) *rig {
	t.Helper()
	var servers []catalogue.Server
	for _, n := range names {
		servers = append(servers, catalogue.Server{Name: n, Argv: []string{os.Args[0]}, Env: map[string]string{"TEST_MCP_SERVER": n, "HOSTILE": strings.TrimPrefix(n, "hostile-")}})
	}
	g, err := mcpgateway.New(mcpgateway.Options{Servers: servers, Token: token, Home: t.TempDir(), Env: []string{"CANCELLED=" + t.TempDir() + "/c", "PATH=" + os.Getenv("PATH")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(g.Handler())
	r := &rig{url: srv.URL + "/mcp", g: g, logs: make(chan string, 100), news: make(chan string, 100)}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		LoggingMessageHandler:       func(_ context.Context, m *mcp.LoggingMessageRequest) { r.logs <- fmt.Sprint(m.Params.Data) },
		PromptListChangedHandler:    func(context.Context, *mcp.PromptListChangedRequest) { r.news <- "prompts" },
		ResourceUpdatedHandler:      func(_ context.Context, m *mcp.ResourceUpdatedNotificationRequest) { r.news <- m.Params.URI },
		ProgressNotificationHandler: func(_ context.Context, m *mcp.ProgressNotificationClientRequest) { r.news <- m.Params.Message },
	})
	r.session, err = c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: r.url, HTTPClient: &http.Client{Transport: withBearer(token)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.session.Close()
		g.Close()
		srv.Close()
	})
	return r
}

// call returns a tool's text, or the error.
func (r *rig) call(t *testing.T, tool string, args any) string {
	t.Helper()
	res, err := r.session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return "error: " + err.Error()
	}
	if len(res.Content) == 0 {
		return ""
	}
	return res.Content[0].(*mcp.TextContent).Text
}

// wait returns the next of c that has want in it.
func wait(t *testing.T, c chan string, want string) {
	t.Helper()
	late := time.After(patience.For(20 * time.Second))
	for {
		select {
		case got := <-c:
			if strings.Contains(got, want) {
				return
			}
		case <-late:
			t.Fatalf("nobody said %q", want)
		}
	}
}

func TestTwoServers(t *testing.T) {
	r := newRig(t, "one", "two")
	var tools []string
	for tool, err := range r.session.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, tool.Name)
	}
	slices.Sort(tools)
	want := "crash-one crash-two echo env-one env-two grow-one grow-two slow-one slow-two two_echo"
	if got := strings.Join(tools, " "); got != want {
		t.Errorf("tools = %s\nwant %s", got, want)
	}
	for tool, want := range map[string]string{"echo": "one: hi", "two_echo": "two: hi"} {
		if got := r.call(t, tool, text{"hi"}); got != want {
			t.Errorf("%s = %q, want %q", tool, got, want)
		}
	}
	if got := r.call(t, "echo", map[string]any{"nope": 1}); !strings.Contains(got, "nope") {
		t.Errorf("wrong arguments: %q", got)
	}
	if got := r.call(t, "none", nil); !strings.Contains(got, "error") {
		t.Errorf("unknown tool: %q", got)
	}
	for uri, want := range map[string]string{"x://file": "one", "stwo+x://file": "two", "x://any/1": "one", "stwo+x://any/1": "two"} {
		res, err := r.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil || res.Contents[0].Text != want || res.Contents[0].URI != uri {
			t.Errorf("%s = %+v, %v, want %s", uri, res, err, want)
		}
	}
	p, err := r.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "two_ask", Arguments: map[string]string{"x": "!"}})
	if err != nil || p.Description != "two!" {
		t.Errorf("prompt = %+v, %v", p, err)
	}
	done, err := r.session.Complete(t.Context(), &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "two_ask"}, Argument: mcp.CompleteParamsArgument{Name: "x", Value: "a"}})
	if err != nil || done.Completion.Values[0] != "two:ask" {
		t.Errorf("completion = %+v, %v", done, err)
	}
}

func TestNews(t *testing.T) {
	r := newRig(t, "one", "two")
	if err := r.session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "stwo+x://file"}); err != nil {
		t.Fatal(err)
	}
	if got := r.call(t, "grow-two", nil); got != "ok" {
		t.Fatal(got)
	}
	wait(t, r.news, "stwo+x://file")
	if err := r.session.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: "stwo+x://file"}); err != nil {
		t.Fatal(err)
	}
	for {
		p, err := r.session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "grown"})
		if err == nil && p.Description == "grown" {
			break
		}
		wait(t, r.news, "prompts")
	}
}

func TestProgressAndCancel(t *testing.T) {
	r := newRig(t, "one")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		p := &mcp.CallToolParams{Name: "slow-one"}
		p.SetProgressToken("mine")
		_, err := r.session.CallTool(ctx, p)
		done <- err
	}()
	wait(t, r.news, "half")
	file := strings.TrimPrefix(r.call(t, "env-one", text{"CANCELLED"}), "true ")
	cancel()
	if err := <-done; err == nil {
		t.Error("the call went on")
	}
	told := patience.Until(20*time.Second, func() bool {
		_, err := os.Stat(file)
		return err == nil || r.call(t, "echo", text{"still"}) == ""
	})
	if !told {
		t.Fatal("the server was not told that its call was cancelled")
	}
}

func TestCrash(t *testing.T) {
	r := newRig(t, "one", "two")
	_ = r.session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"})
	if got := r.call(t, "crash-one", nil); !strings.HasPrefix(got, "error") {
		t.Errorf("a call whose server ends = %q", got)
	}
	wait(t, r.logs, "one: the server ended, and is started again")
	if !patience.Until(20*time.Second, func() bool { return r.call(t, "echo", text{"hi"}) == "one: hi" }) {
		t.Fatal("it was not started again")
	}
	r.call(t, "crash-one", nil)
	wait(t, r.logs, "one: the server ended again")
	if got := r.call(t, "echo", text{"hi"}); !strings.HasPrefix(got, "error") {
		t.Errorf("its tool is there still: %q", got)
	}
	if got := r.call(t, "two_echo", text{"hi"}); got != "two: hi" {
		t.Errorf("another server's tool = %q", got)
	}
}

func TestToken(t *testing.T) {
	r := newRig(t, "one")
	for name, header := range map[string]string{"none": "", "other": "Bearer nope", "basic": "Basic " + token, "bare": token} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.url, strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Errorf("%s: status %d, want 401", name, resp.StatusCode)
		}
	}
	if _, err := mcpgateway.New(mcpgateway.Options{}); err == nil {
		t.Error("a gateway without a token was made")
	}
}

func TestStartFails(t *testing.T) {
	for name, s := range map[string]catalogue.Server{
		"ends":     {Run: "echo no such key >&2; exit 1"},
		"no-mcp":   {Run: "echo hello; exit 0"},
		"install":  {Run: "true", Install: "echo no such key >&2; exit 1"},
		"no-prog":  {Argv: []string{"/nonexistent"}},
		"no-clone": {Repo: "no/such", Run: "true", Env: map[string]string{"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "url.file:///nowhere/.insteadOf", "GIT_CONFIG_VALUE_0": "https://github.com/"}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Name = "s"
			g, err := mcpgateway.New(mcpgateway.Options{Servers: []catalogue.Server{s}, Token: token, Home: t.TempDir(), Env: []string{"PATH=" + os.Getenv("PATH")}})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			if err := g.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "server s: ") {
				t.Errorf("Start = %v", err)
			}
		})
	}
}
