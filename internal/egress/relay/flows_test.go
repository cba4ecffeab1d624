package relay_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/relay"
	"github.com/carboy-sandbox/carboy/internal/policy"
)

func info(addr, name string) relay.Info {
	return relay.Info{Stream: policy.Stream{
		Conn: policy.Conn{Addr: netip.MustParseAddrPort(addr)},
		Name: name,
	}}
}

func mustOpen(t *testing.T, f *relay.Flows, i relay.Info) *relay.Flow {
	t.Helper()
	w, err := f.Open(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestFlowsBounds(t *testing.T) {
	f := relay.NewFlows(3, 2)
	a1 := mustOpen(t, f, info("192.0.2.1:443", ""))
	mustOpen(t, f, info("192.0.2.1:443", ""))
	if _, err := f.Open(t.Context(), info("192.0.2.1:443", "")); !errors.Is(err, relay.ErrTooManyDestination) {
		t.Errorf("a third to one destination: %v", err)
	}
	mustOpen(t, f, info("192.0.2.1:80", ""))
	if _, err := f.Open(t.Context(), info("192.0.2.2:443", "")); !errors.Is(err, relay.ErrTooMany) {
		t.Errorf("a fourth: %v", err)
	}
	a1.Close()
	a1.Close()
	if f.Len() != 2 {
		t.Errorf("%d are open, want 2", f.Len())
	}
	mustOpen(t, f, info("192.0.2.1:443", ""))
	if _, err := f.Open(t.Context(), info("192.0.2.2:443", "")); err == nil {
		t.Error("closing one twice made place for two")
	}
}

func TestFlowsWithoutBounds(t *testing.T) {
	f := relay.NewFlows(0, 0)
	for range 5000 {
		mustOpen(t, f, info("192.0.2.1:443", ""))
	}
}

func TestFlowsRecheck(t *testing.T) {
	f := relay.NewFlows(0, 0)
	kept := mustOpen(t, f, info("192.0.2.1:443", "a.example"))
	doomed := mustOpen(t, f, info("192.0.2.2:443", ""))
	begun := doomed.Info().Begun
	doomed.Update(func(i *relay.Info) {
		*i = relay.Info{Sniffed: true}
		i.Name = "b.example"
	})
	if i := doomed.Info(); i.Addr.String() != "192.0.2.2:443" || i.Begun != begun || i.Name != "b.example" {
		t.Errorf("after Update: %+v", i)
	}
	cut := f.Recheck(func(i relay.Info) (bool, string) {
		return i.Name != "b.example", "b.example is not allowed any more"
	})
	if cut != 1 {
		t.Errorf("%d were cut", cut)
	}
	why, ok := errors.AsType[*relay.CutError](context.Cause(doomed.Context()))
	if !ok || why.Reason != "b.example is not allowed any more" {
		t.Errorf("the cause is %v", context.Cause(doomed.Context()))
	}
	if kept.Context().Err() != nil {
		t.Error("another was cut as well")
	}
	doomed.Close()
	kept.Close()
	if kept.Context().Err() == nil || f.Len() != 0 {
		t.Errorf("%d are open after all were closed", f.Len())
	}
}

// What a recheck cuts is cut on the wire.
func TestRecheckCutsRelay(t *testing.T) {
	f := relay.NewFlows(0, 0)
	w := mustOpen(t, f, info("192.0.2.1:443", "a.example"))
	c := newChain(t, w.Context(), true, relay.Options{})
	if f.Recheck(func(relay.Info) (bool, string) { return true, "" }) != 0 {
		t.Error("something was cut that may go on")
	}
	if _, err := c.guest.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.server.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	f.Recheck(func(relay.Info) (bool, string) { return false, "gone" })
	if got := await(t, c.result); got.End != relay.EndCut || got.Err.Error() != "cut: gone" {
		t.Errorf("%+v", got)
	}
	if _, err := c.guest.Read(make([]byte, 1)); err == nil {
		t.Error("the guest's connection is open still")
	}
}

// Settle waits for what was cut, and for nothing else.
func TestFlowsSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := relay.NewFlows(0, 0)
		stays, err := f.Open(t.Context(), relay.Info{Rule: "stays"})
		if err != nil {
			t.Fatal(err)
		}
		defer stays.Close()
		f.Settle(t.Context())
		goes, err := f.Open(t.Context(), relay.Info{Rule: "goes"})
		if err != nil {
			t.Fatal(err)
		}
		f.Recheck(func(i relay.Info) (bool, string) { return i.Rule == "stays", "gone" })

		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f.Settle(soon) // which nobody closes
		if soon.Err() == nil {
			t.Error("it did not wait for what was cut")
		}
		settled := make(chan struct{})
		go func() { f.Settle(t.Context()); close(settled) }()
		synctest.Wait()
		select {
		case <-settled:
			t.Error("it did not wait for what was cut")
		default:
		}
		goes.Close()
		<-settled
	})
}
