package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
	"github.com/carboy-sandbox/carboy/internal/cli/exit"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (a *app) podAttachCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach [flags] NAME",
		Short: "Talk with a pod: each line of stdin is a task, and what the pod says is shown as it comes",
		Args:  exactArgs("NAME"),
		RunE: a.asking(func(ctx context.Context, svc *client.Client, args []string) error {
			conn, err := svc.AttachPod(ctx, args[0])
			if err != nil {
				return err
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			return (&podTalk{app: a, svc: svc, name: args[0], conn: conn, raw: a.JSON}).run(ctx)
		}),
		ValidArgsFunction: a.completePod(),
	}
	cmd.Flags().BoolVar(&a.JSON, "json", false, "write the events of the pod's protocol, as JSON lines, and errors as JSON")
	return setHelp(cmd, docs{
		long: `It ends with stdin, once the pod has done what it was given; Ctrl-C leaves at once, and the pod goes on. A
line that comes while the pod is at its task waits until that is done. Several may be attached at once, and each
sees what the others asked.`,
		examples: []string{"carboy pod attach writer", "echo 'And an index.' | carboy pod attach writer"},
		exits: []exitDoc{
			{"0", "done"},
			{"1", "the newest of its tasks did not go well"},
			{"125", "carboy failed, or was used wrongly"},
		},
	})
}

// podTalk is one conversation with a pod.
type podTalk struct {
	*app
	svc  *client.Client
	name string
	conn *pod.Conn
	raw  bool

	running bool     // a turn is under way, or was asked for
	asked   bool     // it was asked for, and has not begun
	sent    bool     // it was asked for, and is not over
	others  bool     // the turn that is under way somebody else has asked for
	given   string   // the task that the pod was given last
	waiting []string // tasks that wait for the turn's end
	ended   bool     // stdin has
	failed  bool     // the newest turn has
}

// firstWord is how long a pod has to say how things are. One that says nothing is taken to be idle.
const firstWord = 2 * time.Second

func (t *podTalk) run(ctx context.Context) error {
	lines, events, failed := make(chan string), make(chan pod.Event), make(chan error, 2)
	go func() {
		if err := t.readTasks(ctx, lines); err != nil {
			failed <- err
			return
		}
		close(lines)
	}()
	go func() { failed <- t.readEvents(ctx, events) }()
	quiet := time.After(firstWord)
	for known := false; ; {
		if known && t.ended && !t.running && len(t.waiting) == 0 {
			break
		}
		next := lines
		if len(t.waiting) > 0 { // one at a time: stdin may have no end
			next = nil
		}
		select {
		case line, ok := <-next:
			if !ok {
				lines, t.ended = nil, true
			} else if line != "" {
				t.waiting = append(t.waiting, line)
			}
		case e := <-events:
			known = true
			if err := t.show(e); err != nil {
				return err
			}
		case <-quiet:
			known = true
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return t.cut(ctx)
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := t.give(ctx, known); err != nil {
			return err
		}
	}
	if t.failed {
		return &exit.Error{Code: 1}
	}
	return nil
}

// cut says why the connection to the pod ended.
func (t *podTalk) cut(ctx context.Context) error {
	if _, err := t.svc.Pod(ctx, t.name); sandbox.KindOf(err) == sandbox.NotFound {
		return sandbox.Errorf(sandbox.NotFound, "pod `%s` has ended", t.name)
	}
	return sandbox.Errorf(sandbox.Unavailable, "the connection to pod `%s` was cut; it goes on", t.name).WithHint("carboy pod attach %s", t.name)
}

// readTasks sends the lines of stdin.
func (t *podTalk) readTasks(ctx context.Context, lines chan<- string) error {
	in := bufio.NewScanner(t.Stdin)
	in.Buffer(nil, maxPodText)
	for in.Scan() {
		select {
		case lines <- in.Text():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := in.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a line of stdin has more than %d bytes", maxPodText)
	}
	return err
}

// readEvents sends what the pod tells, until it fails or ctx ends.
func (t *podTalk) readEvents(ctx context.Context, events chan<- pod.Event) error {
	for {
		e, err := t.conn.Event()
		if _, over := errors.AsType[*pod.LineError](err); over {
			continue
		}
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// give has the pod begin with the next task, where it is at none.
func (t *podTalk) give(ctx context.Context, known bool) error {
	if !known || t.running || len(t.waiting) == 0 {
		return nil
	}
	t.given, t.waiting, t.running, t.failed = t.waiting[0], t.waiting[1:], true, false
	t.asked, t.sent = true, true
	m, err := pod.NewMethod(pod.MethodRun, pod.Run{Input: []pod.Segment{pod.Text(t.given)}})
	if err != nil {
		return err
	}
	if err := t.conn.Send(m); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// follow notes what an event says of the turn that is under way. Until one that was asked for has begun, what is said is of another's.
func (t *podTalk) follow(e pod.Event) {
	switch e.Name {
	case pod.EventUserMessage:
		t.running = true
		t.others = !t.asked || taskOf(e) != t.given
		t.asked = t.asked && t.others
	case pod.EventTurnStart:
		t.running = true
		t.asked = t.asked && t.others
	case pod.EventSnapshot, pod.EventStatus:
		s := new(pod.Status)
		if e.Into(s) == nil && s.Status != "" && !t.asked {
			t.running = s.Status != pod.StatusIdle
		}
	case pod.EventRunEnd:
		t.running, t.others, t.sent = t.asked, false, t.asked
	case pod.EventError:
		t.wentWrong(e)
	}
}

// wentWrong notes that a turn did not go well, or that the pod did not take the task: another one was first, and it is given again.
func (t *podTalk) wentWrong(e pod.Event) {
	said := new(pod.Error)
	switch err := e.Into(said); {
	case err == nil && said.Code == pod.CodeAlreadyRunning:
		if t.sent { // nobody else is told of that
			t.waiting = append([]string{t.given}, t.waiting...)
			t.running, t.asked, t.sent = true, false, false
		}
	case t.others:
		t.running = t.asked
	default:
		t.failed, t.running, t.asked, t.sent = true, false, false, false
	}
}

// taskOf is the text of what a pod was given.
func taskOf(e pod.Event) string {
	var u pod.UserMessage
	if e.Into(&u) != nil || len(u.Segments) == 0 {
		return ""
	}
	return u.Segments[0].Content
}

// show writes what an event says.
func (t *podTalk) show(e pod.Event) error {
	t.follow(e)
	switch e.Name {
	case pod.EventTextDelta:
		var d pod.TextDelta
		if e.Into(&d) == nil && !t.raw {
			return t.podSays(d.Text)
		}
	case pod.EventError:
		said := new(pod.Error)
		if e.Into(said) == nil && said.Code != pod.CodeAlreadyRunning && !t.raw {
			t.Note(fmt.Sprintf("pod `%s`: %s", t.name, said.Message))
		}
	case pod.EventUserMessage:
		if text := taskOf(e); text != "" && !t.raw && console.IsTerminal(t.Stdout) {
			return t.PrintLine("> " + text)
		}
	}
	if !t.raw {
		return nil
	}
	return console.WriteJSONLine(t.Stdout, e)
}
