package backendtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem/filesystemconnect"
	"github.com/carboy-sandbox/carboy/api/envd/process/processconnect"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/api/guest/v1/guestv1connect"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// instance is a started sandbox behind the wall under test, and the clients of
// its agent.
type instance struct {
	w        *world
	sb       *sandbox.Sandbox
	id       string
	enforced []sandbox.Enforcement
	http     *http.Client // HTTP/1.1
	exec     guestv1connect.ExecServiceClient
	envd     processconnect.ProcessClient
	files    filesystemconnect.FilesystemClient
}

func newInstance(t *testing.T, w *world, sb *sandbox.Sandbox, enforced []sandbox.Enforcement) *instance {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return w.Dial(ctx, sb.ID, sandbox.GuestPort)
	}
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	one := &http.Client{Transport: &http.Transport{DialContext: dial}}
	two := &http.Client{Transport: &http.Transport{DialContext: dial, Protocols: &h2}}
	t.Cleanup(one.CloseIdleConnections)
	t.Cleanup(two.CloseIdleConnections)
	const base = "http://guest"
	return &instance{
		w: w, sb: sb, id: sb.ID, enforced: enforced, http: one,
		exec:  guestv1connect.NewExecServiceClient(two, base),
		envd:  processconnect.NewProcessClient(two, base),
		files: filesystemconnect.NewFilesystemClient(two, base),
	}
}

// commandLimit ends a command that hangs, in milliseconds.
var commandLimit = uint64(patience.For(time.Minute).Milliseconds())

// command is a script of the shell, run by user; "" is the sandbox's own.
func command(user, script string) *guestv1.Command {
	return &guestv1.Command{Argv: []string{"sh", "-c", script}, User: user}
}

// running is a command that somebody follows.
type running struct {
	t      *testing.T
	b      *instance
	id     string
	stream *connect.ServerStreamForClient[guestv1.Event]
	out    bytes.Buffer
	errs   bytes.Buffer
	seen   int // of out, by awaits
	input  uint64
	exit   *guestv1.Exit
}

// ended is how a command went.
type ended struct {
	stdout, stderr string
	exit           *guestv1.Exit // nil: the instance ended first
}

// launch starts a command under an id of its own, and follows it.
func (b *instance) launch(t *testing.T, cmd *guestv1.Command) (*running, error) {
	t.Helper()
	return b.launchAs(t, "c-"+strings.ToLower(rand.Text()[:20]), cmd)
}

func (b *instance) launchAs(t *testing.T, id string, cmd *guestv1.Command) (*running, error) {
	t.Helper()
	if cmd.TimeoutMs == 0 {
		cmd.TimeoutMs = commandLimit
	}
	stream, err := b.exec.Start(t.Context(), connect.NewRequest(&guestv1.StartRequest{Id: id, Command: cmd}))
	if err != nil {
		return nil, err
	}
	r := &running{t: t, b: b, id: id, stream: stream}
	t.Cleanup(func() { _ = stream.Close() })
	if !r.next() && stream.Err() != nil {
		return nil, stream.Err()
	}
	return r, nil
}

// begin is launch for a command that is known to be accepted.
func (b *instance) begin(t *testing.T, cmd *guestv1.Command) *running {
	t.Helper()
	r, err := b.launch(t, cmd)
	if err != nil {
		t.Fatalf("start %q: %v", cmd.GetArgv(), err)
	}
	return r
}

// next reads one event.
func (r *running) next() bool {
	if r.exit != nil || !r.stream.Receive() {
		return false
	}
	m := r.stream.Msg()
	if o := m.GetOutput(); o.GetStream() == guestv1.Stream_STREAM_STDERR {
		r.errs.Write(o.GetData())
	} else {
		r.out.Write(o.GetData())
	}
	r.exit = m.GetExit()
	return r.exit == nil
}

// awaits reads until want was printed, after what was awaited before.
func (r *running) awaits(want string) {
	r.t.Helper()
	for {
		if i := bytes.Index(r.out.Bytes()[r.seen:], []byte(want)); i >= 0 {
			r.seen += i + len(want)
			return
		}
		if !r.next() {
			r.t.Fatalf("ended (%v, %v) before it printed %q:\n%s\n%s", r.exit, r.stream.Err(), want, r.out.String(), r.errs.String())
		}
	}
}

// write gives input to the command.
func (r *running) write(text string, eof bool) {
	r.t.Helper()
	res, err := r.b.exec.WriteInput(r.t.Context(), connect.NewRequest(&guestv1.WriteInputRequest{
		Id: r.id, Offset: r.input, Data: []byte(text), Eof: eof,
	}))
	if err != nil {
		r.t.Fatalf("write input: %v", err)
	}
	r.input = res.Msg.GetAcked()
}

func (r *running) signal(number int32, all bool) {
	r.t.Helper()
	_, err := r.b.exec.Signal(r.t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: r.id, Signal: number, All: all, By: "tester"}))
	if err != nil {
		r.t.Fatalf("signal %d: %v", number, err)
	}
}

// end follows the command to its end.
func (r *running) end() ended {
	r.t.Helper()
	for r.next() {
	}
	if r.exit == nil && r.stream.Err() == nil {
		r.t.Errorf("the stream of a command ended without its exit")
	}
	return ended{stdout: r.out.String(), stderr: r.errs.String(), exit: r.exit}
}

// run runs a command to its end.
func (b *instance) run(t *testing.T, cmd *guestv1.Command) ended {
	t.Helper()
	return b.begin(t, cmd).end()
}

// executed is a script that waits for a command line: what a shell starts in
// the background is a shell until it has executed it.
func executed(line string) string {
	return "until pgrep -f '^" + line + "' >/dev/null; do :; done"
}

// sh runs a script that must succeed, and returns its output.
func (b *instance) sh(t *testing.T, user, script string) string {
	t.Helper()
	e := b.run(t, command(user, script))
	if e.exit.GetCode() != 0 || e.exit == nil {
		t.Fatalf("%s: %v\nstdout: %s\nstderr: %s", script, e.exit, e.stdout, e.stderr)
	}
	return e.stdout
}

// says runs a script and wants its whole output.
func (b *instance) says(t *testing.T, script, want string) {
	t.Helper()
	if got := b.sh(t, "", script); got != want {
		t.Errorf("%s: printed %q, want %q", script, got, want)
	}
}

// users are whom probes run as.
func (s *suite) users() []string {
	if s.Root {
		return []string{"user", "root"}
	}
	return []string{"user"}
}

func wantCode(t *testing.T, what string, err error, want connect.Code) {
	t.Helper()
	if err == nil || connect.CodeOf(err) != want {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}
