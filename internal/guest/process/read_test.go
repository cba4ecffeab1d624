package process_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/guest/journal"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func (w *world) read(r *guestv1.ReadRequest) (*guestv1.ReadResponse, error) {
	res, err := w.exec.Read(w.t.Context(), connect.NewRequest(r))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// detached starts a command whose output nobody is sent.
func (w *world) detached(id string, c *guestv1.Command) *result {
	w.t.Helper()
	stream, err := w.exec.Start(w.t.Context(), connect.NewRequest(&guestv1.StartRequest{Id: id, Command: c, Detached: true}))
	if err != nil {
		w.t.Fatal(err)
	}
	defer stream.Close()
	r := &result{}
	for stream.Receive() {
		r.pid = stream.Msg().GetStarted().GetPid()
		r.exit = stream.Msg().GetExit()
	}
	if err := stream.Err(); err != nil {
		w.t.Fatal(err)
	}
	return r
}

func TestReadStreamsApart(t *testing.T) {
	w := open(t, setup{})
	c := sh("yes & echo why >&2; sleep 0.1; echo end >&2; kill $!; exit 3")
	c.OrphanGraceMs = math.MaxUint64
	if r := w.detached("a", c); r.pid == 0 || r.exit != nil || r.stdout.Len() > 0 {
		t.Errorf("started: %+v", r)
	}
	// Its output fills what there is room for; its errors are read to their end.
	var errs strings.Builder
	for {
		r, err := w.read(&guestv1.ReadRequest{Id: "a", Stream: guestv1.Stream_STREAM_STDERR, Offset: uint64(errs.Len()), Release: uint64(errs.Len()), WaitMs: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		errs.Write(r.GetData())
		if !r.GetEnded() {
			continue
		}
		if r.GetExit().GetCode() != 3 {
			t.Errorf("exit: %v", r.GetExit())
		}
		break
	}
	if errs.String() != "why\nend\n" {
		t.Errorf("%q", errs.String())
	}
	r, err := w.read(&guestv1.ReadRequest{Id: "a", Stream: guestv1.Stream_STREAM_STDOUT, MaxBytes: 3, WaitMs: 1000})
	if err != nil || string(r.GetData()) != "y\ny" || r.GetExit() == nil || r.GetEnded() {
		t.Errorf("%v, %v", r, err)
	}
}

func TestReadKeepsAnOrphan(t *testing.T) {
	w := open(t, setup{})
	c := sh("sleep 0.5; echo up; sleep 1000")
	c.OrphanGraceMs = 200
	w.detached("a", c)
	r, err := w.read(&guestv1.ReadRequest{Id: "a", Stream: guestv1.Stream_STREAM_STDOUT, WaitMs: 10_000})
	if err != nil || string(r.GetData()) != "up\n" {
		t.Errorf("%v, %v", r, err)
	}
	cmd, err := w.engine.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	select { // nobody reads it any more
	case <-cmd.Done():
	case <-time.After(patience.For(10 * time.Second)):
		t.Error("it lives on")
	}
}

func TestReadRefuses(t *testing.T) {
	w := open(t, setup{})
	w.detached("a", sh("exit 0"))
	for name, c := range map[string]struct {
		req  *guestv1.ReadRequest
		code connect.Code
	}{
		"unknown":   {&guestv1.ReadRequest{Id: "b", Stream: guestv1.Stream_STREAM_STDOUT}, connect.CodeNotFound},
		"no-stream": {&guestv1.ReadRequest{Id: "a"}, connect.CodeInvalidArgument},
		"too-much":  {&guestv1.ReadRequest{Id: "a", Stream: guestv1.Stream_STREAM_STDOUT, MaxBytes: 1<<20 + 1}, connect.CodeInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := w.read(c.req); connect.CodeOf(err) != c.code {
				t.Errorf("%v, want %v", err, c.code)
			}
		})
	}
	if r := w.detached("c", &guestv1.Command{Argv: []string{"no-such-program"}}); r.exit.GetCode() != 127 {
		t.Errorf("one that can't be started: %v", r.exit)
	}
}

// Of what a command wrote that nobody followed, how it began and how it ended are kept; a
// reader is told how much lies between.
func TestLogKeepsBothEnds(t *testing.T) {
	w := open(t, setup{})
	w.detached("a", sh("seq 400000; echo FATAL; exit 3"))
	if !patience.Until(10*time.Second, func() bool {
		c, err := w.engine.Get("a")
		if err != nil {
			t.Fatal(err)
		}
		_, ended := c.Exit()
		return ended
	}) {
		t.Fatal("it does not end")
	}
	stream, err := w.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "a"}))
	r, err := collect(t, stream, err, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.dropped) != 1 || r.exit.GetCode() != 3 {
		t.Fatalf("dropped %v, %v", r.dropped, r.exit)
	}
	out, from, to := r.stdout.String(), int(r.dropped[0].GetFrom()), int(r.dropped[0].GetTo())
	if !strings.HasPrefix(out, "1\n2\n") || !strings.HasSuffix(out, "\n400000\nFATAL\n") || len(out)+to-from != 2_688_901 || from != journal.Head {
		t.Errorf("%d bytes, without %d to %d, ending in %q", len(out), from, to, out[max(0, len(out)-40):])
	}
}
