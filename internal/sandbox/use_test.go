package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

func TestEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		d.Stop(t.Context(), ann, "web")
		d.Start(t.Context(), ann, "web")
		long := sandbox.Event{Type: strings.Repeat("é", 200), Message: strings.Repeat("\xff", 5000)}
		if err := d.Record(t.Context(), ann, "web", long); err != nil {
			t.Fatal(err)
		}
		wantKind(t, "Record", d.Record(t.Context(), bob, "web", long), sandbox.NotFound)
		evs, err := d.Events(t.Context(), ann, "web")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ev := range evs {
			got = append(got, ev.Message)
			if ev.Time.IsZero() || len(ev.Type) > 64 || len(ev.Message) > sandbox.MaxEventMessage {
				t.Errorf("event %+v is not within bounds", ev)
			}
		}
		want := []string{"created behind gvisor", "started", "stopped: stopped; lost: processes", "started again, 2 times in all"}
		if d := cmp.Diff(want, got[:4]); d != "" || len(got) != 5 {
			t.Errorf("events (-want +got):\n%s", d)
		}
	})
}

func TestDeathOfAnInstance(t *testing.T) {
	for _, reason := range []sandbox.EndReason{sandbox.EndOutOfMemory, sandbox.EndCrashed, sandbox.EndRebooted} {
		t.Run(string(reason), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, d *daemon) {
				w.fake.SetLost("processes", "root changes")
				sb := create(t, d, sandbox.Spec{Name: "web"})
				w.fake.Die(sb.ID, reason)
				synctest.Wait()
				dead := wantState(t, d, "web", sandbox.StateStopped, reason)
				if d := cmp.Diff([]string{"processes", "root changes"}, dead.Lost); d != "" {
					t.Errorf("Lost (-want +got):\n%s", d)
				}
				_, err := d.Dial(t.Context(), ann, "web", sandbox.GuestPort)
				wantKind(t, "Dial", err, sandbox.Conflict)
				back, notice, err := d.EnsureRunning(t.Context(), ann, "web")
				if err != nil || back.State != sandbox.StateRunning {
					t.Fatalf("EnsureRunning = %+v, %v", back, err)
				}
				want := " and was started again: its processes and root changes are lost"
				if !strings.HasPrefix(notice, "sandbox web ") || !strings.HasSuffix(notice, want) {
					t.Errorf("notice = %q", notice)
				}
				if _, notice, err := d.EnsureRunning(t.Context(), ann, "web"); notice != "" || err != nil {
					t.Errorf("EnsureRunning of a running one = %q, %v", notice, err)
				}
				// The watcher of the second life works too, and that of the first is gone.
				w.fake.Die(sb.ID, reason)
				synctest.Wait()
				wantState(t, d, "web", sandbox.StateStopped, reason)
			})
		})
	}
}

// A port that is asked for while its owner stops the sandbox is told that, and not of a
// crash.
func TestDialDuringAStop(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		w.fake.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
			if op != sandboxtest.Dial {
				return nil
			}
			if _, err := d.Stop(t.Context(), ann, "web"); err != nil {
				t.Error(err)
			}
			return errors.New("reset by its end")
		})
		_, err := d.Dial(t.Context(), ann, "web", 80)
		wantKind(t, "Dial", err, sandbox.Conflict)
		if err == nil || !strings.Contains(err.Error(), "it is stopped") {
			t.Errorf("Dial = %v", err)
		}
	})
}

func TestEnsureRunningLeavesStoppedOnes(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *world, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		create(t, d, sandbox.Spec{Name: "old", TTL: time.Minute})
		d.Stop(t.Context(), ann, "web")
		pass(2 * time.Minute)
		wantState(t, d, "old", sandbox.StateStopped, sandbox.EndExpired)
		for _, ref := range []string{"web", "old"} {
			_, _, err := d.EnsureRunning(t.Context(), ann, ref)
			wantKind(t, "EnsureRunning", err, sandbox.Conflict)
			if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Hint != "carboy start "+ref {
				t.Errorf("EnsureRunning = %#v, want a hint", err)
			}
			if _, err := d.Start(t.Context(), ann, ref); err != nil {
				t.Errorf("Start: %v", err)
			}
		}
	})
}

func TestDial(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		w.fake.SetServer(func(id string, port int, c net.Conn) {
			io.WriteString(c, id)
			c.Close()
		})
		sb := create(t, d, sandbox.Spec{Name: "web"})
		ctx, cancel := context.WithCancel(t.Context())
		c, err := d.Dial(ctx, ann, "web", sandbox.GuestPort)
		if err != nil {
			t.Fatal(err)
		}
		cancel() // bounds the dialling alone
		if b, err := io.ReadAll(c); string(b) != sb.ID || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
		w.fake.Close()
		for _, port := range []int{-1, 0, 65536} {
			_, err := d.Dial(t.Context(), ann, "web", port)
			wantKind(t, "Dial of an impossible port", err, sandbox.Invalid)
		}
		w.fake.SetServer(nil)
		_, err = d.Dial(t.Context(), ann, "web", 80)
		wantKind(t, "Dial of a silent port", err, sandbox.Unavailable)
		wantState(t, d, "web", sandbox.StateRunning, "")

		w.fake.Hang(sb.ID)
		_, err = d.Dial(t.Context(), ann, "web", sandbox.GuestPort)
		wantKind(t, "Dial of a hung instance", err, sandbox.Unavailable)
		wantState(t, d, "web", sandbox.StateRunning, "")
	})
}

// TestDialNoticesADeath: without Run there is no watcher, so Dial itself finds
// that the instance has ended.
func TestDialNoticesADeath(t *testing.T) {
	w := newWorld()
	m, err := sandbox.NewManager(sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	sb, err := m.Create(t.Context(), ann, sandbox.Spec{Name: "web"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.fake.Die(sb.ID, sandbox.EndOutOfMemory)
	_, err = m.Dial(t.Context(), ann, "web", sandbox.GuestPort)
	wantKind(t, "Dial", err, sandbox.Unavailable)
	_, notice, err := m.EnsureRunning(t.Context(), ann, "web")
	if want := "sandbox web ran out of memory and was started again: its processes are lost"; notice != want || err != nil {
		t.Errorf("EnsureRunning = %q, %v; want %q", notice, err, want)
	}
	w.check(t)
}

func TestChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, d *daemon) {
		sb := create(t, d, sandbox.Spec{Name: "web", Workspace: cow()})
		w.fake.SetChanges(sb.ID, []byte("M a.txt"))
		for range 2 {
			var b bytes.Buffer
			if err := d.Changes(t.Context(), ann, "web", sandbox.ChangesOptions{}, &b); err != nil || b.String() != "M a.txt" {
				t.Errorf("Changes = %q, %v", b.String(), err)
			}
			d.Stop(t.Context(), ann, "web")
		}
	})
}
