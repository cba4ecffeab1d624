package egress

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// kill ends the gate by force, and waits until another serves. It returns how
// long nothing could be asked of one.
func (w *watched) kill() time.Duration {
	w.t.Helper()
	old := w.pid()
	began := time.Now()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	until(w.t, "another gate", func() bool {
		st, err := w.status()
		return err == nil && st.PID != old
	})
	return time.Since(began)
}

// TestGateIsKilled: it is back, on the same link, and no packet passes in
// between.
func TestGateIsKilled(t *testing.T) {
	echoAt(t, worldA+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	old := w.echo(worldA + ":7000")
	for range 5 {
		t.Logf("away for %v", w.kill())
		w.echo(worldA + ":7000")
		if _, err := w.dial("tcp", worldB+":7000"); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("what the policy does not allow: %v", err)
		}
	}
	if err := echoes(old); err == nil {
		t.Error("a connection outlived the gate that carried it")
	}
	w.pid() // one, no more
}

// TestPolicyOutlivesTheGate: the next one goes by what was set last.
func TestPolicyOutlivesTheGate(t *testing.T) {
	echoAt(t, worldA+":7000")
	echoAt(t, worldB+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	w.sb.Spec.Policy = tcpTo(worldB, 7000)
	if err := w.g.Set(t.Context(), w.sb); err != nil {
		t.Fatal(err)
	}
	w.kill()
	w.echo(worldB + ":7000")
	if _, err := w.dial("tcp", worldA+":7000"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("what was allowed once: %v", err)
	}
}

// TestGateIsKilledWhileItIsVerified: who looks at the promise looks at the
// gate that comes.
func TestGateIsKilledWhileItIsVerified(t *testing.T) {
	w := newWatched(t, &policy.Policy{}).open()
	died := false
	how, err := w.g.Verify(t.Context(), w.sb, fakeAgent(func(f func()) error {
		if !died {
			died = true
			_ = syscall.Kill(w.pid(), syscall.SIGKILL)
		}
		return w.inside(func() error { f(); return nil })
	}))
	if err != nil || len(how) == 0 || !how[0].Enforced {
		t.Errorf("Verify: %+v, %v", how, err)
	}
	_, _ = w.dial("tcp", worldA+":7002")
	all := w.records(func(r netlog.Record) bool { return r.Address == worldA+":7002" })
	if len(all) != 1 {
		t.Errorf("records: %+v", all)
	}
}

// TestShut: the daemon leaves at once, and its gates go on.
func TestShut(t *testing.T) {
	echoAt(t, worldA+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	open := w.echo(worldA + ":7000")
	pid := w.pid()
	shut := make(chan error)
	go func() { shut <- w.g.Shut() }()
	select {
	case err := <-shut:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience.For(5 * time.Second)):
		t.Error("it waits for gates that go on")
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-shut
		return
	}
	if err := echoes(open); err != nil {
		t.Errorf("an open connection: %v", err)
	}
	w.echo(worldA + ":7000")
	if w.pid() != pid {
		t.Error("it is another gate")
	}
	w.g = w.daemon() // which ends it
}

// TestAdoptGate: another daemon takes over without a connection noticing, tells
// it what changed meanwhile, and starts it again when it dies.
func TestAdoptGate(t *testing.T) {
	echoAt(t, worldA+":7000")
	echoAt(t, worldB+":7000")
	p := tcpTo(worldA, 7000)
	p.Rules[0].Addresses = []string{worldA, worldB}
	w := newWatched(t, p).open()
	a, b := w.echo(worldA+":7000"), w.echo(worldB+":7000")
	pid := w.pid()
	if err := w.g.Shut(); err != nil {
		t.Fatal(err)
	}
	w.g = w.daemon()
	w.sb.Spec.Policy = tcpTo(worldA, 7000) // changed while nobody could tell
	w.adopt()
	if w.pid() != pid {
		t.Error("it is another gate")
	}
	if err := echoes(a); err != nil {
		t.Errorf("an open connection: %v", err)
	}
	if n, err := b.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("what is not allowed any more goes on: %d, %v", n, err)
	}
	t.Logf("away for %v", w.kill())
	w.echo(worldA + ":7000")
}

// netns is the sandbox's, as an instance that runs has it.
func (w *watched) netns() *os.File {
	w.t.Helper()
	f, err := dup(w.link.NetNS)
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (w *watched) adopt() {
	w.t.Helper()
	if err := w.g.Adopt(w.t.Context(), w.sb, w.netns()); err != nil {
		w.t.Fatalf("Adopt: %v\n%s", err, w.log)
	}
}

// TestAdoptDeadGate: one that died while no daemon was there is started again.
func TestAdoptDeadGate(t *testing.T) {
	echoAt(t, worldA+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	pid := w.pid()
	if err := w.g.Shut(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "its end", func() bool { id, err := procid.Of(pid); return err != nil || !procid.Alive(id) })
	if _, err := w.dialFor(200*time.Millisecond, "tcp", worldA+":7000"); err == nil {
		t.Error("without a gate something passes")
	}
	w.g = w.daemon()
	w.adopt()
	w.echo(worldA + ":7000")
	w.kill()
	w.echo(worldA + ":7000")
}

// TestAdoptTwice: whoever tries again takes over from itself: there is one
// gate, and one that watches over it.
func TestAdoptTwice(t *testing.T) {
	echoAt(t, worldA+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	if err := w.g.Shut(); err != nil {
		t.Fatal(err)
	}
	w.g = w.daemon()
	pid := w.pid()
	for range 3 {
		w.adopt()
	}
	if w.pid() != pid {
		t.Error("it is another gate")
	}
	w.kill()
	w.kill()
	w.echo(worldA + ":7000")
	w.pid()
	if n := strings.Count(w.log.String(), "a gate ended by itself"); n != 2 {
		t.Errorf("of two deaths %d were noticed", n)
	}
}

// TestAdoptNothing: what can't be taken over is said to be so, and leaves no
// namespace open.
func TestAdoptNothing(t *testing.T) {
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	other := *w.sb
	other.ID = "sb_zzzzzzzzzzzzzzzzzzzz"
	netns := w.netns()
	if err := w.g.Adopt(t.Context(), &other, netns); err == nil {
		t.Error("a gate that never was is adopted")
	}
	if err := netns.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the namespace is left open: %v", err)
	}
	other.ID = "../x"
	netns = w.netns()
	if err := w.g.Adopt(t.Context(), &other, netns); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("of %s: %v", other.ID, err)
	}
	if err := netns.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the namespace is left open: %v", err)
	}
}

// TestStillbornGates: one that can't serve is tried again, by one at a time
// and ever more seldom, and served once it can be.
func TestStillbornGates(t *testing.T) {
	echoAt(t, worldA+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	one := w.one()
	one.mu.Lock()
	cert := one.state.Cert
	one.state.Cert = "no certificate"
	one.mu.Unlock()
	if err := syscall.Kill(w.pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	most := 0
	until(t, "four attempts", func() bool {
		most = max(most, len(w.processes()))
		return strings.Count(w.log.String(), "does not serve") >= 4
	})
	if took := time.Since(began); took < time.Second {
		t.Errorf("four attempts in %v", took)
	}
	if most > 1 {
		t.Errorf("%d gates at once", most)
	}
	if _, err := w.dialFor(200*time.Millisecond, "tcp", worldA+":7000"); err == nil {
		t.Error("without a gate something passes")
	}
	one.mu.Lock()
	one.state.Cert = cert
	one.mu.Unlock()
	until(t, "a gate", func() bool { _, err := w.status(); return err == nil })
	w.echo(worldA + ":7000")
	w.pid()
}

// TestClose: nothing is left of a gate, whatever it was doing.
func TestClose(t *testing.T) {
	echoAt(t, worldA+":7000")
	tests := map[string]func(w *watched){
		"serves": func(w *watched) { w.echo(worldA + ":7000") },
		"starts": func(*watched) {},
		"killed": func(w *watched) { _ = syscall.Kill(w.pid(), syscall.SIGKILL) },
		"stopped": func(w *watched) {
			_ = syscall.Kill(w.pid(), syscall.SIGSTOP)
		},
		"unknown": func(w *watched) { _ = w.g.Shut(); w.g = w.daemon() },
		"without-a-process": func(w *watched) {
			one := w.one()
			w.g.forget(w.sb.ID)
			_ = syscall.Kill(w.pid(), syscall.SIGKILL)
			until(w.t, "its end", func() bool { return len(w.processes()) == 0 })
			if _, err := one.update(func(s *state) { s.Process = procid.ID{} }); err != nil {
				w.t.Fatal(err)
			}
		},
		"twice": func(w *watched) {
			if err := w.g.Close(w.t.Context(), w.sb.ID); err != nil {
				w.t.Error(err)
			}
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, tcpTo(worldA, 7000))
			l, err := w.g.Open(t.Context(), w.sb, sandbox.LinkNetNS, nil)
			if err != nil {
				t.Fatal(err)
			}
			w.link = l
			if name != "starts" {
				w.serves()
			}
			do(w)
		}) // its cleanup wants nothing left
	}
}

// TestCloseWhileItIsStartedAgain: one that is ended meanwhile stays ended.
func TestCloseWhileItIsStartedAgain(t *testing.T) {
	w := newWatched(t, tcpTo(worldA, 7000))
	for range 20 {
		l, err := w.g.Open(t.Context(), w.sb, sandbox.LinkNetNS, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.link = l
		w.serves()
		_ = syscall.Kill(w.pid(), syscall.SIGKILL)
		until(t, "that it is noticed", func() bool { return strings.Contains(w.log.String(), "ended by itself") })
		if err := w.g.Close(t.Context(), w.sb.ID); err != nil {
			t.Fatal(err)
		}
		until(t, "the end of all", func() bool { return len(w.processes()) == 0 })
		l.Close()
	}
}

// TestUnreadableState: a file that a power failure cut short keeps no sandbox
// from being ended and removed.
func TestUnreadableState(t *testing.T) {
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	pid := w.pid()
	if err := w.g.Shut(); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	until(t, "its end", func() bool { return len(w.processes()) == 0 })
	w.g = w.daemon()
	if err := os.WriteFile(filepath.Join(w.dir(), fileState), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.g.Adopt(t.Context(), w.sb, w.netns()); err == nil {
		t.Error("a gate without a state is adopted")
	}
	if err := w.g.Close(t.Context(), w.sb.ID); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestOpenAgain: a sandbox that is started again has the same authority and
// the same placeholders, and a link of its own.
func TestOpenAgain(t *testing.T) {
	w := newWatched(t, tcpTo(worldA, 7000))
	w.secrets.values["A"] = "hunter2"
	w.sb.Spec.Secrets = []string{"A"}
	w.open()
	first := w.link
	if err := w.g.Close(t.Context(), w.sb.ID); err != nil {
		t.Fatal(err)
	}
	first.Close()
	w.open()
	if w.link.Trust != first.Trust || w.link.Env["A"] != first.Env["A"] || w.link.Env["A"] == "" {
		t.Errorf("the second start: %+v, the first: %+v", w.link, first)
	}
	raw, err := os.ReadFile(filepath.Join(w.dir(), fileState))
	if err != nil || strings.Contains(string(raw), "hunter2") {
		t.Errorf("its state: %s, %v", raw, err)
	}
	st, err := os.Stat(w.dir())
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("others may look into its directory: %v, %v", st.Mode(), err)
	}
}

// TestNothingLeaks: many gates come and go, and this process holds as many
// descriptors as before.
func TestNothingLeaks(t *testing.T) {
	needRoot(t)
	once := func() {
		w := newWatched(t, tcpTo(worldA, 7000)).open()
		w.kill()
		if err := w.g.Close(t.Context(), w.sb.ID); err != nil {
			t.Fatal(err)
		}
		w.link.Close()
		w.link = nil
	}
	once()
	before := descriptors(t)
	for range 5 {
		once()
	}
	until(t, "as few descriptors as before", func() bool { return descriptors(t) <= before })
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestSetWhileItDies: whoever sets a policy either hears that it could not be
// told, or it holds.
func TestSetWhileItDies(t *testing.T) {
	echoAt(t, worldA+":7000")
	w := newWatched(t, tcpTo(worldA, 7000)).open()
	var deaths atomic.Int64
	stop := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := w.status(); err != nil {
				continue
			}
			for _, pid := range w.processes() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				deaths.Add(1)
			}
		}
	})
	told, untold := 0, 0
	for i := 0; deaths.Load() < 5; i++ {
		w.sb.Spec.Policy = tcpTo(worldA, 7001+i%100)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if w.g.Set(ctx, w.sb) == nil {
			told++
		} else {
			untold++
		}
		cancel()
	}
	close(stop)
	killer.Wait()
	t.Logf("told %d times, and not %d times, while gates died %d times", told, untold, deaths.Load())
	until(t, "a gate", func() bool { _, err := w.status(); return err == nil })
	if _, err := w.dial("tcp", worldA+":7000"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the first policy holds still: %v", err)
	}
	w.pid()
}
