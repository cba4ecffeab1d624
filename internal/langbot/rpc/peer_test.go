package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

// overStdio is both ends of a connection of lines.
func overStdio(*testing.T) (a, b rpc.Conn) {
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	closeBoth := func(x io.Closer, y io.Closer) func() error {
		return func() error { return errors.Join(x.Close(), y.Close()) }
	}
	return rpc.NewStdio(ar, aw, closeBoth(ar, aw)), rpc.NewStdio(br, bw, closeBoth(br, bw))
}

func overWebSocket(t *testing.T) (a, b rpc.Conn) {
	sc, cc := webSockets(t)
	return rpc.NewWebSocket(sc, rpc.WebSocketOptions{}), rpc.NewWebSocket(cc, rpc.WebSocketOptions{})
}

func overPieces(t *testing.T) (a, b rpc.Conn) {
	sc, cc := webSockets(t)
	return rpc.NewWebSocket(sc, rpc.WebSocketOptions{Pieces: true}), rpc.NewWebSocket(cc, rpc.WebSocketOptions{Pieces: true})
}

func webSockets(t *testing.T) (server, client *websocket.Conn) {
	t.Helper()
	accepted := make(chan *websocket.Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- c
	}))
	t.Cleanup(s.Close)
	client, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { _ = server.CloseNow(); _ = client.CloseNow() })
	return server, client
}

var transports = []struct {
	name string
	pair func(*testing.T) (a, b rpc.Conn)
}{
	{"stdio", overStdio},
	{"websocket", overWebSocket},
	{"websocket-pieces", overPieces},
}

// peers runs both ends; serve is what b answers with.
func peers(t *testing.T, a, b rpc.Conn, serve func(context.Context, *langbot.Request) (any, error)) (caller, server *rpc.Peer) {
	t.Helper()
	caller = rpc.NewPeer(rpc.Options{Conn: a})
	server = rpc.NewPeer(rpc.Options{Conn: b, Serve: serve})
	var wg sync.WaitGroup
	for _, p := range []*rpc.Peer{caller, server} {
		wg.Go(func() { _ = p.Run(context.Background()) })
	}
	t.Cleanup(func() { _ = caller.Close(); _ = server.Close(); wg.Wait() })
	return caller, server
}

// echo answers with what it got, for whom, and the size of its text.
func echo(_ context.Context, r *langbot.Request) (any, error) {
	switch r.Action {
	case "echo":
		return struct {
			Data  json.RawMessage  `json:"data"`
			About *langbot.Context `json:"about"`
		}{r.Data, r.Context}, nil
	case "fail":
		return nil, errors.New("BoxValidationError: " + strings.Repeat("é", 5000))
	case "panic":
		panic("a bug")
	}
	return nil, rpc.UnknownActionError(r.Action)
}

func TestCall(t *testing.T) {
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			a, b := tt.pair(t)
			caller, _ := peers(t, a, b, echo)
			// Around the edges at which each framing changes, and text that is
			// escaped, or of several bytes a rune.
			for _, size := range []int{0, 1, 16<<10 - 30, 16 << 10, 64 << 10, 64<<10 + 1, 3 << 19} {
				for _, text := range []string{"\"é\U0001f9ea\\\n", "x", "\U0001f9ea"} {
					if size >= 1<<20 && text != "x" {
						continue
					}
					want := strings.Repeat(text, size/len(text))
					var got struct {
						Data  struct{ Text string }
						About *langbot.Context
					}
					about := &langbot.Context{InstanceUUID: "i", WorkspaceUUID: "w", PlacementGeneration: 3}
					if err := caller.Call(t.Context(), "echo", map[string]string{"text": want}, about, &got); err != nil {
						t.Fatalf("%d bytes of %q: %v", size, text, err)
					}
					if got.Data.Text != want {
						t.Errorf("%d bytes of %q: %d came back, not what was sent", size, text, len(got.Data.Text))
					}
					if got.About == nil || *got.About != *about {
						t.Errorf("context = %+v, want %+v", got.About, about)
					}
				}
			}
		})
	}
}

func TestCallsRunAtOnce(t *testing.T) {
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			a, b := tt.pair(t)
			all := make(chan struct{})
			var here sync.WaitGroup
			here.Add(50)
			go func() { here.Wait(); close(all) }()
			caller, _ := peers(t, a, b, func(ctx context.Context, r *langbot.Request) (any, error) {
				here.Done()
				select { // none is answered before all are here
				case <-all:
				case <-ctx.Done():
				}
				return r.Data, nil
			})
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					var got struct{ N int }
					if err := caller.Call(t.Context(), "x", map[string]int{"n": i}, nil, &got); err != nil || got.N != i {
						t.Errorf("call %d = %d, %v", i, got.N, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestCallErrors(t *testing.T) {
	a, b := overStdio(t)
	caller, _ := peers(t, a, b, echo)
	tests := []struct{ name, action, want string }{
		{"unknown-action", "nope", "ValueError: Action nope not found"},
		{"cut-at-its-limit", "fail", "BoxValidationError: " + strings.Repeat("é", rpc.MaxErrorText-len("BoxValidationError: ")) + "... [the rest of this error was cut]"},
		{"panic-says-nothing", "panic", "BoxError: internal error; the runtime's log has it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := caller.Call(t.Context(), tt.action, nil, nil, nil)
			if _, ok := errors.AsType[*rpc.RemoteError](err); !ok || err.Error() != tt.want {
				t.Errorf("Call = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCallEnds(t *testing.T) {
	forever := func(ctx context.Context, _ *langbot.Request) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	t.Run("with-its-time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := overStdio(t)
			caller, server := peers(t, a, b, forever)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			if err := caller.Call(ctx, "x", nil, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Call = %v, want its deadline", err)
			}
			_, _ = caller.Close(), server.Close()
			synctest.Wait()
		})
	})
	for _, tt := range transports {
		t.Run("with-the-connection/"+tt.name, func(t *testing.T) {
			a, b := tt.pair(t)
			begun, ended := make(chan struct{}), make(chan struct{})
			caller, server := peers(t, a, b, func(ctx context.Context, r *langbot.Request) (any, error) {
				close(begun)
				defer close(ended)
				return forever(ctx, r)
			})
			go func() { <-begun; _ = server.Close() }()
			if err := caller.Call(t.Context(), "x", nil, nil, nil); !errors.Is(err, rpc.ErrClosed) {
				t.Errorf("Call = %v, want ErrClosed", err)
			}
			<-ended
			<-caller.Done()
			if err := caller.Call(t.Context(), "x", nil, nil, nil); !errors.Is(err, rpc.ErrClosed) {
				t.Errorf("a call after the end = %v, want ErrClosed", err)
			}
		})
	}
}

// A client that goes away ends what it asked for.
func TestVanishedCallerEndsItsActions(t *testing.T) {
	for _, tt := range transports {
		t.Run(tt.name, func(t *testing.T) {
			a, b := tt.pair(t)
			begun, ended := make(chan struct{}), make(chan struct{})
			caller, _ := peers(t, a, b, func(ctx context.Context, _ *langbot.Request) (any, error) {
				close(begun)
				<-ctx.Done()
				close(ended)
				return nil, ctx.Err()
			})
			go func() { _ = caller.Call(context.Background(), "x", nil, nil, nil) }()
			<-begun
			_ = caller.Close()
			<-ended
		})
	}
}

func TestTooManyActions(t *testing.T) {
	a, b := overStdio(t)
	var here sync.WaitGroup
	here.Add(rpc.MaxInFlight)
	goOn := make(chan struct{})
	caller, _ := peers(t, a, b, func(context.Context, *langbot.Request) (any, error) {
		here.Done()
		<-goOn
		return nil, nil
	})
	var wg sync.WaitGroup
	for range rpc.MaxInFlight {
		wg.Go(func() {
			if err := caller.Call(t.Context(), "x", nil, nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	here.Wait()
	err := caller.Call(t.Context(), "one-more", nil, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "128 actions under way") {
		t.Errorf("one more = %v, want that there are 128", err)
	}
	close(goOn)
	wg.Wait()
}

// raw is a connection of which a test writes each byte.
func raw(t *testing.T, serve func(context.Context, *langbot.Request) (any, error)) (ask func(line string) string) {
	t.Helper()
	c, s := net.Pipe()
	p := rpc.NewPeer(rpc.Options{Conn: rpc.NewStdio(s, s, s.Close), Serve: serve})
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(context.Background()) }()
	t.Cleanup(func() { _ = c.Close(); <-done })
	answers := rpc.NewStdio(c, c, c.Close)
	return func(line string) string {
		if _, err := io.WriteString(c, line); err != nil {
			t.Fatal(err)
		}
		got, err := answers.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
}

func TestRawMessages(t *testing.T) {
	ask := raw(t, echo)
	const refused = `{"seq_id":%d,"code":1,"message":%q,"data":{},"chunk_status":"continue"}`
	tests := []struct{ name, line, want string }{
		{"as-june-sends", `{"seq_id": 7, "action": "echo", "data": {"a": 1}}` + "\n", `{"seq_id":7,"code":0,"message":"success","data":{"data":{"a":1},"about":null},"chunk_status":"continue"}`},
		{
			"with-a-context", `{"seq_id":8,"action":"echo","data":{},"context":{"instance_uuid":" i ","workspace_uuid":"w","placement_generation":2,"installation_uuid":"p"}}` + "\n",
			`{"seq_id":8,"code":0,"message":"success","data":{"data":{},"about":{"instance_uuid":"i","workspace_uuid":"w","placement_generation":2}},"chunk_status":"continue"}`,
		},
		{"null-context", `{"seq_id":9,"action":"echo","data":{},"context":null}` + "\n", `{"seq_id":9,"code":0,"message":"success","data":{"data":{},"about":null},"chunk_status":"continue"}`},
		{"ignored-before", "starting up…\n\n{not json}\n{\"seq_id\":1}\n[1]\n" + `{"seq_id":10,"action":"nope","data":{}}` + "\n", fmt.Sprintf(refused, 10, "ValueError: Action nope not found")},
		{"no-seq", `{"action":"nope","data":{}}` + "\n", fmt.Sprintf(refused, -1, "ValueError: Action nope not found")},
		{"data-no-object", `{"seq_id":11,"action":"echo","data":[]}` + "\n", fmt.Sprintf(refused, 11, "ValueError: a request whose data is no object")},
		{"context-with-more", `{"seq_id":12,"action":"echo","data":{},"context":{"instance_uuid":"i","workspace_uuid":"w","admin":true}}` + "\n", fmt.Sprintf(refused, 12, `ValueError: context: field "admin" is not known`)},
		{"context-without-workspace", `{"seq_id":13,"action":"echo","data":{},"context":{"instance_uuid":"i"}}` + "\n", fmt.Sprintf(refused, 13, "ValueError: context: instance_uuid and workspace_uuid must not be empty")},
		{"half-a-character", `{"seq_id":14,"action":"echo","data":{},"context":{"instance_uuid":"i","workspace_uuid":"w\ud800"}}` + "\n", fmt.Sprintf(refused, 14, "ValueError: context: instance_uuid and workspace_uuid must be characters, not halves of surrogate pairs")},
		{"generation-zero", `{"seq_id":14,"action":"echo","data":{},"context":{"instance_uuid":"i","workspace_uuid":"w","placement_generation":0}}` + "\n", fmt.Sprintf(refused, 14, "ValueError: context: placement_generation must be at least 1, not 0")},
		{"generation-is-text", `{"seq_id":15,"action":"echo","data":{},"context":{"instance_uuid":"i","workspace_uuid":"w","placement_generation":"2"}}` + "\n", fmt.Sprintf(refused, 15, "ValueError: context: placement_generation has the wrong type")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ask(tt.line); got != tt.want {
				t.Errorf("answer\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	a, b := overStdio(t)
	caller, server := peers(t, a, b, nil)
	for _, size := range []int{0, 1, 16 << 10, 16<<10 + 1, 100_000} {
		want := bytes.Repeat([]byte{0, 255, 'x'}, size/3+1)[:size]
		key, err := caller.SendFile(t.Context(), want, "zip")
		if err != nil {
			t.Fatal(err)
		}
		got, err := server.TakeFile(key)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("a file of %d bytes came as %d, %v", size, len(got), err)
		}
		if _, err := server.TakeFile(key); err == nil {
			t.Error("a file was taken twice")
		}
	}
}

func TestDecodeResponse(t *testing.T) {
	// As the original's entity is written, and as June's.
	m, err := rpc.Decode([]byte(`{"seq_id": 3, "code": 1, "message": "BoxError: x", "data": {}, "chunk_status": "continue"}`))
	if err != nil || m.Response == nil || m.Response.SeqID != 3 || m.Response.Code != 1 || m.Response.Message != "BoxError: x" {
		t.Errorf("Decode = %+v, %v", m.Response, err)
	}
	if _, err := rpc.Decode([]byte(`{"seq_id":3,"code":"0","message":"","data":{}}`)); err == nil {
		t.Error("a code that is text was taken")
	}
	if _, err := rpc.Decode([]byte("{\"seq_id\":3,\"action\":\"\xff\",\"data\":{}}")); err == nil {
		t.Error("a message that is not UTF-8 was taken")
	}
	b, err := rpc.Encode(langbot.Request{SeqID: 1, Action: "a", Data: json.RawMessage(`{}`), Context: &langbot.Context{InstanceUUID: "i", WorkspaceUUID: "w", PlacementGeneration: 1}})
	if err != nil || string(b) != `{"seq_id":1,"action":"a","data":{},"context":{"instance_uuid":"i","workspace_uuid":"w","placement_generation":1}}` {
		t.Errorf("Encode = %s, %v", b, err)
	}
}
