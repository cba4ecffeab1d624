package pod_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/client/pod"
)

// pair is a connection of the kernel's, with its two ends.
func pair(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(shortDir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func event(t *testing.T, name string, data any) pod.Event {
	t.Helper()
	e, err := pod.NewEvent(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestReadsLines: blank ones are skipped, bad and long ones passed over, and what follows is read.
func TestReadsLines(t *testing.T) {
	ours, theirs := pair(t)
	const max = 64
	text := "\n  \n" +
		`{"event":"status","data":"idle"}` + "\n" +
		"no json\n" +
		`{"data":1}` + "\n" +
		strings.Repeat("x", 100_000) + "\n" +
		`{"event":"never_heard_of","data":{"a":1},"more":2}` + "\r\n" +
		`{"event":"half"`
	go func() {
		_, _ = io.WriteString(theirs, text)
		theirs.Close()
	}()
	c := pod.NewConn(ours, pod.Options{MaxLine: max})
	for i, want := range []struct {
		name string
		long bool
		data string
	}{{name: "status", data: `"idle"`}, {}, {}, {long: true}, {name: "never_heard_of", data: `{"a":1}`}} {
		e, err := c.Event()
		line, over := errors.AsType[*pod.LineError](err)
		if over != (want.name == "") || over && line.TooLong != want.long || e.Name != want.name || string(e.Data) != want.data {
			t.Fatalf("%d: %+v, %v; want %+v", i, e, err, want)
		}
	}
	if e, err := c.Event(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a line that was cut off: %+v, %v", e, err)
	}
}

func TestVersion(t *testing.T) {
	for _, tt := range []struct {
		version int
		ok      bool
	}{{1, true}, {2, false}, {0, false}} {
		ours, theirs := pair(t)
		if err := pod.NewConn(theirs, pod.Options{}).Tell(event(t, pod.EventHello, pod.Hello{Version: tt.version})); err != nil {
			t.Fatal(err)
		}
		_, err := pod.NewConn(ours, pod.Options{}).Event()
		if v, other := errors.AsType[*pod.VersionError](err); other == tt.ok || other && v.Version != tt.version {
			t.Errorf("version %d: %v", tt.version, err)
		}
	}
	if got := (&pod.VersionError{Version: 7}).Error(); got != "the pod speaks version 7 of the protocol, and this program version 1" {
		t.Error(got)
	}
}

// TestDeliver: what a peer may say to a task, and what becomes of it.
func TestDeliver(t *testing.T) {
	accepted := func(name string, data any) func(*testing.T, *pod.Conn) {
		return func(t *testing.T, c *pod.Conn) { _ = c.Tell(event(t, name, data)) }
	}
	for _, tt := range []struct {
		name  string
		first func(*testing.T, *pod.Conn) // before it reads
		then  func(*testing.T, *pod.Conn) // after it
		want  error
	}{
		{name: "user-message", then: accepted(pod.EventUserMessage, pod.UserMessage{Segments: []pod.Segment{pod.Text("accepted")}})},
		{name: "turn-start", then: accepted(pod.EventTurnStart, pod.Turn{Turn: 1})},
		{name: "invoke-start", then: accepted(pod.EventInvokeStart, pod.InvokeStart{Kind: pod.InvokeUserSend})},
		{name: "another-invoke", then: accepted(pod.EventInvokeStart, pod.InvokeStart{Kind: "notify"}), want: pod.ErrClosed},
		{name: "refused", then: accepted(pod.EventError, pod.Error{Code: pod.CodeAlreadyRunning, Message: "busy"}), want: &pod.Error{Code: pod.CodeAlreadyRunning, Message: "busy"}},
		{name: "refused-without-words", then: accepted(pod.EventError, 7), want: &pod.Error{Code: pod.CodeInternal, Message: "it said no more"}},
		{name: "silent", then: func(*testing.T, *pod.Conn) {}, want: pod.ErrClosed},
		{name: "other-version", first: accepted(pod.EventHello, pod.Hello{Version: 9}), want: &pod.VersionError{Version: 9}},
		{name: "snapshot-first", first: accepted(pod.EventSnapshot, pod.Snapshot{Status: pod.StatusIdle}), then: accepted(pod.EventTurnStart, nil)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := pair(t)
			served := make(chan struct{})
			go func() {
				defer close(served)
				defer theirs.Close()
				c := pod.NewConn(theirs, pod.Options{})
				if tt.first != nil {
					tt.first(t, c)
				}
				m, err := c.Method()
				if err != nil || tt.then == nil {
					return
				}
				args, err := m.Arguments()
				if d := cmp.Diff(&pod.Run{Input: []pod.Segment{pod.Text("hello")}}, args); d != "" || err != nil {
					t.Errorf("%v (-want +got)\n%s", err, d)
				}
				tt.then(t, c)
			}()
			err := pod.Deliver(t.Context(), pod.NewConn(ours, pod.Options{}), []pod.Segment{pod.Text("hello")})
			<-served
			if (err == nil) != (tt.want == nil) || err != nil && err.Error() != tt.want.Error() {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// TestSnapshotOf64MiB: a pod that writes it all before it reads, and a task larger than the
// kernel's buffers: neither waits for the other, and little of it is kept.
func TestSnapshotOf64MiB(t *testing.T) {
	ours, theirs := pair(t)
	task := strings.Repeat("task ", 1<<18)
	served := make(chan error, 1)
	go func() {
		defer theirs.Close()
		if _, err := theirs.Write([]byte(`{"event":"snapshot","data":{"entries":["`)); err != nil {
			served <- err
			return
		}
		for range 64 {
			if _, err := theirs.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
				served <- err
				return
			}
		}
		if _, err := theirs.Write([]byte("\"]}}\n")); err != nil {
			served <- err
			return
		}
		c := pod.NewConn(theirs, pod.Options{})
		m, err := c.Method()
		if err == nil {
			err = c.Tell(event(t, pod.EventUserMessage, nil))
		}
		if err == nil && !bytes.Contains(m.Params, []byte(task)) {
			err = errors.New("the task was cut")
		}
		served <- err
	}()
	if err := pod.Deliver(t.Context(), pod.NewConn(ours, pod.Options{MaxLine: 1 << 10}), []pod.Segment{pod.Text(task)}); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("the pod: %v", err)
	}
}

// TestYesBeforeItHasRead: a pod that says yes at once, and goes on writing while it reads.
func TestYesBeforeItHasRead(t *testing.T) {
	ours, theirs := pair(t)
	served := make(chan error, 1)
	go func() {
		c := pod.NewConn(theirs, pod.Options{})
		var err error
		for range 20_000 {
			if err == nil {
				err = c.Tell(event(t, pod.EventTurnStart, nil))
			}
		}
		if err == nil {
			_, err = c.Method()
		}
		served <- err
	}()
	if err := pod.Deliver(t.Context(), pod.NewConn(ours, pod.Options{}), []pod.Segment{pod.Text(strings.Repeat("x", 1<<20))}); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("the pod: %v", err)
	}
}

// TestNeverReads: a pod that neither reads nor speaks ends with the time of who waits.
func TestNeverReads(t *testing.T) {
	for _, size := range []int{1, 4 << 20} {
		ours, _ := pair(t)
		late := errors.New("the pod did not answer")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- pod.Deliver(ctx, pod.NewConn(ours, pod.Options{}), []pod.Segment{pod.Text(strings.Repeat("x", size))})
		}()
		cancel(late)
		if err := <-done; !errors.Is(err, late) {
			t.Errorf("%d bytes: %v, want %v", size, err, late)
		}
	}
}

func TestAsk(t *testing.T) {
	ours, theirs := pair(t)
	got := make(chan pod.Method, 1)
	go func() {
		c := pod.NewConn(theirs, pod.Options{})
		for range 1000 {
			_ = c.Tell(event(t, pod.EventStatus, pod.StatusIdle))
		}
		m, _ := c.Method()
		got <- m
	}()
	if err := pod.Ask(t.Context(), pod.NewConn(ours, pod.Options{}), pod.Method{Name: pod.MethodShutdown}); err != nil {
		t.Error(err)
	}
	if m := <-got; m.Name != pod.MethodShutdown {
		t.Errorf("%+v", m)
	}
}

// TestServe: a probe, a line that is no method and a refusal end nothing.
func TestServe(t *testing.T) {
	path := filepath.Join(shortDir(t), "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- pod.Serve(ctx, l, pod.HandlerFunc(func(_ context.Context, c *pod.Conn, m pod.Method) error {
			args, err := m.Arguments()
			if err != nil {
				return err
			}
			if run, ok := args.(*pod.Run); ok {
				return c.Tell(event(t, pod.EventUserMessage, pod.UserMessage{Segments: run.Input}))
			}
			return &pod.Error{Code: pod.CodeNotRunning, Message: "idle"}
		}), pod.Options{MaxLine: 1000})
	}()
	for range 3 { // probes
		c, err := pod.Dial(t.Context(), path, pod.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	raw, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(raw, "\nhello\n"+`{"method":"fly"}`+"\n"+strings.Repeat("y", 5000)+"\n"+`{"method":"cancel"}`+"\n"+`{"method":"run","params":{"input":[{"kind":"text","content":"hi"}]}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	c := pod.NewConn(raw, pod.Options{})
	for _, code := range []string{pod.CodeInvalidRequest, pod.CodeInvalidRequest, pod.CodeInvalidRequest, pod.CodeNotRunning} {
		e, err := c.Event()
		var said pod.Error
		if err == nil {
			err = e.Into(&said)
		}
		if err != nil || said.Code != code {
			t.Fatalf("%+v, %v; want %s", e, err, code)
		}
	}
	e, err := c.Event()
	var heard pod.UserMessage
	if err := errors.Join(err, e.Into(&heard)); err != nil || len(heard.Segments) != 1 || heard.Segments[0] != pod.Text("hi") {
		t.Errorf("%+v, %v", e, err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := c.Event(); err == nil {
		t.Error("the connection outlived the server")
	}
	if _, err := pod.Dial(t.Context(), path, pod.Options{}); pod.LivenessOf(err) != pod.Gone {
		t.Errorf("after the end: %v", err)
	}
}

// FuzzLines: whatever comes, reading ends, keeps no more than it may, and what was read can be
// written and read again.
func FuzzLines(f *testing.F) {
	f.Add([]byte(`{"event":"user_message","data":{"segments":[{"kind":"text","content":"x"}]}}` + "\n"))
	f.Add([]byte(`{"method":"run","params":{"input":[{"kind":"paste","id":"1","chars":1,"lines":1,"content":"x"},{"kind":"?"}]}}` + "\n"))
	f.Add([]byte(`{"method":"rewind_to","params":{"target":{},"expected_head_entries":1}}` + "\n" + `{"event":"hello","data":{"version":2}}` + "\n"))
	f.Add([]byte("\n\n{}\n" + strings.Repeat("[", 3000) + "\n\xff\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		const max = 2048
		read := func(next func(*pod.Conn) error) {
			c := pod.NewConn(&script{Reader: bytes.NewReader(text)}, pod.Options{MaxLine: max})
			for range len(text) + 2 {
				err := next(c)
				if _, over := errors.AsType[*pod.LineError](err); err != nil && !over {
					if _, other := errors.AsType[*pod.VersionError](err); !other {
						return
					}
				}
			}
			t.Error("reading does not end")
		}
		read(func(c *pod.Conn) error {
			e, err := c.Event()
			if len(e.Data) > max {
				t.Errorf("%d bytes were kept", len(e.Data))
			}
			return err
		})
		read(func(c *pod.Conn) error {
			m, err := c.Method()
			if err != nil {
				return err
			}
			args, err := m.Arguments()
			if err != nil {
				if _, ok := errors.AsType[*pod.Error](err); !ok {
					t.Errorf("an error without a code: %v", err)
				}
				return nil
			}
			again, err := pod.NewMethod(m.Name, args)
			if err != nil {
				t.Fatalf("%+v can't be written: %v", args, err)
			}
			twice, err := again.Arguments()
			if err != nil || !json.Valid(again.Params) && again.Params != nil {
				t.Fatalf("%s: %v", again.Params, err)
			}
			if d := cmp.Diff(args, twice); d != "" && m.Name != pod.MethodRewindTo && m.Name != pod.MethodPodEvent {
				t.Errorf("(-first +again)\n%s", d)
			}
			return nil
		})
	})
}

// script is a connection from which there is only something to read.
type script struct {
	net.Conn
	io.Reader
}

func (t *script) Read(p []byte) (int, error) { return t.Reader.Read(p) }
