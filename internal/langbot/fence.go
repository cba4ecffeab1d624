package langbot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/api/langbot"
)

// permissionError is an error of whom an action is for. The original has no
// class of its own for it.
type permissionError struct{ text string }

func (e *permissionError) Error() string { return e.text }

func denied(format string, args ...any) error {
	return &permissionError{fmt.Sprintf(format, args...)}
}

// errStale is why a call ended whose generation did.
var errStale = denied("Stale Box placement generation: a newer one was seen")

// fence knows the newest generation of each workspace. One that is older is
// refused, also after the daemon was started again: its sessions and calls were
// ended for the newer one's. What is written down is written for one workspace
// at a time, and others never wait for it.
type fence struct {
	max    int
	ledger keeper

	mu  sync.Mutex // held over nothing that takes time
	at  map[workspace]*standing
	has map[string]int // how many of an instance are in at
}

type workspace struct{ instance, name string }

// standing is what is known of one workspace.
type standing struct {
	users int // of fence.mu: who has it in hand

	change chan struct{} // a slot, of who changes the mark: held over the write

	mu    sync.Mutex // held over nothing that takes time; taken after fence.mu
	mark             // kept
	swept bool       // sessions of older generations were ended in this life
	calls map[*lease]struct{}
}

// lease is one call, or one relay, of a generation.
type lease struct {
	generation int64
	cancel     context.CancelCauseFunc
}

func openFence(path string, limit int) (*fence, error) {
	f := &fence{max: limit, at: map[workspace]*standing{}, has: map[string]int{}, ledger: noLedger{}}
	if path == "" {
		return f, nil
	}
	l, marks, err := openLedger(path)
	if err != nil {
		return nil, err
	}
	f.ledger = l
	for _, m := range marks {
		f.at[m.of()] = newStanding(m)
		f.has[m.Instance]++
	}
	return f, nil
}

func newStanding(m mark) *standing {
	return &standing{mark: m, change: make(chan struct{}, 1), calls: map[*lease]struct{}{}}
}

func workspaceOf(c *langbot.Context) workspace { return workspace{c.InstanceUUID, c.WorkspaceUUID} }

// hold returns what is known of a workspace, and makes room for a new one only
// where there is some. It is to be freed.
func (f *fence) hold(w workspace) (*standing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.at[w]
	if s == nil {
		if len(f.at) >= f.max {
			return nil, denied("Box generation fence capacity reached: %d workspaces are known; raise box.limits.max_admission_records", f.max)
		}
		s = newStanding(mark{Instance: w.instance, Workspace: w.name})
		f.at[w] = s
		f.has[w.instance]++
	}
	s.users++
	return s, nil
}

// free forgets a workspace of which nothing was kept.
func (f *fence) free(s *standing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.users--; s.users > 0 {
		return
	}
	if m := s.is(); m == (mark{Instance: m.Instance, Workspace: m.Workspace}) {
		delete(f.at, m.of())
		if f.has[m.Instance]--; f.has[m.Instance] == 0 {
			delete(f.has, m.Instance)
		}
	}
}

func (f *fence) find(w workspace) *standing {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[w]
}

func (s *standing) is() mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

// advance changes what is kept of a workspace, as edit says, which may refuse
// it. It returns when that is written, and then was called, before the
// workspace's next change. Calls of generations that are older now are ended.
func (f *fence) advance(ctx context.Context, w workspace, edit func(m *mark) error, then func()) error {
	s, err := f.hold(w)
	if err != nil {
		return err
	}
	defer f.free(s)
	select {
	case s.change <- struct{}{}:
		defer func() { <-s.change }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	was := s.is()
	m := was
	if err := edit(&m); err != nil {
		return err
	}
	if m != was { // before anything is done for it
		if err := f.ledger.save(m); err != nil {
			return err
		}
	}
	for _, l := range s.set(m) {
		l.cancel(errStale)
	}
	then()
	return nil
}

// set takes a mark that was written, and returns the calls that it ends.
func (s *standing) set(m mark) (over []*lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Generation > s.Generation {
		s.swept = false
		for l := range s.calls {
			if l.generation < m.Generation {
				over = append(over, l)
			}
		}
	}
	s.mark = m
	return over
}

// swept notes that the sessions of a workspace's other generations are gone.
func (f *fence) swept(of *langbot.Context) {
	s := f.find(workspaceOf(of))
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Generation == of.PlacementGeneration {
		s.swept = true
	}
}

// errNewer is for a generation that is not the newest yet.
var errNewer = denied("Box placement generation is not known yet")

// enter begins a call of a generation that must be the newest from now on; the
// context that it returns ends when there is a newer one. sweep says that
// sessions of older ones may be there and have to be ended.
func (f *fence) enter(ctx context.Context, of *langbot.Context) (_ context.Context, leave func(), sweep bool, err error) {
	s, err := f.hold(workspaceOf(of))
	if err != nil {
		return nil, nil, false, err
	}
	defer f.free(s)
	leased, leave, sweep, err := s.lease(ctx, of.PlacementGeneration)
	if !errors.Is(err, errNewer) {
		return leased, leave, sweep, err
	}
	err = f.advance(ctx, workspaceOf(of), func(m *mark) error {
		if of.PlacementGeneration < m.Generation {
			return errStale
		}
		m.Generation = of.PlacementGeneration
		return nil
	}, func() {})
	if err != nil {
		return nil, nil, false, err
	}
	return s.lease(ctx, of.PlacementGeneration)
}

// join is enter for what may not make a generation the newest: it has to be.
func (f *fence) join(ctx context.Context, of *langbot.Context) (_ context.Context, leave func(), err error) {
	s := f.find(workspaceOf(of))
	if s == nil {
		return nil, nil, errNewer
	}
	ctx, leave, _, err = s.lease(ctx, of.PlacementGeneration)
	return ctx, leave, err
}

func (s *standing) lease(ctx context.Context, generation int64) (_ context.Context, leave func(), sweep bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case generation < s.Generation:
		return nil, nil, false, errStale
	case generation > s.Generation:
		return nil, nil, false, errNewer
	}
	ctx, cancel := context.WithCancelCause(ctx)
	l := &lease{generation, cancel}
	s.calls[l] = struct{}{}
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, l)
		cancel(nil)
	}, !s.swept, nil
}

// current reports whether a generation is still the newest.
func (f *fence) current(of *langbot.Context) bool {
	s := f.find(workspaceOf(of))
	return s != nil && s.is().Generation == of.PlacementGeneration
}

// tenanted reports whether an instance has said for which workspaces its actions
// are.
func (f *fence) tenanted(instance string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.has[instance] > 0
}

// workspaces are those that are known of an instance.
func (f *fence) workspaces(instance string) (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.at {
		if w.instance == instance {
			all = append(all, w.name)
		}
	}
	return all
}

// sweep ends the sessions of a workspace that are of other generations than its
// newest.
func (h *Handler) sweep(ctx context.Context, about *langbot.Context) error {
	keep := prefix(about)
	owner := ownerOf(about.InstanceUUID, about.WorkspaceUUID)
	err := h.o.Sessions.DropAll(ctx, owner, func(id string) bool {
		return !strings.HasPrefix(id, keep)
	})
	if err == nil {
		h.fence.swept(about)
	} else if !errors.Is(err, context.Canceled) {
		h.log.Warn("sessions of an older generation were not all ended", "owner", owner, "err", err)
	}
	return err
}
