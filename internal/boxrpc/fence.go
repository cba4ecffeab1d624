package boxrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/carboy-sandbox/carboy/api/box"
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
// ended for the newer one's.
type fence struct {
	max    int
	ledger *ledger

	mu sync.Mutex
	at map[workspace]*standing
}

type workspace struct{ instance, name string }

// standing is what is known of one workspace. The mark is kept.
type standing struct {
	mark
	swept bool // sessions of older generations were ended in this life
	calls map[*lease]struct{}
}

// lease is one call, or one relay, of a generation.
type lease struct {
	generation int64
	cancel     context.CancelCauseFunc
}

func openFence(path string, limit int) (*fence, error) {
	f := &fence{max: limit, at: map[workspace]*standing{}}
	l, marks, err := openLedger(path)
	if err != nil {
		return nil, err
	}
	f.ledger = l
	for _, m := range marks {
		f.at[workspace{m.Instance, m.Workspace}] = &standing{mark: m, calls: map[*lease]struct{}{}}
	}
	return f, nil
}

func (f *fence) close() error { return f.ledger.close() }

// of returns what is known of a workspace, with f.mu held; it makes room for a
// new one only where there is some.
func (f *fence) of(w workspace) (*standing, error) {
	if s := f.at[w]; s != nil {
		return s, nil
	}
	if len(f.at) >= f.max {
		return nil, denied("Box generation fence capacity reached: %d workspaces are known; raise box.limits.max_admission_records", f.max)
	}
	s := &standing{mark: mark{Instance: w.instance, Workspace: w.name}, calls: map[*lease]struct{}{}}
	return s, nil
}

// observe takes a generation for the newest, unless a newer one is known. sweep
// says that sessions of older ones may be there and have to be ended.
func (f *fence) observe(about *box.Context) (sweep bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.observeLocked(about)
}

func (f *fence) observeLocked(about *box.Context) (sweep bool, err error) {
	w := workspace{about.InstanceUUID, about.WorkspaceUUID}
	s, err := f.of(w)
	if err != nil {
		return false, err
	}
	switch {
	case about.PlacementGeneration < s.Generation:
		return false, errStale
	case about.PlacementGeneration > s.Generation:
		m := s.mark
		m.Generation = about.PlacementGeneration
		if err := f.ledger.save(m); err != nil { // before anything is done for it
			return false, err
		}
		s.mark, s.swept = m, false
		f.at[w] = s
		for l := range s.calls {
			if l.generation < m.Generation {
				l.cancel(errStale)
			}
		}
	}
	return !s.swept, nil
}

// swept notes that the sessions of a workspace's other generations are gone.
func (f *fence) swept(about *box.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.at[workspace{about.InstanceUUID, about.WorkspaceUUID}]
	if s != nil && s.Generation == about.PlacementGeneration {
		s.swept = true
	}
}

// enter begins a call of a generation that must be the newest from now on; the
// context that it returns ends when there is a newer one.
func (f *fence) enter(ctx context.Context, about *box.Context) (_ context.Context, leave func(), sweep bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sweep, err = f.observeLocked(about); err != nil {
		return nil, nil, false, err
	}
	ctx, leave = f.leaseLocked(ctx, about)
	return ctx, leave, sweep, nil
}

// join is enter for what may not make a generation the newest: it has to be.
func (f *fence) join(ctx context.Context, about *box.Context) (_ context.Context, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.at[workspace{about.InstanceUUID, about.WorkspaceUUID}]
	if s == nil || s.Generation != about.PlacementGeneration {
		return nil, nil, errStale
	}
	ctx, leave = f.leaseLocked(ctx, about)
	return ctx, leave, nil
}

func (f *fence) leaseLocked(ctx context.Context, about *box.Context) (context.Context, func()) {
	s := f.at[workspace{about.InstanceUUID, about.WorkspaceUUID}]
	ctx, cancel := context.WithCancelCause(ctx)
	l := &lease{about.PlacementGeneration, cancel}
	s.calls[l] = struct{}{}
	return ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(s.calls, l)
		cancel(nil)
	}
}

// current reports whether a generation is still the newest.
func (f *fence) current(about *box.Context) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.at[workspace{about.InstanceUUID, about.WorkspaceUUID}]
	return s != nil && s.Generation == about.PlacementGeneration
}

// update changes what is kept of a workspace, after change allowed it.
func (f *fence) update(w workspace, change func(m *mark) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.of(w)
	if err != nil {
		return err
	}
	m := s.mark
	if err := change(&m); err != nil {
		return err
	}
	if m != s.mark {
		if err := f.ledger.save(m); err != nil {
			return err
		}
	}
	s.mark = m
	f.at[w] = s
	return nil
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
func (h *Handler) sweep(ctx context.Context, about *box.Context) error {
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
