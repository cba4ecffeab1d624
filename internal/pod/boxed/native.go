package boxed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/pod/actor"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// EnvSocket names the path at which a command that speaks the protocol itself has to listen.
const EnvSocket = "CARBOY_POD_SOCKET"

const (
	maxTail  = 4 << 10         // bytes of a command's errors that are shown
	tailTime = 2 * time.Second // to ask for them
)

// launch starts the program of a pod that speaks the protocol itself. Nobody reads what it prints: the newest of it is kept.
func (b *Backend) launch(ctx context.Context, p record.Pod, id string) error {
	g := b.agent(id)
	defer g.Close()
	exit, err := g.Launch(ctx, fmt.Sprintf("pod%s-%x", p.Token, b.o.Now().UnixNano()), &guestv1.Command{
		Argv: p.Program.Command, Cwd: p.Program.Cwd, Tag: actor.Tag, Env: map[string]string{EnvSocket: record.NativeSocket},
	})
	switch {
	case err != nil:
		return fmt.Errorf("start the pod's command: %w", err)
	case exit != nil:
		return sandbox.Errorf(sandbox.Invalid, "the pod's command can't be started: %.400q", exit.GetError())
	}
	return nil
}

const (
	readyTime  = 15 * time.Second
	readyAgain = 50 * time.Millisecond // between two attempts at a socket that is about to be there
)

// Ready has the program of a pod that speaks the protocol itself listen: where its sandbox was stopped that is started, and where the
// program has ended it is started again, which is reported: what it said begins anew. Of several callers at once one does so.
func (b *Backend) Ready(ctx context.Context, p record.Pod) (started bool, err error) {
	c, err := b.Dial(ctx, p)
	if err == nil {
		return false, c.Close()
	}
	if wire.LivenessOf(err) == wire.Gone {
		return false, err
	}
	done := b.starts.DoChan(p.Token, func() (any, error) {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), readyTime, notListening(p))
		defer cancel()
		return nil, b.begin(ctx, p)
	})
	select {
	case r := <-done:
		return r.Err == nil, r.Err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// begin starts what does not run of a pod, and waits until it listens.
func (b *Backend) begin(ctx context.Context, p record.Pod) error {
	sb, err := b.Sandbox(ctx, p)
	if err == nil && sb.State != sandbox.StateRunning {
		_, err = b.o.Sandboxes.Start(ctx, b.c, sb.ID)
	}
	if err != nil {
		return err
	}
	g := b.agent(sb.ID)
	defer g.Close()
	runs, err := g.Tagged(ctx, actor.Tag)
	if err == nil && len(runs) == 0 {
		err = b.launch(ctx, p, sb.ID)
	}
	if err != nil {
		return err
	}
	for {
		c, err := b.Dial(ctx, p)
		if err == nil {
			return c.Close()
		}
		if !errors.Is(err, agent.ErrNobody) {
			return err
		}
		select {
		case <-time.After(readyAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *Backend) agent(id string) *agent.Guest {
	return agent.New(func(ctx context.Context) (net.Conn, error) {
		return b.o.Sandboxes.Dial(ctx, b.c, id, sandbox.GuestPort)
	})
}

// join connects to the socket of a pod that speaks the protocol itself. Where nobody listens there the cause of the error is
// agent.ErrNobody; the pod is not gone, for its program can be started again.
func (b *Backend) join(ctx context.Context, p record.Pod, sb *sandbox.Sandbox) (net.Conn, error) {
	if sb.State != sandbox.StateRunning {
		return nil, sandbox.Errorf(sandbox.Unavailable, "pod `%s`: its sandbox is %s", p.Name, sb.State).WithHint("carboy pod send %s starts it", p.Name)
	}
	c, err := b.o.Sandboxes.Dial(ctx, b.c, sb.ID, sandbox.GuestPort)
	if err != nil {
		return nil, err
	}
	c, err = agent.Socket(ctx, c, record.NativeSocket)
	if errors.Is(err, agent.ErrNobody) {
		e := notListening(p)
		e.Err = err
		return nil, e
	}
	return c, err
}

func notListening(p record.Pod) *sandbox.Error {
	return sandbox.Errorf(sandbox.Unavailable, "pod `%s`: its program does not listen at %s", p.Name, record.NativeSocket).
		WithHint("carboy pod send %s starts it where it has ended", p.Name)
}

// Stderr returns the newest of what a pod's program wrote to its standard error, and what that is.
func (b *Backend) Stderr(p record.Pod) (name string, tail []byte) {
	name = "of its command"
	ctx, cancel := context.WithTimeout(context.Background(), tailTime)
	defer cancel()
	sb, err := b.Sandbox(ctx, p)
	if err != nil || !p.Program.Native {
		return name, nil
	}
	g := b.agent(sb.ID)
	defer g.Close()
	id := ""
	all, err := g.Commands(ctx, actor.Tag)
	for _, c := range all { // which have their time in their names
		id = max(id, c.GetId())
	}
	for from := int64(0); err == nil && id != ""; {
		var o agent.Output
		o, err = g.Read(ctx, id, agent.Read{Stderr: true, Offset: from, Max: math.MaxUint16, Wait: time.Millisecond})
		if len(o.Data) == 0 {
			break
		}
		tail = append(tail, o.Data...)
		tail = tail[max(0, len(tail)-maxTail):]
		from = o.Offset + int64(len(o.Data))
	}
	return name, tail
}

// Watch follows what a pod that speaks the protocol itself says of its turns, until ctx ends or the pod does.
func (b *Backend) Watch(ctx context.Context, p record.Pod) {
	pace := rate.NewLimiter(told, toldAtOnce)
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.natives, p.Token)
	}()
	for lost := false; ctx.Err() == nil && b.is(p); {
		if c, err := b.Dial(ctx, b.now(p)); err == nil {
			b.hear(ctx, p, wire.NewConn(c, wire.Options{MaxLine: maxWatched}), pace)
			b.doing(p, "")
			lost = true
		} else if lost && b.ended(ctx, p) {
			lost = false
		}
		select {
		case <-time.After(watchAgain):
		case <-ctx.Done():
		}
	}
}

// is reports whether a pod is still the one of its name.
func (b *Backend) is(p record.Pod) bool {
	now, ok := b.o.Find(p.Name)
	return ok && now.Token == p.Token
}

// ended tells a pod's parent that its program has ended, where that is so while its sandbox runs, and reports whether it is.
func (b *Backend) ended(ctx context.Context, p record.Pod) bool {
	ctx, cancel := context.WithTimeout(ctx, tailTime)
	defer cancel()
	sb, err := b.Sandbox(ctx, p)
	if err != nil || sb.State != sandbox.StateRunning {
		return false
	}
	g := b.agent(sb.ID)
	defer g.Close()
	if runs, err := g.Tagged(ctx, actor.Tag); err != nil || len(runs) > 0 {
		return false
	}
	text := "its program has ended"
	if _, tail := b.Stderr(p); len(tail) > 0 {
		text += ": " + short(string(tail[max(0, len(tail)-maxError):]))
	}
	b.o.Event(b.now(p), wire.PodEvent{Kind: wire.PodErrored, PodName: p.Name, Message: text})
	return true
}

// short is a text as it is told to a parent: in letters, and not long.
func short(s string) string {
	return fmt.Sprintf("%.*s", maxError, strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD")))
}

const (
	watchAgain = time.Second // between two attempts to listen to a pod
	maxWatched = 64 << 10    // bytes of a line that is read; longer ones are left out
	maxError   = 400         // letters of an error that a parent is told
	// told is how many events of one pod a second its parent is told of. A pod that has more to say waits.
	told       = 5
	toldAtOnce = 20
)

// native is what is known of a pod that speaks the protocol itself.
type native struct {
	status string // what it is doing; "": that is not known
	given  bool   // it was given a task, and its parent was not told yet that the turn is over
}

// doing notes what a pod is doing; "": that is not known.
func (b *Backend) doing(p record.Pod, status string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.natives[p.Token]
	n.status = status
	b.natives[p.Token] = n
}

// Given notes that a pod is given a task: if that is over before anybody listens, its parent is told all the same.
func (b *Backend) Given(p record.Pod) { b.setGiven(p, true) }

// setGiven changes that, and returns what it was.
func (b *Backend) setGiven(p record.Pod, given bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.natives[p.Token]
	was := n.given
	n.given = given
	b.natives[p.Token] = n
	return was
}

// Doing is what a pod that speaks the protocol itself said last that it does: a status of its protocol, or "" where nothing is known.
func (b *Backend) Doing(p record.Pod) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.natives[p.Token].status
}

func (b *Backend) hear(ctx context.Context, p record.Pod, c *wire.Conn, pace *rate.Limiter) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	tell := func(ev wire.PodEvent) {
		if pace.Wait(ctx) == nil && b.is(p) { // what is told may have been said long before
			b.o.Event(b.now(p), ev)
		}
	}
	for failed := false; b.is(p); {
		e, err := c.Event()
		if _, over := errors.AsType[*wire.LineError](err); over {
			continue
		}
		if err != nil {
			return
		}
		switch e.Name {
		case wire.EventSnapshot, wire.EventStatus:
			said := new(wire.Status)
			if e.Into(said) != nil || !slices.Contains(statuses, said.Status) {
				continue
			}
			b.doing(p, said.Status)
			if e.Name == wire.EventSnapshot && said.Status == wire.StatusIdle && b.setGiven(p, false) { // its turn was over before
				tell(wire.PodEvent{Kind: wire.PodTurnEnded, PodName: p.Name})
			}
		case wire.EventTurnStart:
			failed = false
			b.doing(p, wire.StatusRunning)
		case wire.EventRunEnd:
			b.doing(p, wire.StatusIdle)
			b.setGiven(p, false)
			if !failed { // else that was told
				tell(wire.PodEvent{Kind: wire.PodTurnEnded, PodName: p.Name})
			}
			failed = false
		case wire.EventError:
			said := new(wire.Error)
			if e.Into(said) == nil && said.Code != wire.CodeAlreadyRunning && said.Code != wire.CodeInvalidRequest {
				failed = true
				tell(wire.PodEvent{Kind: wire.PodErrored, PodName: p.Name, Message: short(said.Message)})
			}
		}
	}
}

var statuses = []string{wire.StatusIdle, wire.StatusRunning, wire.StatusPaused}
