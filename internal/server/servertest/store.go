package servertest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Records is a sandbox.Store in memory. The zero value is empty.
type Records struct {
	mu sync.Mutex
	m  map[string]*sandbox.Sandbox
}

var _ sandbox.Store = (*Records)(nil)

// Put implements sandbox.Store.
func (r *Records) Put(_ context.Context, sb *sandbox.Sandbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[string]*sandbox.Sandbox{}
	}
	r.m[sb.ID] = sb.Clone()
	return nil
}

// Get implements sandbox.Store.
func (r *Records) Get(_ context.Context, id string) (*sandbox.Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, ok := r.m[id]
	if !ok {
		return nil, sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", id)
	}
	return sb.Clone(), nil
}

// List implements sandbox.Store.
func (r *Records) List(context.Context) ([]*sandbox.Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*sandbox.Sandbox
	for _, id := range slices.Sorted(maps.Keys(r.m)) {
		out = append(out, r.m[id].Clone())
	}
	return out, nil
}

// Delete implements sandbox.Store.
func (r *Records) Delete(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, id)
	return nil
}
