package e2e

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// TestBoxProcesses has what managed processes do beyond the original's.
func TestBoxProcesses(t *testing.T) {
	t.Parallel()
	w := newBoxWorld(t, "process", nil)
	w.testLines(t)
	w.testTurns(t)
	newBoxWorld(t, "process", map[string]any{"session_ttl_sec": 2}).testLives(t)
}

// attached starts the session's process, which is a script, and attaches to it.
func (w *boxWorld) attached(t *testing.T, script string) *boxservice.Attachment {
	t.Helper()
	for again := 1; ; again++ {
		if _, err := w.client.Create(t.Context(), boxservice.NewSpec("a", "")); err != nil {
			t.Fatal(err)
		}
		_, err := w.client.StartProcess(t.Context(), "a", boxservice.ProcessSpec{Command: "/bin/sh", Args: []string{"-c", script}})
		if errors.Is(err, boxservice.ErrNotFound) && again < 5 {
			continue // a busy machine came to it when the session had been idle for too long
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	a, err := w.client.Attach(t.Context(), "a", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func (w *boxWorld) testLines(t *testing.T) {
	w.subtest(t, "relay-has-whole-lines", func(t *testing.T) {
		a := w.attached(t, `while IFS= read -r n; do
			head -c "$n" /dev/zero | sed 's/\x00/ü/g'; printf '\n{"half": '; sleep 0.2; printf '1}\n'
		done`)
		for _, n := range []int{1, 100_000, 3} {
			if err := a.WriteLine(t.Context(), []byte(fmt.Sprint(n))); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{strings.Repeat("ü", n), `{"half": 1}`} {
				if line, err := a.ReadLine(t.Context()); err != nil || string(line) != want {
					t.Fatalf("a line of %d bytes, want %d: %v", len(line), len(want), err)
				}
			}
		}
	})
	w.subtest(t, "relay-holds-a-fast-writer", func(t *testing.T) {
		a := w.attached(t, `i=0; while :; do i=$((i+1)); echo $i; if [ $((i%1000)) = 0 ]; then echo $i > /tmp/at; fi; done`)
		at := func() (n int) {
			_, _ = fmt.Sscan(w.exec(t, "a", "cat /tmp/at 2> /dev/null || echo 0"), &n)
			return n
		}
		last := -1
		until(t, func() bool { // nobody reads: it comes to a stop
			n := at()
			stopped := n == last
			last = n
			return stopped && n > 0
		})
		for i := 1; i <= last+1000; i++ {
			if line, err := a.ReadLine(t.Context()); err != nil || string(line) != fmt.Sprint(i) {
				t.Fatalf("line %d is %q, %v", i, line, err)
			}
		}
	})
}

func (w *boxWorld) testTurns(t *testing.T) {
	w.subtest(t, "attachments-take-turns", func(t *testing.T) {
		first := w.attached(t, "exec cat")
		say := func(a *boxservice.Attachment, text string) {
			t.Helper()
			if err := a.WriteLine(t.Context(), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		hear := func(a *boxservice.Attachment, text string) {
			t.Helper()
			if line, err := a.ReadLine(t.Context()); err != nil || string(line) != text {
				t.Fatalf("got %q, %v; want %q", line, err, text)
			}
		}
		say(first, "one")
		hear(first, "one")
		second, err := w.client.Attach(t.Context(), "a", "")
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		say(second, "two") // it waits, and so does its line
		say(first, "three")
		hear(first, "three")
		first.Close()
		hear(second, "two")
		third, err := w.client.TakeOver(t.Context(), "a", "")
		if err != nil {
			t.Fatal(err)
		}
		defer third.Close()
		if _, err := second.ReadLine(t.Context()); err == nil || errors.Is(err, io.EOF) || boxservice.Class(err) == "" {
			t.Errorf("who was sent away learns %v", err)
		}
		say(third, "four")
		hear(third, "four")
	})
	w.subtest(t, "attachment-ends-with-its-process", func(t *testing.T) {
		a := w.attached(t, "read line; echo last; exit 3")
		if err := a.WriteLine(t.Context(), []byte("go")); err != nil {
			t.Fatal(err)
		}
		if line, err := a.ReadLine(t.Context()); err != nil || string(line) != "last" {
			t.Fatalf("got %q, %v", line, err)
		}
		if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("afterwards: %v", err)
		}
		until(t, func() bool {
			p, err := w.client.Process(t.Context(), "a", "")
			return err == nil && p.ExitCode != nil && *p.ExitCode == 3
		})
		if _, err := w.client.Attach(t.Context(), "a", ""); !errors.Is(err, boxservice.ErrProcessConflict) {
			t.Errorf("one more: %v", err)
		}
	})
}

func (w *boxWorld) testLives(t *testing.T) {
	w.subtest(t, "process-has-no-time-limit", func(t *testing.T) {
		a := w.attached(t, `ulimit -t; ulimit -f; exec cat`)
		for _, what := range []string{"CPU time", "file size"} {
			if line, err := a.ReadLine(t.Context()); err != nil || string(line) != "unlimited" {
				t.Errorf("its %s is limited: %q, %v", what, line, err)
			}
		}
		// The session has been idle for longer than it may be: its process keeps it.
		<-time.After(5 * time.Second)
		_ = a.WriteLine(t.Context(), []byte("still there"))
		if line, err := a.ReadLine(t.Context()); err != nil || string(line) != "still there" {
			t.Errorf("got %q, %v", line, err)
		}
	})
	w.subtest(t, "stop-ends-the-tree", func(t *testing.T) {
		a := w.attached(t, `trap '' TERM; setsid sleep 8888 & sleep 8888 & echo ready; wait`)
		if _, err := a.ReadLine(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.client.StopProcess(t.Context(), "a", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) && !errors.Is(err, boxservice.ErrUnavailable) {
			t.Errorf("the relay: %v", err)
		}
		if out := w.exec(t, "a", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 8888' || true"); out != "0\n" {
			t.Errorf("%s of its processes are left", out)
		}
		if _, err := w.client.Process(t.Context(), "a", ""); !errors.Is(err, boxservice.ErrProcessNotFound) {
			t.Errorf("it is still known: %v", err)
		}
	})
}
