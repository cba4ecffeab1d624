package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
)

// BenchmarkSnapshot measures, behind each wall, a snapshot of a running sandbox
// with some hundred files, a create from it to the first command's output, and
// in turn a plain create to the same.
func BenchmarkSnapshot(b *testing.B) {
	for _, wall := range wallNames {
		b.Run(wall, func(b *testing.B) {
			h := newHome(b)
			name := h.create("--isolation", wall)
			h.ok("exec", name, "--", "sh", "-c", "cd; for i in $(seq 300); do head -c 20000 /dev/urandom > f$i; done")
			c := h.client(b)
			snap, err := c.Snapshot(b.Context(), name)
			if err != nil {
				b.Fatal(err)
			}
			var saves, plain, over []time.Duration
			cold := 0
			for b.Loop() {
				start := time.Now()
				s, err := c.Snapshot(b.Context(), name)
				if err != nil {
					b.Fatal(err)
				}
				saves = append(saves, time.Since(start))
				if err := c.RemoveSnapshot(b.Context(), s.ID); err != nil {
					b.Fatal(err)
				}
				// Limits of its own keep each from being taken from the pool.
				cold++
				plain = append(plain, h.firstOutput(b, c, api.CreateRequest{Isolation: wall, Limits: api.Limits{PIDs: 200 + int64(cold)}}))
				over = append(over, h.firstOutput(b, c, api.CreateRequest{Isolation: wall, Snapshot: snap.ID, Limits: api.Limits{PIDs: 5000 + int64(cold)}}))
			}
			report(b, "snapshot", saves)
			report(b, "create", plain)
			report(b, "create-over", over)
			b.ReportMetric(float64(median(over))/float64(median(plain)), "ratio")
		})
	}
}

// firstOutput goes from create to a command's output, and removes the sandbox.
func (h *home) firstOutput(b *testing.B, c *client.Client, req api.CreateRequest) time.Duration {
	b.Helper()
	start := time.Now()
	sb, err := c.Create(b.Context(), req)
	if err != nil {
		b.Fatal(err)
	}
	var out strings.Builder
	if _, err := c.Exec(b.Context(), sb.ID, client.ExecOptions{
		Command: &guestv1.Command{Argv: []string{"echo", "hello"}}, Stdout: &out,
	}); err != nil || out.String() != "hello\n" {
		b.Fatal(fmt.Sprintf("%q", out.String()), err)
	}
	took := time.Since(start)
	if err := c.Remove(b.Context(), sb.ID, true); err != nil {
		b.Fatal(err)
	}
	return took
}
