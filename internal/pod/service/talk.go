package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/transcript"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Pod is a pod, as it is now.
type Pod struct {
	record.Pod
	Sandbox  string // its ID; "": it has none any more
	Volume   string // the name of the workspace's volume
	Liveness wire.Liveness
	Status   string // idle, running or paused, or StatusSilent; "": nothing is known of it
	Turns    int
	Children []string
	// Others are the sandboxes that have its workspace, and are no pods: they are bound by nothing here.
	Others   []string
	Writable []string // the directories of its scope that it can write to now, and are in no other
}

// StatusSilent is the status of a pod whose program does not listen. The next task starts it again, where it has ended.
const StatusSilent = "not listening"

// Get returns a pod.
func (s *Service) Get(ctx context.Context, c sandbox.Caller, name string) (Pod, error) {
	p, r, err := s.find(ctx, c, name)
	if err != nil {
		return Pod{}, err
	}
	return s.view(ctx, p, r)
}

// List returns a caller's pods, in the order of their names. Those that are gone are ended, and listed once more.
func (s *Service) List(ctx context.Context, c sandbox.Caller) ([]Pod, error) {
	p, err := s.of(ctx, c.Owner)
	if err != nil {
		return nil, err
	}
	if err := s.tidy(ctx, p); err != nil {
		p.look() // and the list says how things are
	}
	out := []Pod{}
	for _, r := range p.All() {
		one, err := s.view(ctx, p, r)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	for _, r := range p.takeEnded() {
		if _, ok := p.Find(r.Name); !ok {
			out = append(out, Pod{Pod: r, Liveness: wire.Gone})
		}
	}
	slices.SortFunc(out, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

func (s *Service) find(ctx context.Context, c sandbox.Caller, name string) (*pods, record.Pod, error) {
	p, err := s.of(ctx, c.Owner)
	if err != nil {
		return nil, record.Pod{}, err
	}
	r, ok := p.Find(name)
	if !ok {
		return nil, r, noPod(name)
	}
	return p, r, nil
}

func noPod(name string) error {
	return sandbox.Errorf(sandbox.NotFound, "no spawned pod named `%.80s`", name).WithHint("carboy pod ls")
}

func (s *Service) view(ctx context.Context, p *pods, r record.Pod) (Pod, error) {
	out := Pod{Pod: r, Liveness: p.Liveness(ctx, r)}
	for _, c := range p.Children(r.Name) {
		out.Children = append(out.Children, c.Name)
	}
	for _, name := range s.o.Sandboxes.VolumeUsers(r.Workspace) {
		if _, pod := p.Find(name); !pod {
			out.Others = append(out.Others, name)
		}
	}
	effective := p.Effective(r.Name)
	for _, w := range scope.Writes(effective.Allow) {
		if effective.IsWritable(w.Target) {
			out.Writable = append(out.Writable, w.Target)
		}
	}
	sb, err := p.box.Sandbox(ctx, r)
	if err != nil {
		return out, nil // Liveness says so
	}
	out.Sandbox, out.Volume = sb.ID, sb.Spec.Workspace.VolumeName
	switch {
	case r.Program.Native && sb.State != sandbox.StateRunning: // the next task starts it
		out.Status = wire.StatusIdle
		return out, nil
	case r.Program.Native && out.Liveness == wire.Unknown:
		out.Status = StatusSilent
		return out, nil
	case r.Program.Native:
		out.Status = p.box.Doing(r)
		return out, nil
	case len(r.Program.Command) == 0:
		return out, nil
	}
	a, err := p.box.Actor(r)
	if err == nil {
		out.Status, out.Turns = a.Status()
	}
	return out, err
}

// timeTalk is how long a pod may take to take what it is sent: its sandbox may have to be started.
const timeTalk = 20 * time.Second

// Connect connects to a pod, in its own protocol. One that speaks that itself is started, where its sandbox was stopped.
func (s *Service) Connect(ctx context.Context, c sandbox.Caller, name string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeTalk, sandbox.Errorf(sandbox.Unavailable, "pod `%s` was not ready within %v", name, timeTalk))
	defer cancel()
	p, r, err := s.find(ctx, c, name)
	if err == nil && r.Program.Native {
		var started bool
		if started, err = p.box.Ready(ctx, r); started {
			p.read.forget(r.Key())
		}
	}
	if err != nil {
		return nil, err
	}
	conn, err := p.box.Dial(ctx, r)
	if wire.LivenessOf(err) == wire.Gone {
		return nil, unreachable(name)
	}
	return conn, err
}

// Send gives a pod its next task. One that is at its last is a Conflict.
func (s *Service) Send(ctx context.Context, c sandbox.Caller, name, message string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeTalk, sandbox.Errorf(sandbox.Unavailable, "pod `%s` said nothing of it within %v", name, timeTalk))
	defer cancel()
	conn, err := s.Connect(ctx, c, name)
	if p, r, ferr := s.find(ctx, c, name); err == nil && ferr == nil && r.Program.Native {
		p.box.Given(r)
	}
	if err == nil {
		err = wire.Deliver(ctx, wire.NewConn(conn, wire.Options{MaxLine: maxHeard}), []wire.Segment{wire.Text(message)})
	}
	said, ok := errors.AsType[*wire.Error](err)
	switch {
	case ok && said.Code == wire.CodeAlreadyRunning:
		return sandbox.Errorf(sandbox.Conflict, "pod `%s` is already running a turn; wait for it to finish and retry", name)
	case ok:
		return sandbox.Errorf(sandbox.Conflict, "pod `%s` rejected the run with %s: %s", name, said.Code, said.Message)
	}
	return err
}

const maxHeard = 64 << 10 // bytes of a line that is read of a pod that is sent something

func unreachable(name string) error {
	return sandbox.Errorf(sandbox.Unavailable, "pod `%s` is stopped (unreachable)", name).WithHint("carboy pod stop %s gives back what it had", name)
}

// Output is what a pod has said.
type Output struct {
	Text   string
	First  int  // the number of the first entry that was there; more than was asked for: older ones are not kept
	Next   int  // what to ask for next
	More   bool // there is more already
	Status string
	// Failed says why the newest turn that has ended did not go well; "": it did.
	Failed string
}

// Unread asks for what was not read before.
const Unread = -1

// Output returns what a pod has said from an entry on, or, with Unread, since the last time that was asked. Where wait is set and that
// is nothing, it waits for more as long as a turn is under way.
func (s *Service) Output(ctx context.Context, c sandbox.Caller, name string, from int, wait bool) (out Output, err error) {
	p, r, err := s.find(ctx, c, name)
	if sandbox.KindOf(err) == sandbox.NotFound {
		p, r, err = s.inbox(ctx, c, name, err)
	}
	if err != nil {
		return out, err
	}
	if _, err := p.box.Sandbox(ctx, r); err != nil {
		return out, unreachable(name)
	}
	if r.Program.Native {
		return p.outputOfNative(ctx, r, from, wait)
	}
	a, err := p.box.Actor(r)
	if err != nil {
		return out, err
	}
	for {
		news := a.News()
		status, _ := a.Status()
		if out, err = p.output(a.Log(), r, from); err != nil || !wait || out.Text != "" || status != wire.StatusRunning {
			out.Status = status
			return out, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			return out, context.Cause(ctx)
		}
	}
}

// inbox is a sandbox that was told something of pods that it has no more; none is what there is otherwise.
func (s *Service) inbox(ctx context.Context, c sandbox.Caller, name string, none error) (*pods, record.Pod, error) {
	p, err := s.of(ctx, c.Owner)
	if err != nil {
		return nil, record.Pod{}, err
	}
	sb, err := s.o.Sandboxes.Get(ctx, sandbox.Caller{Owner: c.Owner}, name)
	if err != nil {
		return nil, record.Pod{}, none
	}
	r := record.Pod{Name: sb.Spec.Name, Owner: c.Owner, Ref: sb.ID}
	if !p.box.Heard(r.Key()) {
		return nil, record.Pod{}, none
	}
	return p, r, nil
}

// maxOutput is about how much of what a pod has said is told at once, in bytes.
const maxOutput = 1 << 20

var errEnough = errors.New("the rest is for the next time")

// output reads a transcript.
func (p *pods) output(log *transcript.Log, r record.Pod, from int) (out Output, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := from
	if from == Unread {
		at = p.read.of(r.Key())
	}
	var text strings.Builder
	turn := 0
	out.First, out.Next, err = log.Read(at, func(n int, e transcript.Entry) error {
		if text.Len() > maxOutput {
			out.More, at = true, n
			return errEnough
		}
		switch e.Kind {
		case transcript.Note:
			if len(r.Program.Command) == 0 { // it says nothing itself
				text.WriteString(e.Text + "\n")
			}
		case transcript.Assistant:
			if turn != 0 && turn != e.Turn {
				text.WriteString("\n")
			}
			turn = e.Turn
			text.WriteString(e.Text)
		case transcript.End:
			out.Failed = ""
			if e.Result == transcript.Failed || e.Result == transcript.Lost {
				out.Failed = e.Text
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		out.Next, err = at, nil
	}
	if err == nil && from == Unread {
		p.read.set(r.Key(), out.Next)
	}
	out.Text = text.String()
	return out, err
}

// Stop ends a pod, and what runs in its sandbox; its parent has back what it had. It says what that is.
func (s *Service) Stop(ctx context.Context, c sandbox.Caller, name string) (reclaimed []scope.Rule, err error) {
	p, r, err := s.find(ctx, c, name)
	if err != nil {
		return nil, err
	}
	if r.Token == "" {
		return nil, sandbox.Errorf(sandbox.Conflict, "`%s` is a sandbox that pods were spawned from: nobody delegated to it", name).
			WithHint("stop its pods, or the sandbox: carboy stop %s", name)
	}
	err = p.Release(ctx, name)
	s.settle(ctx, p)
	if _, there := p.Find(name); err != nil && there {
		return nil, err
	}
	p.read.forget(r.Key())
	p.tell(r.Parent, wire.PodEvent{Kind: wire.PodShutDown, PodName: name})
	if err != nil {
		return nil, notGivenBack(r, err)
	}
	s.uninstall(ctx, p, r.Parent)
	return r.Allow, nil
}

// notGivenBack is the error that a pod has ended, and its parent can't have yet what that had.
func notGivenBack(r record.Pod, err error) error {
	return sandbox.Errorf(sandbox.Conflict, "pod `%s` has ended, and `%s` has not yet back what that had: %w", r.Name, r.Parent, err).
		WithHint("it is tried again until it can be done: end what is named, or stop and start %s", r.Parent)
}

// Summary is what a model is told of a stop.
func Summary(name string, reclaimed []scope.Rule) string {
	return fmt.Sprintf("stopped pod `%s`; reclaimed scope: %s", name, RulesText(reclaimed))
}

// RulesText is rules in a line.
func RulesText(rules []scope.Rule) string {
	if len(rules) == 0 {
		return "(none)"
	}
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}
