package netlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
)

func TestReadOptions(t *testing.T) {
	l := newLog(t)
	w, end := l.open(t, netlog.MinLimit)
	for i := range 10 {
		w.Add(allow(i))
		w.Add(deny(fmt.Sprintf("%d.example", i)))
	}
	end()
	numbers := func(o netlog.Options) (out []uint64) {
		for _, r := range l.read(t, o) {
			out = append(out, r.Seq)
		}
		return out
	}
	tests := []struct {
		name string
		o    netlog.Options
		want []uint64
	}{
		{"after", netlog.Options{After: 17}, []uint64{18, 19, 20}},
		{"after-all", netlog.Options{After: 20}, nil},
		{"denied", netlog.Options{Denied: true, After: 13}, []uint64{14, 16, 18, 20}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, numbers(tt.o)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
	stop := errors.New("enough")
	if err := netlog.Read(t.Context(), l.a, l.b, netlog.Options{}, func(netlog.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Read = %v, want yield's error", err)
	}
}

func TestReadWithoutFiles(t *testing.T) {
	if got := newLog(t).read(t, netlog.Options{}); len(got) != 0 {
		t.Errorf("%d records", len(got))
	}
}

// A reader that follows gets everything that is there long enough, in order,
// while the files take turns many times.
func TestReadFollows(t *testing.T) {
	l := newLog(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const total = 5000
	var (
		got  []netlog.Record
		seen = make(chan uint64, total)
		wg   sync.WaitGroup
	)
	wg.Go(func() {
		err := netlog.Read(ctx, l.a, l.b, netlog.Options{Follow: true, Poll: 100_000}, func(r netlog.Record) error {
			got = append(got, r)
			seen <- r.Seq
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Read = %v", err)
		}
	})
	w, end := l.open(t, netlog.MinLimit)
	read := uint64(0)
	for i := range total {
		w.Add(allow(i))
		for uint64(i)-read > 300 { // less than a file holds
			read = <-seen
		}
	}
	end()
	for read < total {
		read = <-seen
	}
	cancel()
	wg.Wait()
	if missing := inOrder(t, got); missing != 0 || len(got) != total {
		t.Errorf("%d records, %d missing", len(got), missing)
	}
}

// A reader that is slow misses records, and gets none twice, none out of order
// and none that was not written.
func TestReadUnderTurns(t *testing.T) {
	l := newLog(t)
	w, end := l.open(t, netlog.MinLimit)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				w.Add(allow(i))
			}
		}
	})
	for range 8 {
		got, last := l.read(t, netlog.Options{}), -1
		inOrder(t, got)
		for _, r := range got {
			if r.Code == netlog.CodeLost {
				continue // faster than the disk
			}
			var i int
			if _, err := fmt.Sscanf(r.Path, "/%d", &i); err != nil || i <= last {
				t.Fatalf("%q comes after %d: %v", r.Path, last, err)
			}
			last = i
		}
	}
	close(stop)
	wg.Wait()
	end()
}

func TestReadSkipsWhatIsNoRecord(t *testing.T) {
	l := newLog(t)
	lines := []string{
		`{"turn":1}`,
		`{"seq":1,"verdict":"allow"}`,
		`rubbish`, ``, `{"seq":0}`, `{"seq":-1}`, `{"seq":"2"}`, `[]`, "\x00\xff",
		`{"seq":2,"verdict":"deny","host":"` + strings.Repeat("a", 10_000) + `"}`,
		`{"seq":3,"host":"` + strings.Repeat("a", 300_000) + `"}`,
		`{"seq":4,"verdict":"allow","unknown":1}`,
		`{"seq":2,"verdict":"allow"}`,
		`{"seq":5,"verdict":"allow"`,
	}
	if err := os.WriteFile(l.a, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for _, r := range l.read(t, netlog.Options{}) {
		got = append(got, r.Seq)
		if len(r.Host) > 255 {
			t.Errorf("a host of %d bytes", len(r.Host))
		}
	}
	if diff := cmp.Diff([]uint64{1, 2, 4}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Whatever is in the files: what is read is in order, bounded, and of a file
// that a writer can go on with.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"turn\":1}\n{\"seq\":1}\n{\"seq\":3}\n"), []byte("{\"turn\":2}\n{\"seq\":2}\n{\"seq\":4,\"verdict\":\"deny\"}\n"))
	f.Add([]byte("{\"turn\":1}\n\n\n{\"seq\":1}"), []byte(""))
	f.Add([]byte("{\"turn\":18446744073709551615}\n{\"seq\":18446744073709551615}\n"), []byte("x"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, a, b []byte) {
		l := log{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
		for path, data := range map[string][]byte{l.a: a, l.b: b} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before := l.read(t, netlog.Options{})
		inOrder(t, before)
		w, end := l.open(t, netlog.MinLimit)
		w.Add(allow(1))
		end()
		after := l.read(t, netlog.Options{})
		inOrder(t, after)
		if len(after) == 0 || after[len(after)-1].Path != "/1" {
			t.Errorf("of %d records the last is not the one that was added", len(after))
		}
	})
}

func BenchmarkRead(b *testing.B) {
	l := newLog(b)
	w, end := l.open(b, 8<<20)
	for i := range 10_000 {
		w.Add(allow(i))
		if i%500 == 0 {
			_ = w.Flush(b.Context())
		}
	}
	end()
	for b.Loop() {
		if n := len(l.read(b, netlog.Options{})); n != 10_000 {
			b.Fatal(n)
		}
	}
}
