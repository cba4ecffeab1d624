package netlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
)

// log is the two files of one sandbox.
type log struct{ a, b string }

func newLog(t testing.TB) log {
	dir := t.TempDir()
	return log{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
}

// open starts a writer on the files, which end closes.
func (l log) open(t testing.TB, limit int64) (w *netlog.Writer, end func()) {
	t.Helper()
	var files [2]*os.File
	for i, path := range []string{l.a, l.b} {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = f
	}
	w, err := netlog.NewWriter(files[0], files[1], limit, "box", nil)
	if err != nil {
		t.Fatal(err)
	}
	return w, func() {
		t.Helper()
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		files[0].Close()
		files[1].Close()
	}
}

// read returns what there is.
func (l log) read(t testing.TB, o netlog.Options) (out []netlog.Record) {
	t.Helper()
	err := netlog.Read(t.Context(), l.a, l.b, o, func(r netlog.Record) error {
		out = append(out, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// inOrder checks that numbers rise, and returns how many records are missing
// between the first and the last.
func inOrder(t testing.TB, records []netlog.Record) (missing int) {
	t.Helper()
	for i := 1; i < len(records); i++ {
		d := int(records[i].Seq) - int(records[i-1].Seq)
		if d <= 0 {
			t.Fatalf("%d comes after %d", records[i].Seq, records[i-1].Seq)
		}
		missing += d - 1
	}
	return missing
}

func allow(i int) netlog.Record {
	return netlog.Record{Verdict: netlog.Allow, Protocol: "https", Host: "a.example", Path: fmt.Sprintf("/%d", i)}
}

func deny(host string) netlog.Record {
	return netlog.Record{Verdict: netlog.Deny, Code: "not_allowed", Protocol: "https", Host: host, Address: "192.0.0.3:443"}
}

func TestWriterWritesLines(t *testing.T) {
	l := newLog(t)
	at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	w, end := l.open(t, netlog.MinLimit)
	full := netlog.Record{
		Time: at, Verdict: netlog.Allow, Rule: "github", Protocol: "https", Host: "api.github.com",
		Address: "192.0.2.1:443", Method: "GET", Path: "/user", Status: 200, Sent: 1, Received: 2,
		Duration: time.Second, Secrets: []string{"GITHUB_TOKEN"},
	}
	w.Add(full)
	w.Add(deny("evil.example"))
	end()
	got := l.read(t, netlog.Options{})
	if len(got) != 2 {
		t.Fatalf("%d records", len(got))
	}
	full.Seq, full.Sandbox = 1, "box"
	if diff := cmp.Diff(full, got[0]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got[1].Seq != 2 || got[1].Time.IsZero() || got[1].Verdict != netlog.Deny {
		t.Errorf("the second is %+v", got[1])
	}
	w.Add(allow(1)) // after Close: nothing
}

func TestWriterGoesOn(t *testing.T) {
	l := newLog(t)
	for i := range 4 {
		w, end := l.open(t, netlog.MinLimit)
		w.Add(allow(i))
		end()
		f, err := os.OpenFile(l.a, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, `{"seq":99,"verdict":"al`) // a line that was cut short
		f.Close()
	}
	got := l.read(t, netlog.Options{})
	if missing := inOrder(t, got); len(got) != 4 || missing != 0 {
		t.Errorf("%d records, %d missing", len(got), missing)
	}
}

// A file that holds something else does not stop a gate.
func TestWriterOverRubbish(t *testing.T) {
	for _, rubbish := range []string{"", "\n", "rubbish", "{\"turn\":0}\n", "{\"turn\":3}", strings.Repeat("x", 1<<20), "{\"turn\":3}\n" + strings.Repeat("x", 1<<20)} {
		l := newLog(t)
		for _, path := range []string{l.a, l.b} {
			if err := os.WriteFile(path, []byte(rubbish), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w, end := l.open(t, netlog.MinLimit)
		w.Add(allow(1))
		end()
		if got := l.read(t, netlog.Options{}); len(got) != 1 {
			t.Errorf("%.20q: %d records", rubbish, len(got))
		}
	}
}

func TestWriterTakesTurns(t *testing.T) {
	l := newLog(t)
	const total = 20_000
	w, end := l.open(t, netlog.MinLimit)
	for i := range total {
		w.Add(allow(i))
		if i%100 == 0 {
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	end()
	for _, path := range []string{l.a, l.b} {
		info, err := os.Stat(path)
		if err != nil || info.Size() > netlog.MinLimit {
			t.Errorf("%s holds %d bytes, %v", path, info.Size(), err)
		}
	}
	got := l.read(t, netlog.Options{})
	missing := inOrder(t, got)
	if missing != 0 || got[len(got)-1].Seq != total || len(got) < 500 {
		t.Errorf("%d records up to %d, %d missing", len(got), got[len(got)-1].Seq, missing)
	}
}

// Whatever comes after, the first refusal of each kind stays.
func TestRefusalsAreNotWashedOut(t *testing.T) {
	l := newLog(t)
	w, end := l.open(t, netlog.MinLimit)
	w.Add(allow(0))
	w.Add(deny("evil.example"))
	for i := range 20_000 {
		w.Add(allow(i))
		if i%100 == 0 {
			_ = w.Flush(t.Context())
		}
	}
	end()
	got := l.read(t, netlog.Options{})
	inOrder(t, got)
	if got[0].Seq != 2 || got[0].Host != "evil.example" {
		t.Errorf("the first is %+v", got[0])
	}
	// And across a restart.
	w, end = l.open(t, netlog.MinLimit)
	w.Add(allow(1))
	end()
	again := l.read(t, netlog.Options{})
	if len(again) != len(got)+1 || inOrder(t, again[1:]) != 0 {
		t.Errorf("%d records after a restart, %d before", len(again), len(got))
	}
}

func TestLikeRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		w, end := l.open(t, netlog.MinLimit)
		for range 1000 {
			w.Add(deny("evil.example"))
		}
		w.Add(deny("other.example"))
		synctest.Wait()
		if got := l.read(t, netlog.Options{}); len(got) != 2 || got[0].Count != 0 {
			t.Errorf("at once: %d records, %+v", len(got), got[0])
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := l.read(t, netlog.Options{})
		if len(got) != 3 || got[2].Host != "evil.example" || got[2].Count != 999 {
			t.Errorf("a second later: %d records, the last %+v", len(got), got[len(got)-1])
		}
		w.Add(deny("evil.example"))
		end()
		if got := l.read(t, netlog.Options{}); len(got) != 4 || got[3].Count != 0 {
			t.Errorf("in the next window: %d records", len(got))
		}
	})
}

func TestManyRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		w, end := l.open(t, netlog.MinLimit)
		for second := range 3 {
			for i := range 1000 {
				w.Add(deny(fmt.Sprintf("%d-%d.example", second, i)))
			}
			other := deny("other.example")
			other.Code = "closed_address"
			w.Add(other)
			time.Sleep(time.Second + time.Millisecond)
		}
		end()
		got := l.read(t, netlog.Options{})
		inOrder(t, got)
		count := map[string]int{}
		for _, r := range got {
			count[r.Code] += max(r.Count, 1)
		}
		want := map[string]int{"not_allowed": 150, "closed_address": 3, netlog.CodeNotShown: 2850}
		if diff := cmp.Diff(want, count); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// What a guest says can't break a line, nor reach a terminal as anything but
// text.
func TestFieldsAreBoundedAndPrintable(t *testing.T) {
	l := newLog(t)
	w, end := l.open(t, netlog.MinLimit)
	hostile := "\x1b[2J\x9b\u009b31m\u202egnp.exe\n{\"seq\":7}\x00\xff\U000e0041"
	w.Add(netlog.Record{
		Verdict: netlog.Deny, Code: "not_allowed", Protocol: "https",
		Host: strings.Repeat(hostile, 100), Path: "/" + strings.Repeat("\x1b", 5000), Method: hostile,
		Reason: strings.Repeat("é", 5000), Result: strings.Repeat("\x01", 5000),
		Secrets: make([]string, 100),
	})
	w.Add(netlog.Record{Verdict: netlog.Allow, Host: "short " + hostile})
	end()
	raw, err := os.ReadFile(l.a)
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.IndexFunc(raw, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }); i >= 0 {
		t.Errorf("a character that can't be printed: %q", raw[i:i+8])
	}
	if n := bytes.Count(raw, []byte("\n")); n != 3 {
		t.Errorf("%d lines, want a header and two", n)
	}
	got := l.read(t, netlog.Options{})
	if len(got) != 2 {
		t.Fatalf("%d records", len(got))
	}
	r := got[0]
	for _, f := range []struct {
		name, s string
		max     int
	}{{"host", r.Host, 255}, {"path", r.Path, 1024}, {"reason", r.Reason, 512}, {"result", r.Result, 512}, {"method", r.Method, 64}} {
		if len(f.s) > f.max || len(f.s) < f.max-8 && f.name != "method" {
			t.Errorf("%s has %d bytes, want at most %d", f.name, len(f.s), f.max)
		}
	}
	if len(r.Secrets) > 16 {
		t.Errorf("%d secrets", len(r.Secrets))
	}
	// The text itself is what was said.
	want := "short \x1b[2J?\u009b31m\u202egnp.exe\n{\"seq\":7}\x00?\U000e0041"
	if got[1].Host != want {
		t.Errorf("host %q, want %q", got[1].Host, want)
	}
}

// failing is a file whose disk is full for a while.
type failing struct {
	*os.File
	mu   sync.Mutex
	full bool
}

var errFull = errors.New("disk full")

func (f *failing) WriteAt(p []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full {
		return 0, errFull
	}
	return f.File.WriteAt(p, at)
}

func (f *failing) set(full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = full
}

func TestWhatIsLostIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(t)
		a, err := os.Create(l.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.Create(l.b)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		defer b.Close()
		disk := &failing{File: a}
		w, err := netlog.NewWriter(disk, b, netlog.MinLimit, "box", nil)
		if err != nil {
			t.Fatal(err)
		}
		w.Add(allow(1))
		_ = w.Flush(t.Context())
		disk.set(true)
		for i := range 5 {
			w.Add(allow(i))
			if err := w.Flush(t.Context()); !errors.Is(err, errFull) {
				t.Errorf("Flush = %v", err)
			}
		}
		time.Sleep(10 * time.Second) // it tries again meanwhile
		disk.set(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		got := l.read(t, netlog.Options{})
		inOrder(t, got)
		if len(got) != 2 || got[1].Code != netlog.CodeLost || got[1].Count != 5 {
			t.Errorf("%d records, the last %+v", len(got), got[len(got)-1])
		}
	})
}

func TestFlushEndsWithContext(t *testing.T) {
	l := newLog(t)
	w, end := l.open(t, netlog.MinLimit)
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Flush(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWriterRefusesSmallLimits(t *testing.T) {
	if _, err := netlog.NewWriter(nil, nil, netlog.MinLimit-1, "box", nil); err == nil {
		t.Error("a limit below the least was taken")
	}
}

func TestAddFromMany(t *testing.T) {
	l := newLog(t)
	w, end := l.open(t, 8<<20)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				w.Add(allow(i))
			}
		})
	}
	wg.Wait()
	end()
	got := l.read(t, netlog.Options{})
	if missing := inOrder(t, got); len(got) != 1600 || missing != 0 {
		t.Errorf("%d records, %d missing", len(got), missing)
	}
}

func BenchmarkAdd(b *testing.B) {
	for name, r := range map[string]netlog.Record{
		"allowed": {Verdict: netlog.Allow, Protocol: "https", Host: "api.github.com", Address: "192.0.2.1:443", Method: "GET", Path: "/user", Status: 200, Rule: "github"},
		"refused": deny("evil.example"),
	} {
		b.Run(name, func(b *testing.B) {
			l := newLog(b)
			w, end := l.open(b, 8<<20)
			b.ReportAllocs()
			for b.Loop() {
				w.Add(r)
			}
			end()
		})
	}
}
