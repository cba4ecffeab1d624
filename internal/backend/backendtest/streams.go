package backendtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	envd "github.com/carboy-sandbox/carboy/api/envd/process"
	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

// testStreams is about bytes: all of them, once, in order.
func testStreams(t *testing.T, s *suite) {
	b := s.open(t).begin(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, *instance)
	}{
		{"binary-through-cat", binaryThroughCat},
		{"much-output", muchOutput},
		{"input-in-pieces", inputInPieces},
		{"input-at-offsets", inputAtOffsets},
		{"follow-from-an-offset", followFromOffset},
		{"start-twice", startTwice},
		{"read-apart", readApart},
		{"as-envd", asEnvd},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, b) })
	}
}

func fed(script string) *guestv1.Command {
	return with(shell(script), func(c *guestv1.Command) { c.Stdin = true })
}

func binaryThroughCat(t *testing.T, b *instance) {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	want := strings.Repeat(string(all[:]), 1000)
	r := b.begin(t, fed("cat"))
	var writes sync.WaitGroup
	writes.Go(func() { r.write(want, true) })
	e := r.end()
	writes.Wait()
	if e.stdout != want || e.exit.GetCode() != 0 {
		t.Errorf("%d bytes came back, differing or not, of %d; %v", len(e.stdout), len(want), e.exit)
	}
}

func muchOutput(t *testing.T, b *instance) {
	const size = 48 << 20
	cmd := shell(fmt.Sprintf("head -c %d /dev/urandom > /workspace/big; sha256sum < /workspace/big >&2; cat /workspace/big; rm /workspace/big", size))
	cmd.OrphanGraceMs = 60_000 // nothing is dropped
	e := b.run(t, cmd)
	sum := sha256.Sum256([]byte(e.stdout))
	if want, _, _ := strings.Cut(e.stderr, " "); hex.EncodeToString(sum[:]) != want || len(e.stdout) != size {
		t.Errorf("%d bytes with digest %x, want %d with %s", len(e.stdout), sum, size, want)
	}
}

func inputInPieces(t *testing.T, b *instance) {
	r := b.begin(t, fed("while read -r l; do echo \"got $l\"; done; echo end"))
	r.write("one\n", false)
	r.awaits("got one\n")
	r.write("tw", false)
	r.write("o\nthree\n", false)
	r.awaits("got three\n")
	r.write("", true)
	if e := r.end(); e.stdout != "got one\ngot two\ngot three\nend\n" {
		t.Errorf("stdout %q", e.stdout)
	}
}

// What was lost on the way to the agent's answer is sent again, and is not
// written twice; what is missing is not made up.
func inputAtOffsets(t *testing.T, b *instance) {
	r := b.begin(t, fed("cat"))
	send := func(offset uint64, text string, eof bool) error {
		_, err := b.exec.WriteInput(t.Context(), connect.NewRequest(&guestv1.WriteInputRequest{Id: r.id, Offset: offset, Data: []byte(text), Eof: eof}))
		return err
	}
	must(t, send(0, "abc", false))
	must(t, send(0, "abc", false))
	must(t, send(1, "bcde", false))
	wantCode(t, "input beyond what was written", send(9, "x", false), connect.CodeOutOfRange)
	must(t, send(5, "", true))
	wantCode(t, "input after its end", send(5, "more", false), connect.CodeFailedPrecondition)
	if e := r.end(); e.stdout != "abcde" {
		t.Errorf("stdout %q, want abcde", e.stdout)
	}
}

func followFromOffset(t *testing.T, b *instance) {
	r := b.begin(t, shell("printf 0123456789; printf abcdefghij >&2"))
	r.end()
	stream, err := b.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: r.id, StdoutOffset: 4, StderrOffset: 10}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	again := &running{t: t, b: b, id: r.id, stream: stream}
	if e := again.end(); e.stdout != "456789" || e.stderr != "" || e.exit.GetCode() != 0 {
		t.Errorf("from the offsets on: %+v", e)
	}
	unknown, err := b.exec.Follow(t.Context(), connect.NewRequest(&guestv1.FollowRequest{Id: "nobody"}))
	if err == nil {
		unknown.Receive()
		err = unknown.Err()
		_ = unknown.Close()
	}
	wantCode(t, "follow what is not there", err, connect.CodeNotFound)
}

// A start that is sent again finds what the first one started.
func startTwice(t *testing.T, b *instance) {
	const id = "once"
	for range 2 {
		r, err := b.launchAs(t, id, shell("echo x >> /workspace/once; cat /workspace/once"))
		if err != nil {
			t.Fatal(err)
		}
		if e := r.end(); e.stdout != "x\n" {
			t.Errorf("stdout %q, want one x", e.stdout)
		}
	}
	for _, bad := range []string{"", "a/b", strings.Repeat("x", 65)} {
		_, err := b.launchAs(t, bad, shell("true"))
		wantCode(t, fmt.Sprintf("id %.10q", bad), err, connect.CodeInvalidArgument)
	}
}

// One stream that nobody reads fills up; the other is read to its end, and then
// the one from its beginning.
func readApart(t *testing.T, b *instance) {
	const id = "apart"
	cmd := shell("head -c 3000000 /dev/zero | tr '\\0' x & echo one >&2; sleep 0.2; echo two >&2; wait; echo end >&2")
	cmd.OrphanGraceMs = commandLimit
	stream, err := b.exec.Start(t.Context(), connect.NewRequest(&guestv1.StartRequest{Id: id, Command: cmd, Detached: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if stream.Msg().GetStarted() == nil {
			t.Errorf("a start that streams: %v", stream.Msg())
		}
	}
	must(t, stream.Err())
	var got [3]bytes.Buffer
	read := func(s guestv1.Stream) *guestv1.ReadResponse {
		at := uint64(got[s].Len())
		r, err := b.exec.Read(t.Context(), connect.NewRequest(&guestv1.ReadRequest{Id: id, Stream: s, Offset: at, Release: at, MaxBytes: 1 << 20, WaitMs: 10_000}))
		if err != nil {
			t.Fatal(err)
		}
		if r.Msg.GetOffset() != at {
			t.Fatalf("from %d on: offset %d", at, r.Msg.GetOffset())
		}
		got[s].Write(r.Msg.GetData())
		return r.Msg
	}
	for !strings.Contains(got[guestv1.Stream_STREAM_STDERR].String(), "two\n") {
		read(guestv1.Stream_STREAM_STDERR)
	}
	for !read(guestv1.Stream_STREAM_STDOUT).GetEnded() {
	}
	exit := (*guestv1.Exit)(nil)
	for exit == nil {
		exit = read(guestv1.Stream_STREAM_STDERR).GetExit()
	}
	if out := got[guestv1.Stream_STREAM_STDOUT].String(); len(out) != 3_000_000 || strings.Trim(out, "x") != "" || exit.GetCode() != 0 {
		t.Errorf("%d bytes of 3000000, %v", len(out), exit)
	}
}

// The same through the protocol that E2B's clients speak.
func asEnvd(t *testing.T, b *instance) {
	stream, err := b.envd.Start(t.Context(), connect.NewRequest(&envd.StartRequest{
		Process: &envd.ProcessConfig{Cmd: "sh", Args: []string{"-c", "printf out; printf err >&2; exit 3"}, Envs: map[string]string{"A": "1"}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var out, errs bytes.Buffer
	code := int32(-2)
	for stream.Receive() {
		ev := stream.Msg().GetEvent()
		out.Write(ev.GetData().GetStdout())
		errs.Write(ev.GetData().GetStderr())
		if end := ev.GetEnd(); end != nil {
			code = end.GetExitCode()
		}
	}
	if out.String() != "out" || errs.String() != "err" || code != 3 || stream.Err() != nil {
		t.Errorf("stdout %q, stderr %q, code %d, %v", out.String(), errs.String(), code, stream.Err())
	}
}
