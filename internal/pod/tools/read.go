package tools

import (
	"context"
	"fmt"
	"strings"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/mcp"
	"github.com/carboy-sandbox/carboy/internal/pod/service"
)

// maxWait bounds how long a call waits for a pod to say something.
const maxWait = 5 * time.Minute

// maxRead is how much of what a pod said is told at once, in bytes, with room for what escapes add.
const maxRead = mcp.MaxResult / 2

// cursor is how far a pod was read.
type cursor struct {
	next int    // the entry to read next
	rest string // what of those before was not told yet
}

type readInput struct {
	Name string `json:"name" jsonschema:"of the pod"`
	Wait int    `json:"wait_seconds,omitempty" jsonschema:"how long to wait, at most 300, while it is at its task and has said nothing new; default: 0"`
}

func (t *tools) output(ctx context.Context, in readInput) (string, error) {
	p, err := t.Pods.Get(ctx, in.Name)
	if err != nil {
		return "", err
	}
	if p.Liveness == wire.Gone {
		return fmt.Sprintf("pod `%s` is stopped (unreachable)", in.Name), nil
	}
	key := p.Name + p.Token
	t.mu.Lock()
	at := t.read[key]
	t.mu.Unlock()
	if at.rest == "" {
		if at, p.Status, err = t.more(ctx, in, at); err != nil {
			return "", err
		}
	}
	text := at.rest
	if len(text) > maxRead {
		text = strings.ToValidUTF8(text[:maxRead], "")
	}
	at.rest = at.rest[len(text):]
	t.mu.Lock()
	t.read[key] = at
	t.mu.Unlock()
	return shown(in.Name, p.Status, text, at.rest != ""), nil
}

// more reads a pod from where it was read to.
func (t *tools) more(ctx context.Context, in readInput, at cursor) (cursor, string, error) {
	waiting, cancel := context.WithTimeout(ctx, min(time.Duration(max(in.Wait, 0))*time.Second, maxWait))
	defer cancel()
	var out service.Output
	var err error
	if in.Wait > 0 {
		out, err = t.Pods.Output(waiting, in.Name, at.next, true)
	}
	if in.Wait <= 0 || err != nil && waiting.Err() != nil && ctx.Err() == nil { // it said nothing in time
		out, err = t.Pods.Output(ctx, in.Name, at.next, false)
	}
	if err != nil {
		return at, "", err
	}
	if out.Text == "" && out.Failed != "" && out.Status != wire.StatusRunning {
		out.Text = "its newest task did not go well: " + out.Failed + "\n"
	}
	return cursor{next: out.Next, rest: out.Text}, out.Status, nil
}

// shown is what a model is told of what a pod has said.
func shown(name, status, text string, more bool) string {
	if text == "" {
		return fmt.Sprintf("pod `%s` %s; no new assistant text", name, status)
	}
	lines := strings.Count(strings.TrimRight(text, "\n"), "\n") + 1
	head := fmt.Sprintf("pod `%s` %s: %d new line(s) of assistant text", name, status, lines)
	if more {
		head += "; there is more: read it again"
	}
	return head + "\n" + text
}

type nothing struct{}

func (t *tools) list(ctx context.Context, _ nothing) (string, error) {
	list, err := t.Pods.List(ctx)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "no spawned pods", nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d pod(s) known\n", len(list))
	for i := range list {
		p := &list[i]
		state := "alive"
		if p.Liveness == wire.Gone {
			state = "stopped"
		}
		fmt.Fprintf(&b, "%s [%s] %s parent=%s scope=%s\n", p.Name, state, p.Status, p.Parent, service.RulesText(p.Allow))
	}
	t.forget(list)
	return b.String(), nil
}

// forget forgets how far pods were read that are not there any more.
func (t *tools) forget(list []service.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	there := map[string]cursor{}
	for i := range list {
		key := list[i].Name + list[i].Token
		if at, ok := t.read[key]; ok {
			there[key] = at
		}
	}
	t.read = there
}
