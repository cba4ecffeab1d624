package sandbox_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// askedNames are the records of one instance without a link.
type askedNames struct {
	mu      sync.Mutex
	records []netlog.Record
}

func (a *askedNames) add(host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, netlog.Record{Seq: uint64(len(a.records)) + 1, Host: host, Verdict: netlog.Deny})
}

func (a *askedNames) Asked(context.Context, string, func(context.Context) (net.Conn, error)) ([]netlog.Record, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.records), nil
}

func (a *askedNames) Keep(context.Context, sandbox.EndedNet) error { return nil }

func (a *askedNames) Kept(ctx context.Context, _, _ string, _ bool) ([]netlog.Record, error) {
	return a.Asked(ctx, "", nil)
}

// A follower of a sandbox without a network gets each name once, and ends with it.
func TestFollowAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, names := newWorld(), new(askedNames)
		d := w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}, NetRecords: names})
		defer d.shutdown()
		sb, err := d.Create(t.Context(), ann, sandbox.Spec{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		names.add("one")
		var got []string
		done := make(chan error, 1)
		go func() {
			done <- d.NetLog(t.Context(), ann, sb.ID, sandbox.NetLogOptions{Follow: true}, func(r netlog.Record) error {
				got = append(got, r.Host)
				return nil
			})
		}()
		synctest.Wait()
		names.add("two")
		<-time.After(5 * time.Second)
		select {
		case err := <-done:
			t.Fatalf("it ended while the sandbox ran: %v", err)
		default:
		}
		names.add("three")
		if _, err := d.Stop(t.Context(), ann, sb.ID); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Errorf("NetLog = %v, %q", err, got)
		}
	})
}
