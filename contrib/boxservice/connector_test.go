package boxservice_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	api "github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
)

func newConnector(t *testing.T, o boxservice.Options, dial func(context.Context) (rpc.Conn, error)) *boxservice.Connector {
	t.Helper()
	if o.Endpoint == "" && !o.Disabled {
		o.Endpoint = "ws://runtime.test"
	}
	c, err := boxservice.NewConnector(o)
	if err != nil {
		t.Fatal(err)
	}
	if dial != nil {
		c.SetDial(dial)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func state(c *boxservice.Connector) boxservice.State {
	s, _ := c.State()
	return s
}

func TestHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		var got string
		f.on(api.ActionInit, func(r *api.Request) (any, error) {
			got = string(r.Data)
			return map[string]any{"initialized": true, "ignored": []string{"backend"}}, nil
		})
		c := newConnector(t, boxservice.Options{Init: map[string]any{"backend": "local"}}, f.dial)
		if s := state(c); s != boxservice.Idle {
			t.Errorf("before it is opened it is %s", s)
		}
		if err := c.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := state(c); s != boxservice.Connected {
			t.Errorf("it is %s", s)
		}
		if asked := f.asked(); !slices.Equal(asked, []string{api.ActionPing, api.ActionInit}) {
			t.Errorf("the runtime was asked for %q", asked)
		}
		if got != `{"backend":"local"}` {
			t.Errorf("init said %s", got)
		}
		if err := c.Open(t.Context()); err == nil {
			t.Error("it can be opened twice")
		}
	})
}

// TestReconnect has the runtime go away: the first attempt comes at once, and
// the next after 3 seconds, 6, 12, and so on to 60, each up to a quarter less.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		var down atomic.Bool
		var tries []time.Time
		connected := make(chan int64, 10)
		var c *boxservice.Connector
		c = newConnector(t, boxservice.Options{
			OnConnect: func(context.Context, *boxservice.Client) { connected <- c.Generation() },
		}, func(ctx context.Context) (rpc.Conn, error) {
			if down.Load() {
				tries = append(tries, time.Now())
				return nil, errors.New("nobody is there")
			}
			return f.dial(ctx)
		})
		if err := c.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := <-connected
		down.Store(true)
		lost := time.Now()
		f.newest().Close()
		time.Sleep(5 * time.Minute)
		if s := state(c); s != boxservice.Disconnected {
			t.Errorf("it is %s", s)
		}
		if _, err := c.Client().List(t.Context()); !errors.Is(err, boxservice.ErrUnavailable) || boxservice.Class(err) != api.ClassRuntimeUnavailable {
			t.Errorf("a call without a connection: %v", err)
		}
		want := []int{0, 3, 6, 12, 24, 48, 60, 60}
		if len(tries) < len(want) {
			t.Fatalf("only %d attempts", len(tries))
		}
		before := lost
		for i, seconds := range want {
			w := time.Duration(seconds) * time.Second
			if got := tries[i].Sub(before); got > w || got < w*3/4-time.Millisecond {
				t.Errorf("attempt %d came after %v, want %v or up to a quarter less", i, got, w)
			}
			before = tries[i]
		}
		down.Store(false)
		if second := <-connected; second <= first {
			t.Errorf("the second connection is of generation %d, the first was of %d", second, first)
		}
		if s := state(c); s != boxservice.Connected {
			t.Errorf("it is %s", s)
		}
	})
}

// TestReconnectOfOne cuts a connection by its generation: the one that is named
// alone.
func TestReconnectOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := newConnector(t, boxservice.Options{}, f.dial)
		if err := c.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		old := c.Generation()
		c.Reconnect(old)
		synctest.Wait()
		if f.connections() != 2 || state(c) != boxservice.Connected {
			t.Fatalf("%d connections, it is %s", f.connections(), state(c))
		}
		c.Reconnect(old) // somebody was late to notice
		synctest.Wait()
		if f.connections() != 2 {
			t.Error("a report about an older connection cut the newer one")
		}
	})
}

func TestHeartbeat(t *testing.T) {
	t.Run("three-missed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			why := make(chan error, 10)
			c := newConnector(t, boxservice.Options{OnDisconnect: func(err error) { why <- err }}, f.dial)
			if err := c.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			opened := time.Now()
			hang := make(chan struct{})
			f.on(api.ActionPing, func(*api.Request) (any, error) {
				if f.connections() == 1 {
					<-hang // it is there, and answers nothing
				}
				return nil, nil
			})
			if err := <-why; !errors.Is(err, boxservice.ErrUnavailable) {
				t.Errorf("it was disconnected for %v", err)
			}
			if d := time.Since(opened); d < 60*time.Second || d > 90*time.Second {
				t.Errorf("it was noticed after %v", d)
			}
			synctest.Wait()
			if s := state(c); s != boxservice.Connected || f.connections() != 2 {
				t.Errorf("it is %s, after %d connections", s, f.connections())
			}
			close(hang)
		})
	})
	t.Run("two-missed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			c := newConnector(t, boxservice.Options{}, f.dial)
			if err := c.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			var n atomic.Int64
			f.on(api.ActionPing, func(*api.Request) (any, error) {
				if n.Add(1)%3 != 0 {
					return nil, errors.New("not now")
				}
				return nil, nil
			})
			time.Sleep(time.Hour)
			if n.Load() < 100 || f.connections() != 1 {
				t.Errorf("%d heartbeats, %d connections; want one", n.Load(), f.connections())
			}
		})
	})
}

// TestLateConnection has an attempt bring its connection after its 30 seconds:
// it is closed, and not taken for the newer one's.
func TestLateConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		release := make(chan struct{})
		var late *pipe
		var n atomic.Int64
		c := newConnector(t, boxservice.Options{}, func(ctx context.Context) (rpc.Conn, error) {
			if n.Add(1) > 1 {
				return f.dial(ctx)
			}
			<-release // whatever ctx says
			var theirs *pipe
			late, theirs = newPipe()
			go func() {
				for {
					if _, err := theirs.Receive(context.Background()); err != nil {
						return
					}
				}
			}()
			return late, nil
		})
		began := time.Now()
		if err := c.Open(t.Context()); !errors.Is(err, boxservice.ErrUnavailable) {
			t.Fatalf("the first attempt: %v", err)
		}
		if d := time.Since(began); d != 30*time.Second {
			t.Errorf("it was given up after %v", d)
		}
		time.Sleep(4 * time.Second)
		if s := state(c); s != boxservice.Connected {
			t.Fatalf("it is %s", s)
		}
		generation := c.Generation()
		close(release)
		synctest.Wait()
		select {
		case <-late.closed:
		default:
			t.Error("the late connection is open")
		}
		if c.Generation() != generation || c.Client().Ping(t.Context()) != nil {
			t.Error("the late connection disturbed the newer one")
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		var told []error
		ended := make(chan struct{})
		c := newConnector(t, boxservice.Options{
			OnConnect: func(ctx context.Context, _ *boxservice.Client) {
				<-ctx.Done() // it ends with the connection
				close(ended)
			},
			OnDisconnect: func(err error) { told = append(told, err) },
		}, f.dial)
		if err := c.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		hang := make(chan struct{})
		defer close(hang)
		f.on(api.ActionExec, func(*api.Request) (any, error) { <-hang; return nil, nil })
		call := make(chan error, 1)
		go func() {
			_, err := c.Client().Exec(context.Background(), boxservice.NewSpec("a", "sleep 1000"))
			call <- err
		}()
		synctest.Wait()
		c.Close()
		c.Close()
		<-ended
		if err := <-call; !errors.Is(err, boxservice.ErrUnavailable) {
			t.Errorf("a call under way: %v", err)
		}
		if s := state(c); s != boxservice.Closed || len(told) != 1 {
			t.Errorf("it is %s, and said so %d times", s, len(told))
		}
		if err := c.Client().Ping(t.Context()); !errors.Is(err, boxservice.ErrUnavailable) {
			t.Errorf("a call after its end: %v", err)
		}
	})
}

func TestDisabled(t *testing.T) {
	c := newConnector(t, boxservice.Options{Disabled: true}, func(context.Context) (rpc.Conn, error) {
		t.Error("it connects")
		return nil, io.EOF
	})
	if err := c.Open(t.Context()); err != nil {
		t.Errorf("it can't be opened: %v", err)
	}
	if s := state(c); s != boxservice.Disabled {
		t.Errorf("it is %s", s)
	}
	if err := c.Client().Ping(t.Context()); !errors.Is(err, boxservice.ErrUnavailable) {
		t.Errorf("a call: %v", err)
	}
}

func TestPlace(t *testing.T) {
	for _, tt := range []struct {
		name  string
		o     boxservice.Options
		ws    bool
		relay string
		fails bool
	}{
		{name: "child", relay: "http://127.0.0.1:5410"},
		{name: "child-elsewhere", o: boxservice.Options{Listen: "127.0.0.1:7000"}, relay: "http://127.0.0.1:7000"},
		{name: "child-everywhere", o: boxservice.Options{Listen: "0.0.0.0:7000"}, relay: "http://127.0.0.1:7000"},
		{name: "child-nowhere", o: boxservice.Options{Listen: "7000"}, fails: true},
		{name: "child-anywhere", o: boxservice.Options{Listen: "127.0.0.1:0"}, fails: true},
		{name: "endpoint", o: boxservice.Options{Endpoint: "ws://pod-x-box:5410"}, ws: true, relay: "http://pod-x-box:5410"},
		{name: "encrypted", o: boxservice.Options{Endpoint: "wss://box.example:443/"}, ws: true, relay: "https://box.example:443"},
		{name: "encrypted-http", o: boxservice.Options{Endpoint: "https://box.example"}, ws: true, relay: "https://box.example:5410"},
		{name: "no-scheme", o: boxservice.Options{Endpoint: " pod-x-box:81 "}, ws: true, relay: "http://pod-x-box:81"},
		{name: "no-port", o: boxservice.Options{Endpoint: "ws://pod"}, ws: true, relay: "http://pod:5410"},
		{name: "v6", o: boxservice.Options{Endpoint: "ws://[::1]:9"}, ws: true, relay: "http://[::1]:9"},
		{name: "docker", o: boxservice.Options{Platform: boxservice.PlatformDocker}, ws: true, relay: "http://langbot_box:5410"},
		{name: "standalone", o: boxservice.Options{Standalone: true}, ws: true, relay: "http://127.0.0.1:5410"},
		{name: "endpoint-before-docker", o: boxservice.Options{Endpoint: "ws://pod", Platform: boxservice.PlatformDocker}, ws: true, relay: "http://pod:5410"},
		{name: "token", o: boxservice.Options{Endpoint: "ws://pod", Token: "0123456789abcdef0123456789abcdef", Instance: "one"}, ws: true, relay: "http://pod:5410"},
		{name: "other-scheme", o: boxservice.Options{Endpoint: "ftp://pod"}, fails: true},
		{name: "path", o: boxservice.Options{Endpoint: "ws://pod/rpc/ws"}, fails: true},
		{name: "user", o: boxservice.Options{Endpoint: "ws://me:secret@pod"}, fails: true},
		{name: "platform", o: boxservice.Options{Platform: "win32"}, fails: true},
		{name: "weak-token", o: boxservice.Options{Endpoint: "ws://pod", Token: "short"}, fails: true},
		{name: "blank-token", o: boxservice.Options{Endpoint: "ws://pod", Token: "0123456789 abcdef0123456789abcdef"}, fails: true},
		{name: "instance", o: boxservice.Options{Endpoint: "ws://pod", Instance: "a b"}, fails: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := boxservice.NewConnector(tt.o)
			if tt.fails {
				if boxservice.Class(err) != api.ClassValidation {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.UsesWebSocket() != tt.ws || c.RelayURL() != tt.relay {
				t.Errorf("got WebSocket %v and %s, want %v and %s", c.UsesWebSocket(), c.RelayURL(), tt.ws, tt.relay)
			}
		})
	}
}
