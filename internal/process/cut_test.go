package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/process"
	"github.com/carboy-sandbox/carboy/test/long"
)

// said returns n lines of a reproducible kind: most are short, some are as
// long as 1 MiB, and some are empty.
func said(n int) [][]byte {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a reproducible sequence
	lines := make([][]byte, n)
	for i := range lines {
		size := r.IntN(300)
		switch {
		case i%500 == 250:
			size = 1 << 20
		case i%50 == 7:
			size = r.IntN(20_000)
		case i%97 == 0:
			lines[i] = nil
			continue
		}
		lines[i] = append(fmt.Appendf(nil, `{"n":%d,"x":"`, i), bytes.Repeat([]byte{'a' + byte(i%26)}, size)...)
	}
	return lines
}

// Every line that is echoed comes back once, whole and in its place, through
// connections that break in the middle of any message.
func TestCutConnections(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("exec cat")))
	s.cut.Store(100_000)
	a := attach(t, p)
	lines := said(long.Rounds(4_000, 10_000))
	wrote := make(chan error, 1)
	go func() {
		for _, l := range lines {
			if err := a.WriteLine(t.Context(), l); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- nil
	}()
	for i, want := range lines {
		got, err := a.ReadLine(t.Context())
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("line %d: %d bytes (%.40q), %v, want %d (%.40q)", i, len(got), got, err, len(want), want)
		}
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if n := s.cuts.Load(); n < 100 {
		t.Errorf("only %d connections broke", n)
	}
	s.cut.Store(0)
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("more came: %.40q, %v", l, err)
	}
}

// A daemon that dies at any moment, with another that finds the process by
// what is on disk, delivers each line once.
func TestReattach(t *testing.T) {
	s := newSandbox(t)
	o := s.options(sh("exec cat"))
	p := s.start(o)
	lines := said(2_000)
	rec := p.Record() // as it was after the start
	next, written := 0, 0
	for life := 0; next < len(lines); life++ {
		a := attach(t, p)
		stop := make(chan struct{})
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			for written < len(lines) {
				select {
				case <-stop:
					return
				default:
				}
				if a.WriteLine(context.Background(), lines[written]) != nil {
					return
				}
				written++
			}
		}()
		for range 37 + 50*(life%5) {
			if next == len(lines) {
				break
			}
			got, err := a.ReadLine(t.Context())
			if err != nil || !bytes.Equal(got, lines[next]) {
				t.Fatalf("life %d, line %d: %d bytes (%.40q), %v, want %d (%.40q)", life, next, len(got), got, err, len(lines[next]), lines[next])
			}
			next++
		}
		close(stop)
		<-wrote
		s.sever()
		p.Close()
		if err := a.WriteLine(t.Context(), nil); !errors.Is(err, process.ErrClosed) {
			t.Fatalf("an attachment of a daemon that is gone: %v", err)
		}
		var err error
		if p, err = process.Reattach(o, rec); err != nil {
			t.Fatal(err)
		}
	}
	stop(p)
}

// A line that is longer than what the sandbox keeps is on disk while it comes.
func TestReattachInALongLine(t *testing.T) {
	s := newSandbox(t)
	dir := open(t)
	o := s.options(sh("head -c 3000000 /dev/zero | tr '\\0' l; while [ ! -e " + dir + "/on ]; do sleep 0.05; done; head -c 100 /dev/zero | tr '\\0' m; echo; echo next"))
	p := s.start(o)
	rec := p.Record()
	a := attach(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if l, err := a.ReadLine(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%d bytes, %v", len(l), err)
	}
	p.Close()
	p, err := process.Reattach(o, rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(p) })
	if err := os.WriteFile(dir+"/on", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("l", 3_000_000) + strings.Repeat("m", 100)
	a = attach(t, p)
	for again := range 2 { // a spooled line can be put back too
		if got := line(t, a); got != want {
			t.Fatalf("%d: %d bytes, want %d", again, len(got), len(want))
		}
		if again == 0 && !a.Unread() {
			t.Error("it can't be put back")
		}
	}
	if got := line(t, a); got != "next" {
		t.Errorf("%.40q", got)
	}
}

// A line that a daemon has left half written does not spoil the next one.
func TestReattachInAWrite(t *testing.T) {
	s := newSandbox(t)
	mark := fmt.Sprintf("33%d", os.Getpid())
	o := s.options(sh("kill -STOP $$; exec cat # " + mark))
	p := s.start(o)
	rec := p.Record()
	a := attach(t, p)
	writeStuck(t, a, mark, bytes.Repeat([]byte{'h'}, 1<<20))
	p.Close()
	p, err := process.Reattach(o, rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(p) })
	if err := s.signal(p, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	a = attach(t, p)
	write(t, a, "whole")
	half := line(t, a)
	if n := len(half); n == 0 || n >= 1<<20 || strings.Trim(half, "h") != "" {
		t.Errorf("%d bytes: %.40q", n, half)
	}
	if got := line(t, a); got != "whole" {
		t.Errorf("%.40q", got)
	}
}

// A write that the agent has not given up yet, of a daemon that is gone, is
// waited for: what comes next would be taken for a part of it.
func TestReattachWhileAWriteGoesOn(t *testing.T) {
	s := newSandbox(t)
	mark := fmt.Sprintf("34%d", os.Getpid())
	o := s.options(sh("kill -STOP $$; exec cat # " + mark))
	p := s.start(o)
	rec := p.Record()
	long := strings.Repeat("h", 1<<20)
	writeStuck(t, attach(t, p), mark, []byte(long))
	s.strand()
	p.Close()
	p, err := process.Reattach(o, rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(p) })
	a := attach(t, p)
	wrote := make(chan error, 1)
	go func() { wrote <- a.WriteLine(t.Context(), []byte("whole")) }()
	eventually(t, "the next write waits behind it", func() bool { return s.writes.Load() == 2 })
	if err := s.signal(p, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{long, "whole"} {
		if got := line(t, a); got != want {
			t.Errorf("%d bytes, %.40q; want %d", len(got), got, len(want))
		}
	}
}

// A sandbox whose agent is another one has lost the process.
func TestLost(t *testing.T) {
	s := newSandbox(t)
	o := s.options(sh("exec cat"))
	p := s.start(o)
	rec := p.Record()
	stop(p)
	rec.Command += "x"
	p, err := process.Reattach(o, rec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(p) })
	a := attach(t, p)
	if l, err := a.ReadLine(t.Context()); !errors.Is(err, process.ErrGone) {
		t.Errorf("%q, %v", l, err)
	}
	if i := p.Info(); i.Status != "exited" || i.ExitCode != nil {
		t.Errorf("%+v", i)
	}
}

func TestReattachToAnEnd(t *testing.T) {
	s := newSandbox(t)
	o := s.options(sh("echo one; echo two; echo why >&2; exit 4"))
	p := s.start(o)
	a := attach(t, p)
	line(t, a)
	ended(t, p)
	for _, known := range []bool{false, true} {
		rec := p.Record()
		if !known {
			rec.ExitedAt, rec.ExitCode, rec.Stderr = nil, nil, ""
		}
		p.Close()
		var err error
		if p, err = process.Reattach(o, rec); err != nil {
			t.Fatal(err)
		}
		ended(t, p)
		if i := p.Info(); i.ExitCode == nil || *i.ExitCode != 4 || i.StderrPreview != "why" {
			t.Errorf("known %v: %+v", known, i)
		}
	}
	a = attach(t, p)
	if got := line(t, a); got != "two" {
		t.Error(got)
	}
	stop(p)
}

func TestAbandoned(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("exec cat")))
	a := attach(t, p)
	s.down.Store(true)
	s.sever()
	reads := make(chan error, 1)
	go func() {
		_, err := a.ReadLine(context.Background())
		reads <- err
	}()
	p.Abandon()
	if err := <-reads; !errors.Is(err, process.ErrGone) {
		t.Error(err)
	}
	if i := p.Info(); i.Status != "exited" || i.ExitCode != nil {
		t.Errorf("%+v", i)
	}
	s.down.Store(false)
}

// What a reader that is slow costs here is one line and one piece.
func TestSlowReaderBoundsMemory(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("exec yes " + strings.Repeat("z", 1000))))
	a := attach(t, p)
	line(t, a)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 3000 {
		line(t, a)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grew := int64(after.HeapAlloc) - int64(before.HeapAlloc); grew > 8<<20 {
		t.Errorf("the heap grew by %d bytes", grew)
	}
}

// BenchmarkEcho is for a line to a process and back, through its sandbox's
// agent.
func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{100, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := newSandbox(b)
			p := s.start(s.options(sh("exec cat")))
			a := attach(b, p)
			l := strings.Repeat("e", size)
			b.SetBytes(int64(size))
			for b.Loop() {
				write(b, a, l)
				if got := line(b, a); len(got) != size {
					b.Fatal(len(got))
				}
			}
		})
	}
}

// A start that is called off leaves nothing behind.
func TestStartCalledOff(t *testing.T) {
	s := newSandbox(t)
	mark := fmt.Sprintf("32%d", os.Getpid())
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		o := s.options(sessions.ProcessSpec{Command: "sleep", Args: []string{mark}})
		if p, err := process.Start(ctx, o); err == nil {
			stop(p)
		} else if files, _ := os.ReadDir(o.Dir); len(files) != 0 {
			t.Errorf("after %v a file is left: %v", after, files)
		}
		cancel()
	}
	eventually(t, "none runs", func() bool { return running(t, mark) == 0 })
}

// A killed daemon's files of processes that no record has are removed, and no
// others.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mpKNOWN", "mpSTRAY", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := process.Sweep(dir, map[string]bool{"mpKNOWN": true}); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 2 || filepath.Base(left[0]) != "mpKNOWN" || filepath.Base(left[1]) != "other" {
		t.Errorf("left: %q", left)
	}
}
