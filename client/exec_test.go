package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
)

var exited = &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED}

// setup starts a daemon with one sandbox and returns a client of it.
func setup(t *testing.T, programs map[string]servertest.Program) (*servertest.Daemon, *client.Client, string) {
	t.Helper()
	g := servertest.NewGuest()
	g.Programs = programs
	d := servertest.New(t, g, server.Options{})
	c, err := client.New(client.Options{Socket: d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	sb, err := c.Create(t.Context(), api.CreateRequest{Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	return d, c, sb.ID
}

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func command(argv ...string) *guestv1.Command { return &guestv1.Command{Argv: argv} }

func TestExec(t *testing.T) {
	_, c, id := setup(t, map[string]servertest.Program{
		"greet": func(_ context.Context, p *servertest.Process) *guestv1.Exit {
			p.Print("hello %s\n", p.Argv[1])
			p.PrintErr("and to stderr\n")
			return &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED, Code: 7}
		},
	})
	var out, errOut buffer
	exit, err := c.Exec(t.Context(), "web", client.ExecOptions{Command: command("greet", "you"), Stdout: &out, Stderr: &errOut})
	if err != nil || exit.GetCode() != 7 {
		t.Fatalf("Exec = %v, %v, want code 7", exit, err)
	}
	if got, want := out.String()+errOut.String(), "hello you\nand to stderr\n"; got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
	_, err = c.Exec(t.Context(), id, client.ExecOptions{Command: command("none")})
	if client.KindOf(err) != client.Invalid || !strings.Contains(err.Error(), `no program "none"`) {
		t.Errorf("Exec of nothing = %v, want the guest's own words", err)
	}
	_, err = c.Exec(t.Context(), "nope", client.ExecOptions{Command: command("greet")})
	if client.KindOf(err) != client.NotFound {
		t.Errorf("Exec nowhere = %v, want not found", err)
	}
	if _, err := c.Exec(t.Context(), id, client.ExecOptions{}); client.KindOf(err) != client.Invalid {
		t.Errorf("Exec without a command = %v, want invalid", err)
	}
}

// The daemon is killed again and again in the middle of a command that writes
// and reads: everything arrives once, in order, on both ends.
func TestExecOutlivesTheDaemon(t *testing.T) {
	const lines = 40
	turn := make(chan struct{})
	var got buffer
	d, c, id := setup(t, map[string]servertest.Program{
		"count": func(ctx context.Context, p *servertest.Process) *guestv1.Exit {
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(&got, p.Stdin)
			}()
			for i := range lines {
				select {
				case <-turn:
				case <-ctx.Done():
					return exited
				}
				p.Print("%d\n", i)
			}
			<-read
			return exited
		},
	})
	var out buffer
	in, feed := io.Pipe()
	type result struct {
		exit *guestv1.Exit
		err  error
	}
	done := make(chan result, 1)
	go func() {
		exit, err := c.Exec(t.Context(), id, client.ExecOptions{ID: "count-1", Command: command("count"), Stdin: in, Stdout: &out})
		done <- result{exit, err}
	}()
	want := ""
	for i := range lines {
		turn <- struct{}{}
		line := fmt.Sprintf("%d\n", i)
		if _, err := io.WriteString(feed, line); err != nil {
			t.Fatal(err)
		}
		want += line
		if i%8 == 3 {
			servertest.Wait(t, "output", func() bool { return out.String() == want })
		}
		if i%8 == 3 || i%8 == 6 {
			d.Restart()
		}
	}
	_ = feed.Close()
	res := <-done
	if res.err != nil || res.exit.GetReason() != guestv1.Reason_REASON_EXITED {
		t.Fatalf("Exec = %v, %v", res.exit, res.err)
	}
	if out.String() != want {
		t.Errorf("stdout = %q, want %q", out.String(), want)
	}
	if got.String() != want {
		t.Errorf("the command read %q, want %q", got.String(), want)
	}
	if n := d.Guest.Process("count-1").Starts(); n != 1 {
		t.Errorf("Start was called %d times, want 1", n)
	}
}

func TestExecRedial(t *testing.T) {
	gate := make(chan struct{})
	g := servertest.NewGuest()
	g.Programs["wait"] = func(_ context.Context, p *servertest.Process) *guestv1.Exit {
		p.Print("before ")
		<-gate
		p.Print("after")
		return exited
	}
	d := servertest.New(t, g, server.Options{})
	var calls int
	c, err := client.New(client.Options{Socket: d.Socket, Redial: func(context.Context) error {
		if calls++; calls == 1 {
			return errors.New("not yet")
		}
		if calls == 2 {
			d.Start()
			close(gate)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := c.Create(t.Context(), api.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var out buffer
	started := make(chan struct{})
	go func() {
		servertest.Wait(t, "output", func() bool { return out.String() == "before " })
		d.Kill()
		close(started)
	}()
	exit, err := c.Exec(t.Context(), sb.ID, client.ExecOptions{Command: command("wait"), Stdout: &out})
	<-started
	if err != nil || exit.GetReason() != guestv1.Reason_REASON_EXITED || out.String() != "before after" {
		t.Errorf("Exec = %v, %v, stdout %q", exit, err, out.String())
	}
}

// A sandbox that ends takes the command along, and says by what.
func TestExecWhenTheSandboxEnds(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, d *servertest.Daemon, c *client.Client, id string)
		want guestv1.Reason
		text string
	}{
		{"out-of-memory", func(_ *testing.T, d *servertest.Daemon, _ *client.Client, id string) {
			d.Wall.Die(id, sandbox.EndOutOfMemory)
		}, guestv1.Reason_REASON_OUT_OF_MEMORY, "out of memory"},
		{"stopped", func(t *testing.T, _ *servertest.Daemon, c *client.Client, id string) {
			if _, err := c.Stop(t.Context(), id); err != nil {
				t.Error(err)
			}
		}, guestv1.Reason_REASON_KILLED, "stopped"},
		{"removed", func(t *testing.T, _ *servertest.Daemon, c *client.Client, id string) {
			if err := c.Remove(t.Context(), id, true); err != nil {
				t.Error(err)
			}
		}, guestv1.Reason_REASON_KILLED, "removed"},
		{"restarted", func(t *testing.T, _ *servertest.Daemon, c *client.Client, id string) {
			if _, err := c.Stop(t.Context(), id); err != nil {
				t.Error(err)
			}
			if _, err := c.Start(t.Context(), id); err != nil {
				t.Error(err)
			}
		}, guestv1.Reason_REASON_KILLED, "restarted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, c, id := setup(t, map[string]servertest.Program{
				"wait": func(ctx context.Context, p *servertest.Process) *guestv1.Exit {
					p.Print("here")
					<-ctx.Done()
					return nil
				},
			})
			var out buffer
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				servertest.Wait(t, "output", func() bool { return out.String() == "here" })
				tt.end(t, d, c, id)
				d.Guest.Die()
			}()
			exit, err := c.Exec(t.Context(), id, client.ExecOptions{Command: command("wait"), Stdout: &out})
			<-ended
			if err != nil {
				t.Fatal(err)
			}
			if exit.GetReason() != tt.want || exit.GetCode() != 137 || !strings.Contains(exit.GetError(), tt.text) {
				t.Errorf("exit = %v, want %v with %q", exit, tt.want, tt.text)
			}
		})
	}
}

// A command that is killed before its sandbox is known to have gone says why all the
// same; one that is killed in a sandbox that goes on was killed.
func TestExecKilledFirst(t *testing.T) {
	for name, want := range map[string]guestv1.Reason{
		"by-its-sandbox": guestv1.Reason_REASON_OUT_OF_MEMORY, "by-itself": guestv1.Reason_REASON_SIGNALLED,
	} {
		t.Run(name, func(t *testing.T) {
			var d *servertest.Daemon
			var c *client.Client
			var id string
			d, c, id = setup(t, map[string]servertest.Program{
				"hog": func(context.Context, *servertest.Process) *guestv1.Exit {
					if name == "by-its-sandbox" {
						time.AfterFunc(100*time.Millisecond, func() { d.Wall.Die(id, sandbox.EndOutOfMemory) })
					}
					return &guestv1.Exit{Reason: guestv1.Reason_REASON_SIGNALLED, Code: 137, Signal: 9}
				},
			})
			exit, err := c.Exec(t.Context(), id, client.ExecOptions{Command: command("hog")})
			if err != nil || exit.GetReason() != want || exit.GetCode() != 137 {
				t.Errorf("exit = %v, %v, want %v", exit, err, want)
			}
		})
	}
}

// The next command after an out-of-memory starts the sandbox again and says
// what was lost.
func TestExecNotice(t *testing.T) {
	d, c, id := setup(t, map[string]servertest.Program{
		"true": func(context.Context, *servertest.Process) *guestv1.Exit { return exited },
	})
	d.Wall.Die(id, sandbox.EndOutOfMemory)
	servertest.Wait(t, "the end of the sandbox", func() bool {
		sb, err := c.Get(t.Context(), id)
		return err == nil && sb.State == "stopped"
	})
	var notices []string
	exit, err := c.Exec(t.Context(), id, client.ExecOptions{Command: command("true"), Notice: func(s string) { notices = append(notices, s) }})
	if err != nil || exit.GetCode() != 0 {
		t.Fatalf("Exec = %v, %v", exit, err)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "out of memory") || !strings.Contains(notices[0], "processes") {
		t.Errorf("notices = %q, want one on memory and lost processes", notices)
	}
}

func TestExecSignalsAndSizes(t *testing.T) {
	_, c, id := setup(t, map[string]servertest.Program{
		"term": func(ctx context.Context, p *servertest.Process) *guestv1.Exit {
			size := <-p.Resized
			sig := <-p.Signals
			p.Print("%dx%d %d", size.GetCols(), size.GetRows(), sig)
			return exited
		},
	})
	sizes, signals := make(chan *guestv1.Terminal, 1), make(chan int32, 1)
	sizes <- &guestv1.Terminal{Cols: 80, Rows: 25}
	signals <- 15
	var out buffer
	if _, err := c.Exec(t.Context(), id, client.ExecOptions{Command: command("term"), Stdout: &out, Resize: sizes, Signals: signals}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "80x25 15"; got != want {
		t.Errorf("output = %q, want %q", got, want)
	}
}

type failing struct{}

var errFull = errors.New("the disk is full")

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestExecEndsEarly(t *testing.T) {
	_, c, id := setup(t, map[string]servertest.Program{
		"wait": func(ctx context.Context, p *servertest.Process) *guestv1.Exit {
			p.Print("x")
			<-ctx.Done()
			return nil
		},
	})
	if _, err := c.Exec(t.Context(), id, client.ExecOptions{Command: command("wait"), Stdout: failing{}}); !errors.Is(err, errFull) {
		t.Errorf("Exec with a writer that fails = %v, want its error", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	var out buffer
	go func() {
		servertest.Wait(t, "output", func() bool { return out.String() == "x" })
		cancel(cause)
	}()
	if _, err := c.Exec(ctx, id, client.ExecOptions{Command: command("wait"), Stdout: &out}); !errors.Is(err, cause) {
		t.Errorf("Exec whose context ended = %v, want the cause", err)
	}
}

func TestFollow(t *testing.T) {
	_, c, id := setup(t, map[string]servertest.Program{
		"say": func(_ context.Context, p *servertest.Process) *guestv1.Exit {
			p.Print("said")
			return exited
		},
	})
	if _, err := c.Exec(t.Context(), id, client.ExecOptions{ID: "say-1", Command: command("say")}); err != nil {
		t.Fatal(err)
	}
	var out buffer
	exit, err := c.Follow(t.Context(), id, "say-1", client.ExecOptions{Stdout: &out})
	if err != nil || exit.GetReason() != guestv1.Reason_REASON_EXITED || out.String() != "said" {
		t.Errorf("Follow = %v, %v, stdout %q", exit, err, out.String())
	}
	if _, err := c.Follow(t.Context(), id, "none", client.ExecOptions{}); client.KindOf(err) != client.NotFound {
		t.Errorf("Follow of nothing = %v, want not found", err)
	}
}

func TestExecManyAtOnce(t *testing.T) {
	_, c, id := setup(t, map[string]servertest.Program{
		"echo": func(_ context.Context, p *servertest.Process) *guestv1.Exit {
			b, _ := io.ReadAll(p.Stdin)
			p.Print("%s", b)
			return exited
		},
	})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			want := strings.Repeat(fmt.Sprintf("%03d ", i), 5000)
			var out buffer
			_, err := c.Exec(t.Context(), id, client.ExecOptions{Command: command("echo"), Stdin: strings.NewReader(want), Stdout: &out})
			if err != nil || out.String() != want {
				t.Errorf("exec %d: %v, %d bytes, want %d", i, err, len(out.String()), len(want))
			}
		})
	}
	wg.Wait()
}
