package process_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

func (w *world) write(id string, offset uint64, data string, eof bool) (uint64, error) {
	res, err := w.exec.WriteInput(w.t.Context(), connect.NewRequest(&guestv1.WriteInputRequest{
		Id: id, Offset: offset, Data: []byte(data), Eof: eof,
	}))
	if err != nil {
		return 0, err
	}
	return res.Msg.GetAcked(), nil
}

func TestInput(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := sh("echo up; cat; echo end")
	cmd.Stdin = true
	if _, err := w.start("in", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		offset uint64
		data   string
		eof    bool
		acked  uint64
		code   connect.Code
	}{
		{0, "hello", false, 5, 0},
		{0, "hello", false, 5, 0},  // sent again
		{3, "lo wor", false, 9, 0}, // overlapping
		{20, "gap", false, 0, connect.CodeOutOfRange},
		{9, "ld\n", true, 12, 0},
		{9, "ld\n", true, 12, 0}, // the end, sent again
		{12, "more", false, 0, connect.CodeFailedPrecondition},
	}
	for i, s := range steps {
		acked, err := w.write("in", s.offset, s.data, s.eof)
		if s.code != 0 {
			if connect.CodeOf(err) != s.code {
				t.Errorf("step %d: %v, want %v", i, err, s.code)
			}
			continue
		}
		if err != nil || acked != s.acked {
			t.Errorf("step %d: %d, %v; want %d", i, acked, err, s.acked)
		}
	}
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "in"}))
	r, err := collect(t, stream, err, nil)
	if err != nil || r.stdout.String() != "up\nhello world\nend\n" {
		t.Errorf("%q, %v", r.stdout.String(), err)
	}
}

// A large input fills the pipe: the call waits for the command, and one that
// gives up can be sent again.
func TestInputWaits(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := sh("echo up; read x </dev/null; while [ ! -e /tmp/go-$PPID-" + strconv.Itoa(os.Getpid()) + " ]; do sleep 0.02; done; wc -c")
	cmd.Stdin = true
	flag := fmt.Sprintf("/tmp/go-0-%d", os.Getpid())
	_ = os.Remove(flag) // of a process that had the number before
	defer os.Remove(flag)
	if _, err := w.start("waits", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	data := strings.Repeat("z", 300_000)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := w.exec.WriteInput(ctx, connect.NewRequest(&guestv1.WriteInputRequest{Id: "waits", Data: []byte(data)}))
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("got %v, want a deadline", err)
	}
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if acked, err := w.write("waits", 0, data, true); err != nil || acked != 300_000 {
		t.Errorf("again: %d, %v", acked, err)
	}
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "waits"}))
	if r, err := collect(t, stream, err, nil); err != nil || r.stdout.String() != "up\n300000\n" {
		t.Errorf("%q, %v", r.stdout.String(), err)
	}
}

func TestInputToTheDeaf(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := sh("exec <&-; echo up; sleep 1000")
	cmd.Stdin = true
	if _, err := w.start("deaf", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.write("deaf", 0, "x", false); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("got %v", err)
	}
	w.signal("deaf", 9, true, "")
	w.run("null", sh("true"))
	if _, err := w.write("null", 0, "x", false); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("no input at all: %v", err)
	}
}

func TestTerminal(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		cmd := sh("stty -echo; stty size; trap 'stty size; echo resized' WINCH; echo $TERM; while read x; do echo \"<$x>\"; done; tty -s && echo end")
		cmd.Argv[0] = "bash" // whose read goes on after a trap
		cmd.Terminal = &guestv1.Terminal{Cols: 100, Rows: 40}
		if _, err := w.start("tty", cmd, until("xterm-256color")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.write("tty", 0, "hello\n", false); err != nil {
			t.Fatal(err)
		}
		_, err := w.exec.Resize(t.Context(), connect.NewRequest(&guestv1.ResizeRequest{Id: "tty", Size: &guestv1.Terminal{Cols: 20, Rows: 10}}))
		if err != nil {
			t.Fatal(err)
		}
		follow := func(enough func(*result) bool) *result {
			stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "tty"}))
			r, err := collect(t, stream, err, enough)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		follow(until("<hello>"))
		if _, err := w.write("tty", 6, "again\n", true); err != nil {
			t.Fatal(err)
		}
		r := follow(nil)
		for _, want := range []string{"40 100\r\n", "<hello>\r\n", "10 20\r\n", "<again>\r\n", "end\r\n"} {
			if !strings.Contains(r.stdout.String(), want) {
				t.Errorf("%q is missing in %q", want, r.stdout.String())
			}
		}
		if r.exit.GetCode() != 0 {
			t.Errorf("exit %v", r.exit)
		}
	})
}

// A signal to a terminal's command reaches whoever has the terminal.
func TestForeground(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := &guestv1.Command{
		Argv:     []string{"bash", "-ic", "echo up; sleep 1000; echo next; exit 6"},
		Terminal: &guestv1.Terminal{},
	}
	if _, err := w.start("fg", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shell stays", func() bool {
		_, err := w.exec.Signal(t.Context(), connect.NewRequest(&guestv1.SignalRequest{Id: "fg", Signal: 15}))
		return err != nil || w.get("fg").GetExit() != nil
	})
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "fg"}))
	if r, err := collect(t, stream, err, nil); err != nil || r.exit.GetCode() != 6 || !strings.Contains(r.stdout.String(), "next") {
		t.Errorf("%q, %v, %v", r.stdout.String(), r.exit, err)
	}
}

// TestTypedByTwo: what goes behind all input is taken once each, whoever else types, and a
// terminal's size is told as it is by now.
func TestTypedByTwo(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cmd := sh("stty -echo; echo up; read a; echo got-$a; read b; echo got-$b; sleep 1000")
	cmd.Terminal = &guestv1.Terminal{Cols: 80, Rows: 24}
	if _, err := w.start("two", cmd, until("up")); err != nil {
		t.Fatal(err)
	}
	acked := uint64(0)
	for _, data := range []string{"on", "e\n", "two\n"} {
		now, err := w.write("two", math.MaxUint64, data, false)
		if acked += uint64(len(data)); err != nil || now != acked {
			t.Fatalf("%q: %d, %v; want %d", data, now, err, acked)
		}
	}
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "two"}))
	if r, err := collect(t, stream, err, until("got-two")); err != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	size := &guestv1.Terminal{Cols: 33, Rows: 11}
	if _, err := w.exec.Resize(t.Context(), connect.NewRequest(&guestv1.ResizeRequest{Id: "two", Size: size})); err != nil {
		t.Fatal(err)
	}
	got, err := w.exec.Get(t.Context(), connect.NewRequest(&guestv1.GetRequest{Id: "two"}))
	if at := got.Msg.GetProcess().GetCommand().GetTerminal(); err != nil || at.GetCols() != 33 || at.GetRows() != 11 {
		t.Errorf("the size is %v, %v", at, err)
	}
}
