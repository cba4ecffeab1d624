package trace

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"
	"time"
)

// Known is what a run's events don't say.
type Known struct {
	Caller int            // the task that started the command
	Tasks  map[int]int    // tasks that were there before, and their processes
	Names  map[int]string // what processes are called
}

// Process is what one process did while the command lived. What shares the
// memory of a process for good is a part of it.
type Process struct {
	PID    int      `json:"pid"`
	Parent int      `json:"parent,omitempty"` // 0: none of those that are followed
	Before bool     `json:"before,omitempty"` // it was there before the command
	Name   string   `json:"name"`             // argv[0], else the file that it executed
	File   string   `json:"file,omitempty"`   // that it executed last; of a fork, its parent's
	Guess  bool     `json:"guess,omitempty"`  // argv[0] could not be read: it had ended too soon
	Tasks  int      `json:"tasks"`            // threads that had an event
	Begin  float64  `json:"begin_ms"`         // after the command's exec; of one that was there before, its first event
	End    *float64 `json:"end_ms"`           // nil: it went on
	CPU    float64  `json:"cpu_ms"`           // of all its threads
	Wait   float64  `json:"wait_ms"`          // in which none of its threads ran, and one was ready to
	Block  float64  `json:"block_ms"`         // in which none of its threads was ready
}

// Phase is a part of a run: from where the one before ends. Of its time, what is
// on the way from the command's start to its end is told apart.
type Phase struct {
	Name    string  `json:"name"`
	Took    float64 `json:"ms"`
	Runs    float64 `json:"run_ms"`   // some process ran
	Waits   float64 `json:"wait_ms"`  // it waited for a processor
	Blocked float64 `json:"block_ms"` // it waited for the kernel, a disk or a timer
}

// Run is one run of a command.
type Run struct {
	Whole     float64   `json:"whole_ms"` // from its exec to its exit
	Processes []Process `json:"processes"`
	Phases    []Phase   `json:"phases"`
	Path      []Step    `json:"path"` // what its end waited for, the most first
	Way       []Leg     `json:"way"`  // the same in its order
	Unread    int       `json:"unread,omitempty"`
}

// state is what a task does.
type state uint8

const (
	unknown state = iota
	running
	ready
	blocked
	gone
)

// span of time in which a task's state was the same.
type stretch struct {
	from, to time.Duration
	is       state
	deep     bool   // blocked where nothing can disturb it
	waker    *task  // who ended it; nil: none of those that are traced
	by       string // how the kernel calls that one
}

// task is a thread, or the only one of a process.
type task struct {
	of      *process
	creator *task
	all     []stretch
	now     stretch // to is not known yet
	waker   *task
	by      string
	ended   bool
}

// process has tasks.
type process struct {
	pid               int
	parent            *process // nil: none of those that are followed
	file              string
	before            bool
	root              bool // the caller made it: it is the command if it executes one
	born, first, exec time.Duration
	end               time.Duration // 0: it lives
	tasks             []*task
	living            int   // tasks that have not begun to end
	dead              int   // tasks that have ended
	leaver            *task // that had it end
}

// account is what is known while events are gone through.
type account struct {
	known   Known
	start   time.Duration // of the trace
	tasks   map[int]*task
	all     []*process
	command *process
}

// Account goes through the events of a run.
func Account(events []Event, known Known) (Run, error) {
	a := &account{known: known, tasks: map[int]*task{}}
	before := map[int]*process{}
	for tid, pid := range known.Tasks {
		p := before[pid]
		if p == nil {
			p = &process{pid: pid, before: true}
			before[pid] = p
			a.all = append(a.all, p)
		}
		a.add(tid, &task{of: p})
	}
	if len(events) > 0 {
		a.start = events[0].At
	}
	for _, e := range events {
		a.take(e)
		if a.command != nil && a.command.dead == len(a.command.tasks) {
			break
		}
	}
	switch {
	case a.command == nil:
		return Run{}, errors.New("the command's start is not in the trace")
	case a.command.end == 0:
		return Run{}, errors.New("the command's end is not in the trace")
	}
	return a.result(events), nil
}

func (a *account) add(tid int, t *task) {
	a.tasks[tid] = t
	t.of.tasks = append(t.of.tasks, t)
	t.of.living++
}

// take goes one event on.
func (a *account) take(e Event) {
	t := a.tasks[e.PID]
	switch e.Kind {
	case Fork:
		a.fork(e)
	case Exec:
		a.exec(e)
	case Exit:
		a.exit(t, e)
	case Switch:
		if t != nil {
			a.meet(t, running, e.At)
			t.leave(e)
		}
		if next := a.tasks[e.Next]; next != nil {
			a.meet(next, ready, e.At)
			next.become(running, e.At)
		}
	case Waking:
		if t == nil {
			return
		}
		a.meet(t, blocked, e.At)
		t.waker, t.by = a.tasks[e.Task], e.By
		if e.Interrupt {
			t.waker, t.by = nil, "an interrupt"
		}
		t.wake(e.At)
	case Wakeup:
		if t != nil {
			a.meet(t, blocked, e.At)
			t.wake(e.At)
		}
	}
}

// meet has the first event of a task that was there before say what it did until
// then.
func (a *account) meet(t *task, is state, at time.Duration) {
	if t.now.is != unknown {
		return
	}
	t.now = stretch{from: a.start, is: is}
	if p := t.of; p.first == 0 {
		p.first = at
	}
}

// fork adds the task that e tells of.
func (a *account) fork(e Event) {
	creator := a.tasks[e.Task]
	mine := creator == nil && e.Task == a.known.Caller && a.command == nil && !e.Shares
	if creator == nil && !mine {
		return
	}
	t := &task{creator: creator}
	switch {
	case creator != nil && e.Shares:
		t.of = creator.of
	default:
		t.of = &process{pid: e.PID, born: e.At}
		if creator != nil {
			t.of.parent, t.of.file = creator.of, creator.of.file
		}
		a.all = append(a.all, t.of)
	}
	t.of.root = t.of.root || mine
	a.add(e.PID, t)
	t.become(ready, e.At)
}

func (a *account) exec(e Event) {
	t := a.tasks[e.OldPID]
	if t == nil {
		return
	}
	if e.OldPID != e.PID { // a thread that takes the place of the first one
		delete(a.tasks, e.OldPID)
		a.tasks[e.PID] = t
	}
	p := t.of
	if p.pid != e.PID { // it shared memory until now
		p.living--
		p.tasks = slices.DeleteFunc(p.tasks, func(other *task) bool { return other == t })
		p = &process{pid: e.PID, parent: p, born: e.At}
		a.all = append(a.all, p)
		t.of = p
		a.add(e.PID, t)
	}
	p.file = e.File
	if p.exec == 0 {
		p.exec = e.At
	}
	if p.root && a.command == nil {
		a.command = p
	}
}

func (a *account) exit(t *task, e Event) {
	if t == nil || t.ended {
		return
	}
	t.ended = true
	if t.of.leaver == nil {
		t.of.leaver = t
	}
	if t.of.living--; t.of.living == 0 {
		t.of.end = e.At // or later, if that is still to be seen
	}
	a.meet(t, running, e.At)
}

// become ends what t did and begins what it does.
func (t *task) become(is state, at time.Duration) {
	if t.now.is == gone {
		return
	}
	if t.now.is != unknown {
		t.now.to = at
		t.all = append(t.all, t.now)
	}
	t.now = stretch{from: at, is: is}
}

// leave has t without a processor.
func (t *task) leave(e Event) {
	is := blocked
	switch {
	case e.Dead:
		is = gone
		if t.of.dead++; t.of.dead == len(t.of.tasks) {
			t.of.end = e.At
		}
	case e.Ready:
		is = ready
	case !t.ended:
		t.of.leaver = nil // what ended before did so alone
	}
	t.become(is, e.At)
	t.now.deep = e.Deep
}

// wake has a task that is blocked wait for a processor.
func (t *task) wake(at time.Duration) {
	if t.now.is != blocked {
		return
	}
	t.now.waker, t.now.by = t.waker, t.by
	t.become(ready, at)
}

// How processes go by their parents: a fork that executed nothing, and what
// was executed as the program that its parent is.
const (
	forkMark = " (fork)"
	selfMark = " (exe)"
	selfName = "exe"
)

// name is what p is called: by argv[0], else by its file.
func (a *account) name(p *process) string {
	if p.exec == 0 && !p.before {
		return forkOf(a.parentName(p))
	}
	name := path.Base(cmp.Or(a.known.Names[p.pid], p.file, "?"))
	if name == selfName {
		if parent := a.parentName(p); parent != "?" {
			return parent + selfMark
		}
	}
	return name
}

func (a *account) parentName(p *process) string {
	if p.parent == nil {
		return "?"
	}
	return a.name(p.parent)
}

// forkOf names what a process made of itself without an exec.
func forkOf(name string) string { return strings.TrimSuffix(name, forkMark) + forkMark }

// result is what there was until the command's end.
func (a *account) result(events []Event) Run {
	c := a.command
	for _, t := range a.tasks {
		if t.now.is != unknown {
			t.become(gone, c.end)
		}
	}
	r := Run{Whole: ms(c.end - c.exec)}
	slices.SortStableFunc(a.all, func(x, y *process) int {
		return cmp.Or(cmp.Compare(x.begin(), y.begin()), cmp.Compare(x.pid, y.pid))
	})
	for _, p := range a.all {
		if p.begin() == 0 || p.begin() > c.end || p.root && p != c {
			continue // nothing was seen of it, or it only looked what the kernel can do
		}
		r.Processes = append(r.Processes, a.sum(p))
	}
	r.Way = a.path()
	r.Path = steps(r.Way)
	r.Phases = a.phases(events, r.Way)
	return r
}

func (p *process) begin() time.Duration {
	if p.before {
		return p.first
	}
	return p.born
}

// sum adds up what p did between the command's fork and its end.
func (a *account) sum(p *process) Process {
	c := a.command
	s := Process{PID: p.pid, Before: p.before, Name: a.name(p), File: p.file, Begin: ms(p.begin() - c.exec)}
	if p.parent != nil {
		s.Parent = p.parent.pid
	}
	s.Guess = p.exec > 0 && a.known.Names[p.pid] == ""
	from, to := max(p.begin(), c.born), c.end
	if p.end > 0 {
		to = p.end
		end := ms(p.end - c.exec)
		s.End = &end
	}
	var edges []edge
	for _, t := range p.tasks {
		if len(t.all) > 0 {
			s.Tasks++
		}
		for _, x := range t.all {
			x.from, x.to = max(x.from, from), min(x.to, c.end)
			if x.from >= x.to || x.is != running && x.is != ready {
				continue
			}
			edges = append(edges, edge{x.from, x.is, 1}, edge{x.to, x.is, -1})
			if x.is == running {
				s.CPU += ms(x.to - x.from)
			}
		}
	}
	ran, wait := cover(edges)
	s.Wait = ms(wait)
	s.Block = max(0, ms(to-from-ran-wait))
	return s
}

// edge is where a stretch begins or ends.
type edge struct {
	at   time.Duration
	is   state
	more int
}

// cover is for how long anything ran, and for how long nothing did while
// something was ready.
func cover(edges []edge) (ran, wait time.Duration) {
	slices.SortFunc(edges, func(x, y edge) int { return cmp.Compare(x.at, y.at) })
	var runs, waits int
	var last time.Duration
	for _, e := range edges {
		switch {
		case runs > 0:
			ran += e.at - last
		case waits > 0:
			wait += e.at - last
		}
		last = e.at
		if e.is == running {
			runs += e.more
		} else {
			waits += e.more
		}
	}
	return ran, wait
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
