package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/carboy-sandbox/carboy/internal/mcp"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

type input struct {
	What string `json:"what" jsonschema:"what is to be said"`
	Loud bool   `json:"loud,omitempty" jsonschema:"in capitals"`
}

// serve serves a server with the tool "say", which answers as f does.
func serve(t *testing.T, o mcp.Options, f func(ctx context.Context, in input) (string, error)) *httptest.Server {
	t.Helper()
	o.Name = "test"
	s := mcp.New(o)
	mcp.Add(s, mcp.Tool{Name: "say", Description: "Says it.", ReadOnly: true}, f)
	h := httptest.NewServer(s.Handler())
	t.Cleanup(h.Close)
	return h
}

func echo(_ context.Context, in input) (string, error) { return in.What, nil }

func connect(t *testing.T, url string) *sdk.ClientSession {
	t.Helper()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// say calls the tool, and returns its text and whether it failed.
func say(t *testing.T, c *sdk.ClientSession, args map[string]any) (string, bool) {
	t.Helper()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "say", Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

// TestTools: a client finds tools with their schemas, and arguments that these do not have are refused.
func TestTools(t *testing.T) {
	c := connect(t, serve(t, mcp.Options{Instructions: "Say something."}, echo).URL)
	if got := c.InitializeResult().Instructions; got != "Say something." {
		t.Errorf("instructions: %q", got)
	}
	list, err := c.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 {
		t.Fatalf("tools: %+v, %v", list, err)
	}
	schema, err := json.Marshal(list.Tools[0].InputSchema)
	if err != nil || !strings.Contains(string(schema), "in capitals") || !list.Tools[0].Annotations.ReadOnlyHint {
		t.Errorf("the tool: %s, %+v, %v", schema, list.Tools[0].Annotations, err)
	}
	for _, tt := range []struct {
		args map[string]any
		want string
		bad  bool
	}{
		{map[string]any{"what": "hi"}, "hi", false},
		{map[string]any{"what": "hi", "loudly": true}, "loudly", true},
		{map[string]any{}, "what", true},
		{map[string]any{"what": 7}, "what", true},
	} {
		if got, bad := say(t, c, tt.args); bad != tt.bad || !strings.Contains(got, tt.want) {
			t.Errorf("say %v: %q, failed: %t", tt.args, got, bad)
		}
	}
}

// TestResults: results are bounded, and a terminal shows all of them; errors say what to do, and nothing of what is nobody's concern.
func TestResults(t *testing.T) {
	long := strings.Repeat("x", mcp.MaxResult) + strings.Repeat("y", 100)
	for _, tt := range []struct {
		name   string
		inside bool
		text   string
		err    error
		want   string
	}{
		{"text", false, "a\n\tb", nil, "a\n\tb"},
		{"escapes", false, "\x1b]0;owned\a\u202egnp", nil, `\x1b]0;owned\x07\u202egnp`},
		{"long", false, long, nil, long[:mcp.MaxResult] + "\n[100 more bytes are left out]"},
		{"error", false, "", sandbox.Errorf(sandbox.Conflict, "it is busy").WithHint("carboy ls"), "it is busy\nhint: carboy ls"},
		{"error inside", true, "", sandbox.Errorf(sandbox.Conflict, "it is busy").WithHint("carboy ls"), "it is busy"},
		{"hint inside", true, "", sandbox.Errorf(sandbox.Conflict, "it is busy").WithHint("wait"), "it is busy\nhint: wait"},
		{"secret", false, "", errors.New("open /root/key: hunter2"), "say failed: the daemon's log says why"},
		{"internal", false, "", sandbox.Errorf(sandbox.Internal, "hunter2"), "say failed: the daemon's log says why"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := connect(t, serve(t, mcp.Options{Inside: tt.inside}, func(context.Context, input) (string, error) { return tt.text, tt.err }).URL)
			if got, bad := say(t, c, map[string]any{"what": "x"}); got != tt.want || bad != (tt.err != nil) {
				t.Errorf("it says %.200q, failed: %t", got, bad)
			}
		})
	}
}

// post sends a request as it is.
func post(t *testing.T, url string, body io.Reader) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(b)
}

// call is a request that calls the tool.
func call(args string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":` + args + `}}`
}

// TestHostileCalls: whatever is sent, no tool is called by it, and the next call is answered.
func TestHostileCalls(t *testing.T) {
	s := serve(t, mcp.Options{}, echo)
	for name, body := range map[string]string{
		"10 MB":          call(`{"what":"` + strings.Repeat("x", 10<<20) + `"}`),
		"deep":           call(strings.Repeat("[", 400_000) + strings.Repeat("]", 400_000)),
		"deep argument":  call(`{"what":` + strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000) + "}"),
		"no JSON":        "\x00\xff",
		"empty":          "",
		"another tool":   `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shout","arguments":{}}}`,
		"another method": `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`,
		"two names":      call(`{"what":"x","what":7}`),
	} {
		status, answer := post(t, s.URL, strings.NewReader(body))
		if strings.Contains(answer, `"text":"x`) {
			t.Errorf("%s: %d %.200s", name, status, answer)
		}
	}
	if status, answer := post(t, s.URL, strings.NewReader(call(`{"what":"still here"}`))); status != http.StatusOK || !strings.Contains(answer, "still here") {
		t.Errorf("afterwards: %d %s", status, answer)
	}
}

// TestManyCalls: of calls at once some are refused, and of a flood too; those that are under way end as they would.
func TestManyCalls(t *testing.T) {
	begun, end := make(chan struct{}, mcp.MaxCalls), make(chan struct{})
	s := serve(t, mcp.Options{}, func(ctx context.Context, in input) (string, error) {
		if in.What == "wait" {
			begun <- struct{}{}
			<-end
		}
		return in.What, nil
	})
	c := connect(t, s.URL)
	var waiting sync.WaitGroup
	for range mcp.MaxCalls {
		waiting.Go(func() {
			r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "say", Arguments: map[string]any{"what": "wait"}})
			if err != nil || r.IsError {
				t.Errorf("a call that waited: %+v, %v", r, err)
			}
		})
	}
	for range mcp.MaxCalls {
		<-begun
	}
	if got, bad := say(t, c, map[string]any{"what": "one more"}); !bad || !strings.Contains(got, fmt.Sprintf("%d calls are under way", mcp.MaxCalls)) {
		t.Errorf("one more: %q", got)
	}
	close(end)
	waiting.Wait()
	_, answer := post(t, s.URL, strings.NewReader("["+strings.Repeat(call(`{"what":"x"}`)+",", 1000)+call(`{"what":"x"}`)+"]"))
	if n := strings.Count(answer, `"text":"x"`); n > 500 {
		t.Errorf("%d calls of one batch were made", n)
	}
	refused := false
	for range 10_000 {
		if got, bad := say(t, c, map[string]any{"what": "x"}); bad {
			refused = strings.Contains(got, "too many calls")
			break
		}
	}
	if !refused {
		t.Error("no call of 10,000 was one too many")
	}
}

// TestRestart: a client goes on with another server at the same address, for nothing is kept between calls.
func TestRestart(t *testing.T) {
	var mu sync.Mutex
	var now http.Handler
	start := func() {
		s := mcp.New(mcp.Options{Name: "test"})
		mcp.Add(s, mcp.Tool{Name: "say"}, echo)
		mu.Lock()
		defer mu.Unlock()
		now = s.Handler()
	}
	start()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := now
		mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	c := connect(t, h.URL)
	for range 2 {
		if got, bad := say(t, c, map[string]any{"what": "hi"}); got != "hi" || bad {
			t.Errorf("say: %q", got)
		}
		start()
	}
}

func FuzzCalls(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{"what":"x"}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`))
	f.Add([]byte(`[]`))
	s := mcp.New(mcp.Options{Name: "test"})
	mcp.Add(s, mcp.Tool{Name: "say"}, echo)
	h := s.Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	})
}
