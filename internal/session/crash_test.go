package session_test

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// mortality is the life of a daemon that is killed at its n-th step: before or
// after something that it does to the world.
type mortality struct {
	left atomic.Int64 // steps until death; never reached from a negative number
	dead atomic.Bool
	life context.Context
	end  context.CancelFunc
}

func newMortality() *mortality {
	m := new(mortality)
	m.left.Store(-1)
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

// step ends the calling goroutine if the daemon is dead, or dies now.
func (m *mortality) step() {
	if m.dead.Load() || m.left.Add(-1) == 0 {
		m.dead.Store(true)
		m.end()
		runtime.Goexit()
	}
}

// mortalStore and mortalManager are the world as a mortal daemon sees it.
type mortalStore struct {
	session.Store
	*mortality
}

func (s mortalStore) SaveSession(ctx context.Context, r record.Session) error {
	s.step()
	defer s.step()
	return s.Store.SaveSession(ctx, r)
}

func (s mortalStore) DeleteSession(ctx context.Context, id string) error {
	s.step()
	defer s.step()
	return s.Store.DeleteSession(ctx, id)
}

type mortalManager struct {
	session.Manager
	*mortality
}

func (m mortalManager) Create(ctx context.Context, c sandbox.Caller, spec sandbox.Spec, values sandbox.SecretValues) (*sandbox.Sandbox, error) {
	m.step()
	defer m.step()
	return m.Manager.Create(ctx, c, spec, values)
}

func (m mortalManager) Start(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	m.step()
	defer m.step()
	return m.Manager.Start(ctx, c, ref)
}

func (m mortalManager) Stop(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error) {
	m.step()
	defer m.step()
	return m.Manager.Stop(ctx, c, ref)
}

func (m mortalManager) Remove(ctx context.Context, c sandbox.Caller, ref string, force bool) error {
	m.step()
	defer m.step()
	return m.Manager.Remove(ctx, c, ref, force)
}

func (m mortalManager) Dial(ctx context.Context, c sandbox.Caller, ref string, port int) (net.Conn, error) {
	if m.dead.Load() {
		return nil, net.ErrClosed
	}
	return m.Manager.Dial(ctx, c, ref, port)
}

// mortalRuntime makes a Runtime over d's manager that dies at its n-th step.
func (w *world) mortalRuntime(t fataler, d *daemon, n int) (*session.Runtime, *mortality, chan struct{}) {
	t.Helper()
	m := newMortality()
	r, err := session.New(session.Options{Manager: mortalManager{d.manager, m}, Store: mortalStore{&w.store, m}, Config: config()})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	if err := r.Open(context.Background()); err != nil {
		t.Fatalf("Open: %v", err)
	}
	m.left.Store(int64(n))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(m.life)
	}()
	return r, m, done
}

// Killed at any step, a daemon leaves nothing that the next one does not find:
// what was asked for last is done or is not, and all else is as it was.
func TestKilledAtEachStep(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(t fataler, d *daemon)
		do    func(r *session.Runtime) error
	}{
		{"create", nil, func(r *session.Runtime) error {
			_, err := asking{r}.Create(context.Background(), ann, asked("k", ""))
			return err
		}},
		{"delete", func(t fataler, d *daemon) { run(t, d, asked("k", "echo x")) }, func(r *session.Runtime) error {
			return r.Delete(context.Background(), ann, "k")
		}},
		{"replace", func(t fataler, d *daemon) {
			run(t, d, asked("k", "echo x"))
			sb, _ := d.manager.List(context.Background(), ann, sandbox.Filter{})
			_ = d.manager.Remove(context.Background(), ann, sb[0].ID, true)
		}, func(r *session.Runtime) error {
			_, err := asking{r}.Exec(context.Background(), ann, asked("k", "echo x"))
			return err
		}},
		{"wake", func(t fataler, d *daemon) {
			run(t, d, asked("k", "touch"))
			pass(ttl + time.Minute)
			wantSession(t, d, "k", true)
		}, func(r *session.Runtime) error {
			_, err := asking{r}.Exec(context.Background(), ann, asked("k", "echo x"))
			return err
		}},
		{"fall-asleep", func(t fataler, d *daemon) { run(t, d, asked("k", "touch")) }, func(*session.Runtime) error {
			pass(ttl + time.Minute)
			return nil
		}},
		{"reap", func(t fataler, d *daemon) { run(t, d, asked("k", "echo x")) }, func(*session.Runtime) error {
			pass(ttl + time.Minute)
			return nil
		}},
		{"start-process", func(t fataler, d *daemon) { run(t, d, asked("k", "echo x")) }, func(r *session.Runtime) error {
			_, err := r.StartProcess(context.Background(), ann, "k", sessions.ProcessSpec{Command: "serve"})
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for n := 1; ; n++ {
				died := false
				synctest.Test(t, func(t *testing.T) { died = killedOnce(t, n, tc.setup, tc.do) })
				if t.Failed() {
					t.Fatalf("killed at step %d", n)
				}
				if !died {
					if n < 3 {
						t.Errorf("there were %d steps to be killed at", n-1)
					}
					t.Logf("%d steps", n-1)
					return
				}
				if n > 50 {
					t.Fatal("it never ends")
				}
			}
		})
	}
}

func killedOnce(t *testing.T, n int, setup func(fataler, *daemon), do func(*session.Runtime) error) (died bool) {
	w := newWorld()
	d := w.boot(t, config())
	if setup != nil {
		setup(t, d)
	}
	d.Close() // its manager goes on
	r, m, ran := w.mortalRuntime(t, d, n)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := do(r); err != nil && !m.dead.Load() {
			t.Errorf("%v", err)
		}
	}()
	<-done
	died = m.dead.Load()
	m.dead.Store(true)
	m.end()
	<-ran
	r.Leave()
	d.manager.Close()
	d.stop()
	<-d.done

	d = w.boot(t, config())
	pass(time.Minute)
	w.agree(t, d)
	if wrong := d.Wrong(ann.Owner, nil); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
	if res := run(t, d, asked("k", "echo works")); string(res.Stdout) != "works\n" {
		t.Errorf("Exec = %+v", res)
	}
	if err := d.Delete(t.Context(), ann, "k"); err != nil {
		t.Error(err)
	}
	pass(time.Minute)
	if boxes, _ := w.fake.Instances(t.Context()); len(boxes) != 0 {
		t.Errorf("boxes %q are left", boxes)
	}
	d.shutdown()
	w.check(t)
	return died
}

// One that was killed while it deleted a session looked, as the next does, for processes in
// the sandbox of then. The call that makes the session anew runs in the new one.
func TestMadeAnewAfterAKill(t *testing.T) {
	for _, left := range []record.State{record.Closing, record.Creating} {
		t.Run(string(left), func(t *testing.T) {
			inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
				run(t, d, asked("k", "echo x"))
				d.Close() // its manager goes on
				records, err := w.store.Sessions(t.Context())
				if err != nil || len(records) != 1 {
					t.Fatal(records, err)
				}
				records[0].State = left
				if err := w.store.SaveSession(t.Context(), records[0]); err != nil {
					t.Fatal(err)
				}
				r, err := session.New(session.Options{Manager: d.manager, Store: &w.store, Config: config()})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if res, err := (asking{r}).Exec(t.Context(), ann, asked("k", "echo works")); err != nil || string(res.Stdout) != "works\n" {
					t.Errorf("Exec = %+v, %v", res, err)
				}
				r.Close()
			})
		})
	}
}

// agree wants sessions and sandboxes to be of each other, and none between
// states.
func (w *world) agree(t fataler, d *daemon) {
	t.Helper()
	records, _ := w.store.Sessions(context.Background())
	boxes, _ := d.manager.List(context.Background(), admin, sandbox.Filter{})
	byName := map[string]*sandbox.Sandbox{}
	for _, sb := range boxes {
		byName[sb.Spec.Name] = sb
	}
	for _, r := range records {
		sb := byName[r.Sandbox]
		delete(byName, r.Sandbox)
		switch {
		case r.State == record.Creating || r.State == record.Closing:
			t.Errorf("session %s is left %s", r.Key, r.State)
		case sb == nil: // its next call says so
		case r.State == record.Live && sb.State != sandbox.StateRunning && sb.Ended == sandbox.EndStopped:
			t.Errorf("session %s is live, and its sandbox %s", r.Key, sb.State)
		}
	}
	for name := range byName {
		t.Errorf("sandbox %s is left without a record", name)
	}
}
