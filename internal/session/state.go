package session

import (
	"context"
	"slices"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/fault"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// state is where a session is in its life. Only become takes it to another one,
// and leaveLocked, for the last to leave, to gone:
//
//	state     on the disk     what there is                  who takes it on, and to what
//	absent    nothing         an entry, for who waits        a call that wants it: creating; Delete, the last to leave: gone
//	creating  nothing, then   its sandbox, or a part of it   make: awake; where that fails: closing, or absent as long as
//	          creating                                       nothing is on the disk
//	awake     live            its sandbox, which is to run   revive, whose sandbox had ended: awake; Run: sleeping; Delete,
//	                                                         Run, a command over its quota, who wants it otherwise: closing
//	sleeping  asleep          its sandbox, which is to stop  layDown: asleep, or awake where it can't be stopped
//	asleep    asleep          its sandbox, stopped           a call that wants it: waking; Delete, Run: closing
//	waking    asleep          its sandbox, which is to run   rouse: awake; where that fails: asleep, or sleeping for one that
//	                                                         runs by then; who wants it otherwise: closing
//	closing   closing, then   its sandbox, or what is left   erase: absent; make, for who wants it otherwise: creating
//	          nothing
//	gone      nothing         nothing, not even the entry    nobody
//
// A step is taken with the session's life held, and a lease on it. What the
// disk has of the next state is written before that is entered; what could not
// be written is not entered. So no sandbox is ever without a record that leads
// to it. Where a call or a daemon leaves one of creating, sleeping, waking and
// closing unfinished, Run or the next call goes on from there.
//
// A session that is creating, awake, sleeping or waking has one of the places
// that Limits.MaxSessions are of. One that is closing keeps the place it had:
// who wants a session otherwise never loses it to another.
type state string

const (
	absent   state = "absent"
	creating state = "being made"
	awake    state = "awake"
	sleeping state = "falling asleep"
	asleep   state = "asleep"
	waking   state = "waking"
	closing  state = "being deleted"
	gone     state = "gone"
)

// next are the states that follow each.
var next = map[state][]state{
	absent:   {creating, gone},
	creating: {awake, closing, absent},
	awake:    {awake, sleeping, closing},
	sleeping: {asleep, awake, closing},
	asleep:   {waking, closing},
	waking:   {awake, asleep, sleeping, closing},
	closing:  {absent, creating},
}

// recorded is what the disk has of each state, if it has anything.
var recorded = map[state]record.State{
	creating: record.Creating, awake: record.Live, sleeping: record.Asleep, asleep: record.Asleep, waking: record.Asleep, closing: record.Closing,
}

// listed reports whether a session is one to anyone but its makers.
func (s state) listed() bool { return s == awake || s.sleeps() }

// sleeps reports whether a session is asleep to its users.
func (s state) sleeps() bool { return s == sleeping || s == asleep || s == waking }

// step is the way to a state.
type step struct {
	to state
	// write is what of the record changes besides; nil: nothing.
	write func(*record.Session)
	// sandbox is the one that runs from now on, for one who becomes awake; nil: the
	// one that did before.
	sandbox *sandbox.Sandbox
	// why is what calls are told that are under way in a sandbox which is not to run
	// any more, or does not.
	why error
}

// become takes a session to another state. After an error it is what it was:
// there is no place for it, or it could not be written down. life must be held.
func (r *Runtime) become(ctx context.Context, s *session, n step) error {
	from, err := r.write(ctx, s, n)
	if err != nil {
		return err
	}
	if from == awake || n.to == closing {
		r.abandonAll(s, n.to == closing)
	}
	if n.to == awake && from != creating {
		r.brought(s).Restarted() // which waits for skills that are being brought
	}
	return nil
}

// write is become but for what waits for others. It returns the state before.
func (r *Runtime) write(ctx context.Context, s *session, n step) (state, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	r.mu.Lock()
	from := s.state
	err := r.mayLocked(s, n.to)
	r.mu.Unlock()
	if err != nil {
		return from, err
	}
	if recorded[from] != recorded[n.to] || n.write != nil {
		if err := r.save(ctx, s, n.to, n.write); err != nil {
			return from, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enterLocked(s, n)
	return from, nil
}

// mayLocked refuses a step that can't be, and one for which there is no place.
// Else the place is taken.
func (r *Runtime) mayLocked(s *session, to state) error {
	if !slices.Contains(next[s.state], to) || to != gone && !s.life.held() {
		err := sandbox.Errorf(sandbox.Internal, "session %s is %s, and can't become %s", shown(s.id.key), s.state, to)
		defect(err)
		return err
	}
	if to != creating && to != waking || s.counted {
		return nil
	}
	if most := r.c.Limits.MaxSessions; r.taken >= most {
		r.metrics.capacity.Add(1)
		return fault.Capacity(most)
	}
	r.countLocked(s)
	return nil
}

func (r *Runtime) countLocked(s *session) {
	s.counted = true
	r.taken++
}

// defect is told of a step that can't be. Tests end by it.
var defect = func(error) {}

// enterLocked does what belongs to a step: to who is in the sandbox, to the
// session's place, and to its entry.
func (r *Runtime) enterLocked(s *session, n step) {
	if s.end != nil && (s.state == awake || n.to == closing) {
		s.end(n.why)
		s.leaveGuestLocked()
	}
	s.state = n.to
	switch n.to {
	case awake:
		s.over, s.end = context.WithCancelCause(context.Background())
		if n.sandbox != nil {
			s.leaveGuestLocked() // who looked for processes after a restart reached the one before
			s.wall, s.sandboxID = n.sandbox.Backend, n.sandbox.ID
		}
	case creating:
		s.skills = newSkills(nil)
	case absent, asleep, gone:
		if s.counted {
			s.counted = false
			r.taken--
		}
	}
	if n.to == gone && r.sessions[s.id] == s {
		delete(r.sessions, s.id)
	}
}

// stateOf returns the state of a session.
func (r *Runtime) stateOf(s *session) state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.state
}
