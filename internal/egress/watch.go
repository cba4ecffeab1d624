package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/egress/link"
	"github.com/carboy-sandbox/carboy/internal/role"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// A gate that dies is started again at once, and later if it died young: ever
// later, but within a second if it had come to serve.
const (
	restartDelay = 100 * time.Millisecond
	servedDelay  = 400 * time.Millisecond
	longestDelay = 10 * time.Second
	youngDeath   = 5 * time.Second
)

// watch starts the gate again when it ends, until the watcher is ended. A gate
// that this process did not start has no channel that tells of its end.
func (g *Gates) watch(one *gate, ended <-chan struct{}) {
	ctx, cancel := context.WithCancel(g.closing)
	one.mu.Lock()
	one.unlink = cancel
	if one.asking == nil {
		one.asking = make(chan struct{}, 1)
	}
	id := one.state.Process
	one.mu.Unlock()
	g.tasks.Go(func() { g.answerWants(ctx, one) })
	g.tasks.Go(func() { g.attend(ctx, one) })
	g.tasks.Go(func() {
		defer cancel()
		began := time.Now()
		if !waitEnd(ctx, id, ended) {
			return
		}
		cancel()
		g.opts.Log.Warn("a gate ended by itself", "id", one.id, "pid", id.PID, "said", lastWords(one.dir))
		g.restart(one, one.mourn(time.Since(began) < youngDeath))
	})
}

// lastWords are the first lines of what a gate said when it crashed.
func lastWords(dir string) string {
	f, err := os.Open(filepath.Join(dir, fileCrash))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, role.MaxWords))
	return string(b)
}

// waitEnd reports whether the gate ended, rather than ctx.
func waitEnd(ctx context.Context, id procid.ID, ended <-chan struct{}) bool {
	if ended != nil {
		select {
		case <-ended:
			return ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
	h, err := procid.Open(id)
	if errors.Is(err, procid.ErrGone) {
		return true
	}
	if err != nil { // the link tells whether it lives: two can't hold it
		return ctx.Err() == nil
	}
	defer h.Close()
	_, err = h.Wait(ctx)
	return ctx.Err() == nil && (err == nil || !h.Alive())
}

// restart starts a gate once more, as often as it takes, until its instance has
// ended or this daemon has. A process that was started has a watcher of its
// own.
func (g *Gates) restart(one *gate, delay time.Duration) {
	for {
		select {
		case <-g.closing.Done():
			return
		case <-time.After(delay):
		}
		err := g.rejoin(g.closing, one)
		if err == nil || errors.Is(err, errReleased) || errors.Is(err, errStillborn) {
			return
		}
		g.opts.Log.Error("start a gate again", "id", one.id, "err", err)
		delay = min(max(2*delay, restartDelay), longestDelay)
	}
}

// mourn returns how long to wait before a gate is started again.
func (one *gate) mourn(young bool) time.Duration {
	one.mu.Lock()
	defer one.mu.Unlock()
	if !young {
		one.deaths = 0
		return 0
	}
	delay := min(restartDelay<<min(one.deaths, 7), longestDelay)
	one.deaths++
	if one.born.served() {
		return min(delay, servedDelay)
	}
	return delay
}

var (
	errReleased  = errors.New("the gate is no longer wanted")
	errStillborn = errors.New("the gate does not serve")
)

// rejoin starts the process of a gate whose link stands. One that does not
// serve is ended, for its watcher to start the next.
func (g *Gates) rejoin(ctx context.Context, one *gate) error {
	if err := g.attach(ctx, one); err != nil {
		return err
	}
	err := one.await(ctx)
	if err == nil || g.closing.Err() != nil {
		return err
	}
	g.opts.Log.Error("a gate was started and does not serve", "id", one.id, "err", err)
	one.mu.Lock()
	id := one.state.Process
	one.mu.Unlock()
	return errors.Join(errStillborn, err, end(ctx, id, false))
}

func (g *Gates) attach(ctx context.Context, one *gate) error {
	one.life.Lock()
	defer one.life.Unlock()
	tap, err := one.tap()
	if err != nil {
		return err
	}
	defer tap.Close()
	return g.start(ctx, one, tap)
}

// tap opens the link for one more gate.
func (one *gate) tap() (*os.File, error) {
	if rootless() {
		return one.heldAgain()
	}
	one.mu.Lock()
	netns := one.netns
	one.mu.Unlock()
	if netns == nil {
		return nil, errReleased
	}
	tap, err := link.Attach(netns)
	if err != nil {
		return nil, fmt.Errorf("attach to the link: %w", err)
	}
	return tap, nil
}

// await waits until the gate serves, or can't.
func (one *gate) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, errors.New("the gate took too long to start"))
	defer cancel()
	one.mu.Lock()
	born := one.born
	one.mu.Unlock()
	select {
	case <-born.done:
		return born.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Adopt implements sandbox.Gate. It may be called again after it failed.
func (g *Gates) Adopt(ctx context.Context, sb *sandbox.Sandbox, netns *os.File) error {
	g.forget(sb.ID)
	dir, err := g.dir(sb.ID)
	if err != nil {
		return errors.Join(err, netns.Close())
	}
	st, err := load(dir)
	if err != nil {
		return errors.Join(err, netns.Close())
	}
	if st.Cert == "" {
		return errors.Join(errors.New("adopt a gate: there is none"), netns.Close())
	}
	one := &gate{id: sb.ID, dir: dir, sb: sb.Clone(), state: st, netns: netns, born: newBirth()}
	if rootless() {
		if err := g.holdAdopted(one); err != nil {
			return errors.Join(err, netns.Close())
		}
	}
	g.add(one)
	if !procid.Alive(st.Process) {
		err := g.rejoin(ctx, one)
		if err != nil && !errors.Is(err, errStillborn) {
			g.tasks.Go(func() { g.restart(one, restartDelay) })
		}
		return err
	}
	one.born.end(nil)
	g.watch(one, nil)
	if err := g.tell(ctx, one); err != nil { // what changed while nobody could
		return err
	}
	return one.put(ctx, pathRecord, nil) // the daemon that should have said so may have died
}

// release ends the watcher and gives up the namespace.
func (one *gate) release() {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.unlink != nil {
		one.unlink()
	}
	if one.netns != nil {
		_ = one.netns.Close()
	}
	one.held.close()
	one.netns, one.held, one.unlink = nil, nil, nil
}

// Close implements sandbox.Gate.
func (g *Gates) Close(ctx context.Context, id string) error {
	dir, err := g.dir(id)
	if err != nil {
		return err
	}
	g.forget(id)
	st, err := load(dir)
	if err != nil { // the instance, as a part of which it ends too, must not be kept from ending
		g.opts.Log.Error("look for the process of a gate", "id", id, "err", err)
		return nil
	}
	return end(ctx, st.Process, true)
}

// forget ends the watching over a gate, and returns when nothing is started
// or told on its behalf any more.
func (g *Gates) forget(id string) {
	g.mu.Lock()
	one := g.gates[id]
	delete(g.gates, id)
	g.mu.Unlock()
	if one == nil {
		return
	}
	one.release()
	one.life.Lock()
	one.release() // of what was just being started
	one.life.Unlock()
	one.telling.Lock()
	defer one.telling.Unlock() // nothing is being told any more
}

// end kills a gate, and waits until it is gone if that is asked.
func end(ctx context.Context, id procid.ID, wait bool) error {
	if id.IsZero() {
		return nil
	}
	h, err := procid.Open(id)
	if errors.Is(err, procid.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Kill(); err != nil {
		return fmt.Errorf("end the gate: %w", err)
	}
	if wait {
		_, err = h.Wait(ctx)
	}
	return err
}

// Remove implements sandbox.Gate.
func (g *Gates) Remove(ctx context.Context, id string) error {
	dir, err := g.dir(id)
	if err != nil {
		return err
	}
	if err := g.opts.Secrets.RemoveFor(ctx, id); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("delete the gate's directory: %w", err)
	}
	return nil
}

// Gates implements sandbox.Gate.
func (g *Gates) Gates(context.Context) ([]string, error) {
	ids, err := g.opts.Secrets.Sandboxes()
	entries, direrr := os.ReadDir(filepath.Join(g.opts.State, "gates"))
	if !errors.Is(direrr, os.ErrNotExist) {
		err = errors.Join(err, direrr)
	}
	for _, e := range entries {
		if validID().MatchString(e.Name()) && !slices.Contains(ids, e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}
