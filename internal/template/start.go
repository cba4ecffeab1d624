package template

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Bounds of a Plan.
const (
	maxSteps    = 200
	maxArgs     = 1000
	maxArgBytes = 64 << 10
)

// Start begins a build that was asked for. It goes on by itself: see Build and
// Logs.
func (s *Service) Start(ctx context.Context, c sandbox.Caller, ref, build string, p Plan) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := s.o.Room(c.Owner, "build a template"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.buildLocked(c, ref, build)
	if err != nil {
		return err
	}
	if r.Started || r.done() {
		return sandbox.Errorf(sandbox.Conflict, "build %s: it was started before", r.ID).WithHint("ask for another build")
	}
	queued := 0
	for id := range s.running {
		if s.builds[id].Owner == c.Owner {
			queued++
		}
	}
	if queued >= maxQueued+s.o.PerOwner {
		return sandbox.Errorf(sandbox.Exhausted, "builds: %d wait already", queued).WithHint("try again when some are done")
	}
	next := r.clone()
	next.Started, next.UpdatedAt = true, s.stamp()
	next.Network, next.Policy = p.Network, policy.Clone(p.Policy)
	if p.Network == "" {
		next.Network, next.Policy = s.o.Network, policy.Clone(s.o.Policy)
	}
	if err := s.o.Store.PutBuild(ctx, next); err != nil {
		return err
	}
	*r = next
	if s.ctx.Err() != nil {
		return errClosing
	}
	work, cancel := context.WithCancelCause(s.ctx)
	under := &running{cancel: cancel, done: make(chan struct{})}
	s.running[r.ID] = under
	s.working.Go(func() {
		defer cancel(nil)
		s.work(work, r.ID, c.Owner, p)
		s.mu.Lock()
		delete(s.running, r.ID)
		s.mu.Unlock()
		close(under.done)
		if err := s.sweep(context.WithoutCancel(work), ""); err != nil {
			s.log.Warn("sweep snapshots of builds", "error", err)
		}
	})
	return nil
}

// check refuses what no build can do.
func (p Plan) check() error {
	if p.FromImage != "" && p.FromTemplate != "" {
		return sandbox.Errorf(sandbox.Invalid, "a build starts from an image or from a template, not from both")
	}
	if len(p.Steps) > maxSteps {
		return sandbox.Errorf(sandbox.Invalid, "steps: %d are too many", len(p.Steps)).WithHint("at most %d: join some", maxSteps)
	}
	for i, st := range p.Steps {
		if err := st.check(); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "step %d: %w", i+1, err)
		}
	}
	for _, text := range []string{p.FromImage, p.FromTemplate, p.StartCmd, p.ReadyCmd} {
		if len(text) > maxArgBytes || strings.ContainsRune(text, 0) {
			return sandbox.Errorf(sandbox.Invalid, "a command or a name is too long, or holds a NUL byte")
		}
	}
	if p.Network == "" && p.Policy == nil {
		return nil
	}
	if _, _, err := sandbox.ResolveNetwork(p.Network, p.Policy); err != nil {
		return err
	}
	return sandbox.CheckPolicy(p.Policy, nil)
}

func (st Step) check() error {
	total := 0
	for _, a := range st.Args {
		if total += len(a); strings.ContainsRune(a, 0) {
			return errors.New("an argument holds a NUL byte")
		}
	}
	if total > maxArgBytes || len(st.Args) > maxArgs {
		return fmt.Errorf("its arguments are too long, more than %d bytes", maxArgBytes)
	}
	n := len(st.Args)
	switch kind := strings.ToUpper(st.Type); kind {
	case "RUN":
		return count(kind, n >= 1 && n <= 2, "a command, and perhaps a user")
	case "COPY", "ADD":
		if err := count(kind, n >= 2 && n <= 4, "a source, a target, and perhaps an owner and a mode"); err != nil {
			return err
		}
		if !validHash(st.FilesHash) {
			return fmt.Errorf("%s: filesHash is not 64 hexadecimal digits", kind)
		}
		return nil
	case "WORKDIR":
		return count(kind, n == 1 && st.Args[0] != "", "a directory")
	case "USER":
		return count(kind, n >= 1 && n <= 2 && st.Args[0] != "", "a user")
	case "ENV", "ARG":
		return count(kind, n > 0 && n%2 == 0, "names and values")
	}
	return fmt.Errorf("%.40q: no such step; there are RUN, COPY, ADD, WORKDIR, USER, ENV and ARG", st.Type)
}

func count(kind string, ok bool, want string) error {
	if !ok {
		return fmt.Errorf("%s: it takes %s", kind, want)
	}
	return nil
}

// work carries one build to its end.
func (s *Service) work(ctx context.Context, id, owner string, p Plan) {
	j, err := s.logs.open(id)
	if err != nil {
		s.log.Error("write the log of a build", "build", id, "error", err)
		s.end(ctx, id, nil, &buildError{msg: "its log can't be written"})
		return
	}
	defer j.close()
	free, err := s.slots.take(ctx, owner, true)
	if err != nil {
		s.end(ctx, id, j, err)
		return
	}
	defer free()
	late := sandbox.Errorf(sandbox.Exhausted, "the build took longer than %v", s.o.Time)
	limited, cancel := context.WithTimeoutCause(ctx, s.o.Time, late)
	defer cancel()
	s.mu.Lock()
	r := s.builds[id]
	next := r.clone()
	next.Status, next.UpdatedAt = Building, s.stamp()
	if err = s.o.Store.PutBuild(limited, next); err == nil {
		*r = next
	}
	s.mu.Unlock()
	if err != nil {
		s.end(ctx, id, j, err)
		return
	}
	run := s.newRun(owner, p, j, next)
	err = run.do(limited)
	if err != nil && limited.Err() != nil {
		err = &buildError{step: run.step, msg: causeText(limited)}
	}
	if err != nil {
		s.end(ctx, id, j, err)
		return
	}
	j.settle()
	s.mu.Lock()
	done := run.result(r.clone())
	done.Status = Ready
	done.FinishedAt, done.UpdatedAt = s.stamp(), s.stamp()
	err = s.finishLocked(ctx, r, done)
	s.mu.Unlock()
	if err != nil {
		s.end(ctx, id, j, err)
		return
	}
	j.say(levelInfo, "Build finished")
}

// causeText says why a build was ended from outside.
func causeText(ctx context.Context) string {
	if e, ok := errors.AsType[*sandbox.Error](context.Cause(ctx)); ok {
		if e == errClosing {
			return "the build was interrupted: " + e.Msg
		}
		return e.Msg
	}
	return "the build was interrupted"
}

// end writes down that a build failed with err.
func (s *Service) end(ctx context.Context, id string, j *journal, err error) {
	why := &Reason{Message: "the build failed", Hint: sandbox.LogHint}
	if e, ok := errors.AsType[*buildError](err); ok {
		why = &Reason{Message: e.msg, Hint: e.hint, Step: e.step}
	} else if e, ok := errors.AsType[*sandbox.Error](err); ok {
		why.Message, why.Hint = e.Msg, e.Hint
	}
	s.log.Info("build failed", "build", id, "step", why.Step, "reason", why.Message, "error", err)
	if j != nil {
		j.flush()
		j.say(levelError, "Build failed: "+why.Text())
		j.settle()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.builds[id]
	if err := s.failLocked(ctx, r, why); err != nil {
		// The next daemon finds it unfinished, and says that it was interrupted.
		s.log.Error("write down the end of a build", "build", id, "error", err)
		r.Status, r.Reason = Failed, why
	}
}

// buildError is why a build fails, in words for who asked for it.
type buildError struct {
	step, msg, hint string
	err             error
}

// Error returns the words.
func (e *buildError) Error() string { return e.msg }

// Unwrap returns the cause, for the log.
func (e *buildError) Unwrap() error { return e.err }

// Make runs a plan as owner and returns what a sandbox of it starts from. It
// makes no template: what was done before is taken from the cache.
func (s *Service) Make(ctx context.Context, owner string, p Plan) (Build, error) {
	if err := p.check(); err != nil {
		return Build{}, err
	}
	// It waits for no build: one that starts from what this makes waits for it.
	free, err := s.slots.take(ctx, owner, false)
	if err != nil {
		return Build{}, err
	}
	defer free()
	s.made(1)
	defer s.made(-1)
	run := s.newRun(owner, p, nil, Record{ID: newUUID(), Owner: owner})
	run.unproved = true
	if err := run.do(ctx); err != nil {
		return Build{}, err
	}
	r := run.result(Record{})
	return Build{Image: r.Image, Snapshot: r.Snapshot, Env: r.Env, User: r.User, Cwd: r.Cwd, Startup: r.Startup}, nil
}

func (s *Service) made(n int) {
	s.mu.Lock()
	s.making += n
	s.mu.Unlock()
}

// sorted returns the keys of env in order.
func sorted(env map[string]string) []string {
	var keys []string
	for k := range env {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
