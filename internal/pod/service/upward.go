package service

import (
	"context"
	"errors"
	"strings"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/text/term"
)

// maxNews is how many events wait for a pod that speaks the protocol itself and takes none.
const maxNews = 64

// tell has a pod know what became of one of its own, and does not wait for it. A pod that can't be told does without: the records say the
// same.
func (p *pods) tell(name string, ev wire.PodEvent) {
	r, ok := p.Find(name)
	if !ok {
		return
	}
	ev.Message = oneLine(ev.Message)
	if r.Program.Native {
		p.queue(r, ev)
		return
	}
	a, err := p.box.Actor(r)
	if err == nil {
		err = a.Hear(ev)
	}
	p.untold(r, ev, err)
}

// maxMessage is how much of an error a parent is told, in bytes.
const maxMessage = 600

// oneLine is a pod's word as its parent is told it: it is in no other pod's name, and none of the parent's tasks.
func oneLine(s string) string {
	s = term.Escape(strings.TrimSpace(s))
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "..."
	}
	return s
}

func (p *pods) untold(r record.Pod, ev wire.PodEvent, err error) {
	if err != nil {
		p.log.Info("a pod was not told of another", "pod", r.Name, "event", ev.Kind, "error", err)
	}
}

// queue has a pod told of an event after those that it is still to hear.
func (p *pods) queue(r record.Pod, ev wire.PodEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.news[r.Token]
	if len(waiting) == maxNews {
		p.untold(r, ev, errors.New("it takes nothing"))
		return
	}
	p.news[r.Token] = append(waiting, ev)
	if len(waiting) == 0 {
		go p.unqueue(r)
	}
}

// unqueue tells a pod what waits for it.
func (p *pods) unqueue(r record.Pod) {
	for {
		p.mu.Lock()
		ev := p.news[r.Token][0]
		p.mu.Unlock()
		p.untold(r, ev, p.hears(r, ev))
		p.mu.Lock()
		left := p.news[r.Token][1:]
		p.news[r.Token] = left
		if len(left) == 0 {
			delete(p.news, r.Token)
		}
		p.mu.Unlock()
		if len(left) == 0 {
			return
		}
	}
}

func (p *pods) hears(r record.Pod, ev wire.PodEvent) error {
	ctx, cancel := context.WithTimeout(p.ctx, timeTalk)
	defer cancel()
	m, err := wire.NewMethod(wire.MethodPodEvent, ev)
	if err != nil {
		return err
	}
	c, err := p.box.Dial(ctx, r)
	if err != nil {
		return err
	}
	return wire.Ask(ctx, wire.NewConn(c, wire.Options{MaxLine: maxHeard}), m)
}
