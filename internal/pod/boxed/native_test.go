package boxed_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/boxed"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// fakeSandboxes has one sandbox, which runs, and in which says answers at any socket.
type fakeSandboxes struct {
	boxed.Sandboxes
	says func(w io.Writer) error
}

func (f *fakeSandboxes) Get(_ context.Context, _ sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	return &sandbox.Sandbox{ID: ref, State: sandbox.StateRunning}, nil
}

func (f *fakeSandboxes) Dial(context.Context, sandbox.Caller, string, int) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
			return
		}
		if _, err := io.WriteString(far, "HTTP/1.1 200 OK\r\n\r\n"); err == nil && f.says(far) == nil {
			_, _ = io.Copy(io.Discard, far)
		}
	}()
	return near, nil
}

// TestWatch: of a pod that speaks the protocol itself its parent hears how turns ended, no more than a few a second, and no longer than a
// line; what the pod says of others, or in no language, is nobody's concern.
func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		want       []string
		doing      string
	}{
		{"snapshot", `{"event":"snapshot","data":{"entries":[],"status":"running"}}`, nil, "running"},
		{"turn", `{"event":"turn_start","data":{"turn":1}}` + "\n" + `{"event":"run_end","data":{"result":"finished"}}`, []string{"Pod `native` finished a turn."}, "idle"},
		{"error", `{"event":"error","data":{"code":"internal","message":"no model"}}`, []string{"Pod `native` reported an error: no model"}, ""},
		{"not this turn's", `{"event":"error","data":{"code":"already_running","message":"x"}}`, nil, ""},
		{"no status", `{"event":"status","data":{"status":"owned by root"}}`, nil, ""},
		{"a sibling's", `{"event":"pod_event","data":{"kind":"shut_down","pod_name":"other"}}` + "\n" + `{"method":"pod_event","params":{"kind":"turn_ended","pod_name":"other"}}`, nil, ""},
		{"no language", "\x00\xff\n{}\n[]\nnull\n" + strings.Repeat("x", 1<<20) + "\n" + `{"event":"status","data":{"status":"idle"}}`, nil, "idle"},
		{"long", `{"event":"error","data":{"code":"internal","message":"` + strings.Repeat("m", 10_000) + `"}}`, []string{"Pod `native` reported an error: " + strings.Repeat("m", 400)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			watch(t, func(w io.Writer) error {
				_, err := io.WriteString(w, tt.says+"\n")
				return err
			}, func(b *boxed.Backend, p record.Pod, told func() []string) {
				time.Sleep(time.Second)
				if got := told(); fmt.Sprint(got) != fmt.Sprint(tt.want) || b.Doing(p) != tt.doing {
					t.Errorf("the parent was told %q of a pod that is %q", got, b.Doing(p))
				}
			})
		})
	}
	t.Run("flood", func(t *testing.T) {
		watch(t, func(w io.Writer) error {
			for {
				if _, err := io.WriteString(w, `{"event":"run_end","data":{"result":"finished"}}`+"\n"); err != nil {
					return err
				}
			}
		}, func(_ *boxed.Backend, _ record.Pod, told func() []string) {
			time.Sleep(10 * time.Second)
			if n := len(told()); n < 50 || n > 80 {
				t.Errorf("its parent was told %d times in 10 seconds", n)
			}
		})
	})
}

// watch has a backend watch a pod in which says answers, and calls f meanwhile.
func watch(t *testing.T, says func(w io.Writer) error, f func(b *boxed.Backend, p record.Pod, told func() []string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := record.Pod{Name: "native", Token: "t", Ref: "sbx", Program: record.Program{Native: true, Command: []string{"x"}}}
		var mu sync.Mutex
		var heard []string
		b := boxed.New(boxed.Options{
			Sandboxes: &fakeSandboxes{says: says},
			Find:      func(string) (record.Pod, bool) { return p, true },
			Event: func(_ record.Pod, ev wire.PodEvent) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, ev.Text())
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Watch(ctx, p)
		}()
		f(b, p, func() []string {
			mu.Lock()
			defer mu.Unlock()
			return append([]string(nil), heard...)
		})
		cancel()
		<-done
	})
}
