package ingress

import (
	"context"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	// resumeLimit is how long a request waits for its sandbox to start.
	resumeLimit = time.Minute
	// resumeRetry is for how long a start that failed is not tried again.
	resumeRetry = time.Second
	// resumeWaiting is how many requests may wait for one sandbox.
	resumeWaiting = 1000
	// resumeTTL is the least that a sandbox has which a request started.
	resumeTTL = 5 * time.Minute
)

// resumes starts sandboxes for requests: each once, however many ask.
type resumes struct {
	m    Manager
	ctx  context.Context // ends when the server does
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	under map[string]*resume // by sandbox
}

// resume is one start, under way or failed a moment ago.
type resume struct {
	done    chan struct{}
	waiting int // guarded by resumes.mu

	// Set before done is closed.
	sb    *sandbox.Sandbox
	err   error
	until time.Time // the failure counts
}

func newResumes(m Manager) *resumes {
	r := &resumes{m: m, under: make(map[string]*resume)}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

func (r *resumes) close() {
	r.stop()
	r.wg.Wait()
}

// start returns the sandbox once it runs. A start goes on although who asked
// for it leaves.
func (r *resumes) start(ctx context.Context, id string) (*sandbox.Sandbox, error) {
	u, err := r.join(id)
	if err != nil {
		return nil, err
	}
	defer r.leave(u)
	select {
	case <-u.done:
		return u.sb, u.err
	case <-ctx.Done():
		return nil, sandbox.Errorf(sandbox.Unavailable, "the request ended before its sandbox was started")
	}
}

func (r *resumes) leave(u *resume) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.waiting--
}

// join returns the start of id that is under way, or begins one.
func (r *resumes) join(id string) (*resume, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for id, u := range r.under {
		if !u.until.IsZero() && now.After(u.until) {
			delete(r.under, id)
		}
	}
	u := r.under[id]
	if u == nil {
		u = &resume{done: make(chan struct{})}
		r.under[id] = u
		r.wg.Go(func() { r.run(id, u) })
	}
	if u.waiting >= resumeWaiting {
		e := sandbox.Errorf(sandbox.Exhausted, "more than %d requests wait for this sandbox to start", resumeWaiting)
		e.Retry = time.Second
		return nil, e
	}
	u.waiting++
	return u, nil
}

func (r *resumes) run(id string, u *resume) {
	ctx, cancel := context.WithTimeout(r.ctx, resumeLimit)
	defer cancel()
	sb, err := r.m.Start(ctx, anyone, id)
	if err == nil && !sb.ExpiresAt.IsZero() && sb.ExpiresAt.Sub(sb.StartedAt) < resumeTTL {
		// Less than usual is all that its owner may give it, where that is so.
		if longer, terr := r.m.SetTTL(ctx, anyone, id, resumeTTL); sandbox.KindOf(terr) != sandbox.Invalid {
			sb, err = longer, terr
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	u.sb, u.err = sb, err
	if err != nil {
		u.until = time.Now().Add(resumeRetry)
	} else {
		delete(r.under, id)
	}
	close(u.done)
}
