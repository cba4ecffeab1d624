package actor

import (
	"encoding/json"
	"errors"
	"net"
	"sync"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/transcript"
)

const (
	maxSaid     = 1 << 20 // bytes of entries in a snapshot
	maxWaiting  = 1024    // events that wait for one who does not read
	maxQuestion = 4 << 20 // bytes of a method
)

// listener is a connection, and the events that wait to be told on it.
type listener struct {
	conn *wire.Conn
	out  chan wire.Event
	end  func() // once
}

// serve answers one connection. A snapshot comes first, once somebody reads: a probe costs nothing.
func (a *Actor) serve(c net.Conn) {
	conn := wire.NewConn(c, wire.Options{MaxLine: maxQuestion})
	gone := make(chan struct{})
	l := &listener{conn: conn, out: make(chan wire.Event, maxWaiting), end: sync.OnceFunc(func() { close(gone); conn.Close() })}
	defer l.end()
	a.listen(l)
	defer a.forget(l)
	stop := make(chan struct{})
	defer close(stop)
	a.tasks.Go(func() {
		select {
		case <-a.ctx.Done():
			l.end()
		case <-stop:
		}
	})
	a.tasks.Go(func() {
		defer l.end()
		if _, err := c.Write([]byte{'\n'}); err != nil { // waits for a reader
			return
		}
		first, err := a.snapshot(l)
		if err != nil || conn.Tell(first) != nil {
			return
		}
		for {
			select {
			case e := <-l.out:
				if conn.Tell(e) != nil {
					return
				}
			case <-gone:
				return
			}
		}
	})
	for {
		m, err := conn.Method()
		if line, over := errors.AsType[*wire.LineError](err); over {
			l.say(wire.EventError, &wire.Error{Code: wire.CodeInvalidRequest, Message: line.Error()})
			continue
		}
		if err != nil {
			return
		}
		if err := a.handle(m); err != nil {
			reply, told := errors.AsType[*wire.Error](err)
			if !told {
				return
			}
			l.say(wire.EventError, reply)
		}
	}
}

func (a *Actor) listen(l *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[l] = struct{}{}
}

// snapshot is the conversation so far. What it has of the text a listener is not told again.
func (a *Actor) snapshot(l *listener) (wire.Event, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range len(l.out) {
		if e := <-l.out; e.Name != wire.EventTextDelta {
			l.out <- e
		}
	}
	s := wire.Snapshot{Status: wire.StatusIdle, Entries: []json.RawMessage{}}
	if a.turn != nil {
		s.Status = wire.StatusRunning
	}
	size := 0
	_, _, err := a.o.Log.Read(0, func(_ int, e transcript.Entry) error {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		s.Entries = append(s.Entries, b)
		for size += len(b); size > maxSaid && len(s.Entries) > 1; s.Entries = s.Entries[1:] {
			size -= len(s.Entries[0])
		}
		return nil
	})
	if err != nil {
		return wire.Event{}, err
	}
	return wire.NewEvent(wire.EventSnapshot, s)
}

func (a *Actor) forget(l *listener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.told, l)
}

// said is an event by its name and its data.
type said struct {
	name string
	data any
}

// note adds an entry to the transcript, and tells all who listen of it. Who does not read is cut off, and holds up nobody.
func (a *Actor) note(e transcript.Entry, events ...said) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.noteLocked(e, events)
}

func (a *Actor) noteLocked(e transcript.Entry, events []said) error {
	e.At = a.o.Now()
	_, err := a.o.Log.Append(e)
	if err == nil || e.Kind == transcript.End { // what is not written is said again
		a.tellLocked(events)
	}
	close(a.news)
	a.news = make(chan struct{})
	return err
}

// tell is note without an entry.
func (a *Actor) tell(events ...said) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tellLocked(events)
}

func (a *Actor) tellLocked(events []said) {
	for _, s := range events {
		if e, err := wire.NewEvent(s.name, s.data); err == nil {
			for l := range a.told {
				l.add(e)
			}
		}
	}
}

func (l *listener) say(name string, data any) {
	if e, err := wire.NewEvent(name, data); err == nil {
		l.add(e)
	}
}

func (l *listener) add(e wire.Event) {
	select {
	case l.out <- e:
	default:
		l.end()
	}
}

// handle does what a method asks for. A *wire.Error is told to who asked.
func (a *Actor) handle(m wire.Method) error {
	args, err := m.Arguments()
	if err != nil {
		return err
	}
	switch m.Name {
	case wire.MethodRun:
		return a.run(a.ctx, args.(*wire.Run).Input)
	case wire.MethodNotify:
		return a.noted(args.(*wire.Notify).Message)
	case wire.MethodPodEvent:
		return a.Hear(*args.(*wire.PodEvent))
	case wire.MethodCancel:
		return a.discard(a.ctx)
	case wire.MethodShutdown:
		a.o.Stop()
		return nil
	}
	return &wire.Error{Code: wire.CodeInvalidRequest, Message: "a pod that is a command can't do that: " + m.Name}
}

// Hear tells the pod what became of one of its own.
func (a *Actor) Hear(ev wire.PodEvent) error {
	if text := ev.Text(); text != "" {
		return a.noted(text)
	}
	return nil
}

// noted keeps what the pod is told between turns.
func (a *Actor) noted(text string) error {
	if err := a.note(transcript.Entry{Kind: transcript.Note, Text: text}, said{wire.EventSystemItem, wire.TextDelta{Text: text}}); err != nil {
		return &wire.Error{Code: wire.CodeInternal, Message: err.Error()}
	}
	return nil
}
