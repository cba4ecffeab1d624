package quota_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/session/quota"
)

// A writer that passes the limit is noticed while it writes.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	const limit = 8 << 20
	first := scan(t, dir, quota.Limits{Bytes: limit})
	for name, last := range map[string]*quota.Usage{"from-nothing": nil, "after-a-scan": &first} {
		t.Run(name, func(t *testing.T) {
			exceeded := make(chan quota.Usage, 1)
			w := quota.Watch{
				Dir: openDir(t, dir), Limits: quota.Limits{Bytes: limit}, Last: last,
				Exceeded: func(u quota.Usage) { exceeded <- u },
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ran := make(chan bool, 1)
			go func() { ran <- w.Run(ctx) }()

			f, err := os.Create(dir + "/file")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
			chunk := make([]byte, 64<<10)
			for range limit / len(chunk) {
				if _, err := f.Write(chunk); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case u := <-exceeded:
				t.Fatalf("at its limit: %+v", u)
			case <-time.After(300 * time.Millisecond):
			}
			if _, err := f.Write(chunk); err != nil {
				t.Fatal(err)
			}
			if u := <-exceeded; !u.OverBytes {
				t.Errorf("%+v", u)
			}
			if !<-ran {
				t.Error("it does not say so")
			}
		})
	}
}

func TestWatchEndsWithItsCommand(t *testing.T) {
	dir := t.TempDir()
	w := quota.Watch{Dir: openDir(t, dir), Limits: quota.Limits{Bytes: 1}, Exceeded: func(quota.Usage) { t.Error("exceeded") }}
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if w.Run(ctx) {
		t.Error("an empty tree is over its limit")
	}
}

// A tree that takes long to count is counted less often.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		cost, since time.Duration
		lost        int64 // of the file system's space
		want        bool
	}{
		"at-first":               {0, 0, 0, false},
		"cheap":                  {time.Millisecond, 100 * time.Millisecond, 0, true},
		"dear-and-soon":          {100 * time.Millisecond, 900 * time.Millisecond, 0, false},
		"dear":                   {100 * time.Millisecond, time.Second, 0, true},
		"very-dear":              {2 * time.Second, 4 * time.Second, 0, false},
		"very-dear-and-late":     {2 * time.Second, 5 * time.Second, 0, true},
		"dear-and-filling":       {100 * time.Millisecond, 200 * time.Millisecond, 101, true},
		"dear-and-filling-still": {100 * time.Millisecond, 199 * time.Millisecond, 101, false},
		"dear-and-room-is-left":  {100 * time.Millisecond, 200 * time.Millisecond, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quota.Due(c.cost, c.since, 100, c.lost); got != c.want {
				t.Errorf("due: %v", got)
			}
		})
	}
}

func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	const files = 20_000
	many(b, dir, files)
	root := openDir(b, dir)
	for b.Loop() {
		if u, err := quota.Scan(b.Context(), root, quota.Limits{}); err != nil || u.Over() {
			b.Fatal(u, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/files, "ns/entry")
}

// BenchmarkNotice is for how long a writer that passes the limit goes on
// unnoticed, beside a tree of 20,000 files.
func BenchmarkNotice(b *testing.B) {
	dir := b.TempDir()
	many(b, dir, 20_000)
	root := openDir(b, dir)
	const limit = 4 << 20
	limits := quota.Limits{Bytes: limit}
	last, err := quota.Scan(b.Context(), root, limits)
	if err != nil {
		b.Fatal(err)
	}
	chunk := make([]byte, limit)
	var worst time.Duration
	for b.Loop() {
		if err := os.WriteFile(dir+"/file", chunk, 0o600); err != nil {
			b.Fatal(err)
		}
		noticed := make(chan struct{})
		w := quota.Watch{Dir: root, Limits: limits, Last: &last, Exceeded: func(quota.Usage) { close(noticed) }}
		go w.Run(b.Context())
		begin := time.Now()
		if err := os.WriteFile(dir+"/more", chunk, 0o600); err != nil {
			b.Fatal(err)
		}
		<-noticed
		worst = max(worst, time.Since(begin))
		_, _ = os.Remove(dir+"/file"), os.Remove(dir+"/more")
	}
	b.ReportMetric(float64(worst.Milliseconds()), "worst-ms")
}
