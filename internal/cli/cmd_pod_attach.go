package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/cli/console"
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
			return (&podTalk{app: a, name: args[0], conn: conn, raw: a.JSON}).run(ctx)
		}),
		ValidArgsFunction: a.completePod(),
	}
	cmd.Flags().BoolVar(&a.JSON, "json", false, "write the events of the pod's protocol, as JSON lines, and errors as JSON")
	return setHelp(cmd, docs{
		long: `It ends with stdin, once the pod has done what it was given; Ctrl-C leaves at once, and the pod goes on. A
line that comes while the pod is at its task waits until that is done. Several may be attached at once, and each
sees what the others asked.`,
		examples: []string{"carboy pod attach writer", "echo 'And an index.' | carboy pod attach writer"},
		exits:    exitDocsPlain[:],
	})
}

// podTalk is one conversation with a pod.
type podTalk struct {
	*app
	name string
	conn *pod.Conn
	raw  bool

	running bool
	waiting []string // tasks that wait for the turn's end
	ended   bool     // stdin has
}

func (t *podTalk) run(ctx context.Context) error {
	lines, events := make(chan string), make(chan pod.Event)
	failed := make(chan error, 1)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(t.Stdin)
		in.Buffer(nil, maxPodText)
		for in.Scan() {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		for {
			e, err := t.conn.Event()
			if _, over := errors.AsType[*pod.LineError](err); over {
				continue
			}
			if err != nil {
				failed <- err
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	known := false
	for {
		if known && t.ended && !t.running && len(t.waiting) == 0 {
			return nil
		}
		select {
		case line, ok := <-lines:
			if !ok {
				lines, t.ended = nil, true
				continue
			}
			if line != "" {
				t.waiting = append(t.waiting, line)
			}
		case e := <-events:
			known = true
			if err := t.show(e); err != nil {
				return err
			}
		case err := <-failed:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("pod `%s` has ended", t.name)
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := t.give(known); err != nil {
			return err
		}
	}
}

// give has the pod begin with the next task, where it is at none.
func (t *podTalk) give(known bool) error {
	if !known || t.running || len(t.waiting) == 0 {
		return nil
	}
	m, err := pod.NewMethod(pod.MethodRun, pod.Run{Input: []pod.Segment{pod.Text(t.waiting[0])}})
	if err != nil {
		return err
	}
	t.waiting, t.running = t.waiting[1:], true
	return t.conn.Send(m)
}

// show writes what an event says.
func (t *podTalk) show(e pod.Event) error {
	switch e.Name {
	case pod.EventSnapshot:
		var s pod.Snapshot
		if e.Into(&s) == nil {
			t.running = s.Status == pod.StatusRunning
		}
	case pod.EventTurnStart:
		t.running = true
	case pod.EventStatus:
		var s pod.Status
		if e.Into(&s) == nil {
			t.running = s.Status != pod.StatusIdle
		}
	case pod.EventTextDelta:
		var d pod.TextDelta
		if e.Into(&d) == nil && !t.raw {
			return t.podSays(d.Text)
		}
	case pod.EventError:
		said := new(pod.Error)
		if e.Into(said) == nil {
			t.running = said.Code == pod.CodeAlreadyRunning
			if !t.raw {
				t.Note(fmt.Sprintf("pod `%s`: %s", t.name, said.Message))
			}
		}
	case pod.EventUserMessage:
		var u pod.UserMessage
		if e.Into(&u) == nil && !t.raw && console.IsTerminal(t.Stdout) && len(u.Segments) > 0 {
			return t.PrintLine("> " + u.Segments[0].Content)
		}
	}
	if !t.raw {
		return nil
	}
	return console.WriteJSONLine(t.Stdout, e)
}
