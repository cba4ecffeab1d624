package trace

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// Step is a part of what a command's end waited for: what a process did while
// nothing else that would have helped went on.
type Step struct {
	Name string  `json:"name"`           // of a process
	Does string  `json:"does"`           // "runs", "waits" for a processor, or "blocked"
	By   string  `json:"by,omitempty"`   // what ended that, of what isn't traced
	Deep bool    `json:"deep,omitempty"` // where nothing could disturb it: in a disk, or the kernel
	Took float64 `json:"ms"`
}

// Words of Does.
const (
	Runs    = "runs"
	Waits   = "waits"
	Blocked = "blocked"
)

// maxJumps bounds how often the way back may turn without coming further: the
// clock is coarse, and two may seem to have woken each other at once.
const maxJumps = 64

// Leg is a Step at its time.
type Leg struct {
	Step
	Begin float64 `json:"begin_ms"` // after the command's exec
}

// path walks from the command's end back to its exec: through what each task
// did, and where one was woken, on to who woke it. The first leg comes first.
func (a *account) path() (legs []Leg) {
	at, t := a.command.end, a.command.leaver
	add := func(does, by string, deep bool, from time.Duration) {
		if from = max(from, a.command.exec); from >= at {
			return
		}
		leg := Leg{Step{a.name(t.of), does, by, deep, ms(at - from)}, ms(from - a.command.exec)}
		if n := len(legs) - 1; n >= 0 && legs[n].what() == leg.what() {
			leg.Took += legs[n].Took
			legs = legs[:n]
		}
		legs = append(legs, leg)
		at = from
	}
	if t != nil && len(t.all) > 0 {
		add(Blocked, "its own threads' ends", false, t.all[len(t.all)-1].to)
	}
	for jumps := 0; at > a.command.exec && t != nil; {
		x, ok := t.during(at)
		before := at
		switch {
		case !ok && t.creator != nil && jumps < maxJumps:
			t = t.creator
		case !ok:
			add(Blocked, "unknown", false, 0)
		case x.is == running:
			add(Runs, "", false, x.from)
		case x.is == ready:
			add(Waits, "", false, x.from)
		case x.to == at && x.waker != nil && jumps < maxJumps:
			t = x.waker
		default:
			add(Blocked, cmp.Or(x.by, "unknown"), x.deep, x.from)
		}
		if jumps++; at < before {
			jumps = 0
		}
	}
	slices.Reverse(legs)
	return legs
}

// what is a step without its time.
func (s Step) what() Step {
	s.Took = 0
	return s
}

// steps adds up legs of the same kind, the most first.
func steps(legs []Leg) []Step {
	sums := map[Step]float64{}
	for _, l := range legs {
		sums[l.what()] += l.Took
	}
	all := make([]Step, 0, len(sums))
	for s, took := range sums {
		s.Took = took
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y Step) int {
		return cmp.Or(cmp.Compare(y.Took, x.Took), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Does, y.Does), cmp.Compare(x.By, y.By))
	})
	return all
}

// during is what t did just before at.
func (t *task) during(at time.Duration) (stretch, bool) {
	i := sort.Search(len(t.all), func(i int) bool { return t.all[i].to >= at })
	for ; i < len(t.all) && t.all[i].from < at; i++ {
		if t.all[i].to > t.all[i].from {
			return t.all[i], true
		}
	}
	return stretch{}, false
}

// phases cut a run where something begins or ends that each has.
func (a *account) phases(events []Event, way []Leg) []Phase {
	c := a.command
	var asked, made, ready, answered time.Duration
	command, seen := map[int]bool{}, map[int]bool{}
	for tid, t := range a.tasks {
		command[tid] = t.of == c
		seen[tid] = true
	}
	for _, e := range events {
		if e.At < c.exec || e.At > c.end {
			continue
		}
		switch {
		case e.Kind == Waking && !e.Interrupt && command[e.Task] && seen[e.PID] && !command[e.PID] && asked == 0:
			asked = e.At
		case e.Kind == Waking && !e.Interrupt && command[e.PID] && seen[e.Task] && !command[e.Task]:
			answered = e.At
		case e.Kind == Fork && seen[e.PID] && !command[e.Task] && !e.Shares:
			if made == 0 {
				made = e.At
			}
			ready = e.At
		case e.Kind == Exec && seen[e.PID] && e.At > c.exec:
			ready = e.At
		}
	}
	phases := []Phase{{Name: "fork to exec", Took: ms(c.exec - c.born)}}
	last := c.exec
	for _, cut := range []struct {
		name string
		at   time.Duration
	}{
		{"until the command line has asked", asked},
		{"until the first process is made", made},
		{"until the last is made or executed", ready},
		{"until the last of them has ended", a.over()},
		{"until the last answer", answered},
		{"until the command line's exit", c.end},
	} {
		to := max(last, cut.at) // one that did not come, or not in this order, takes nothing
		phases = append(phases, a.phase(cut.name, last, to, way))
		last = to
	}
	return phases
}

// over is when the last of the processes that were made had ended; 0: not yet, or
// there were none.
func (a *account) over() (last time.Duration) {
	for _, p := range a.all {
		if p.before || p.root || p.born > a.command.end {
			continue
		}
		if p.end == 0 {
			return 0
		}
		last = max(last, p.end)
	}
	return last
}

// phase is a part of the run, and what the way through it is made of.
func (a *account) phase(name string, from, to time.Duration, way []Leg) Phase {
	p := Phase{Name: name, Took: ms(to - from)}
	begin, end := ms(from-a.command.exec), ms(to-a.command.exec)
	for _, l := range way {
		took := max(0, min(l.Begin+l.Took, end)-max(l.Begin, begin))
		switch l.Does {
		case Runs:
			p.Runs += took
		case Waits:
			p.Waits += took
		default:
			p.Blocked += took
		}
	}
	return p
}
