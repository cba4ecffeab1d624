package action_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/api/action"
	server "github.com/carboy-sandbox/carboy/internal/guest/action"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
)

func TestExec(t *testing.T) {
	w := open(t)
	tests := []struct {
		name string
		req  action.ExecRequest
		want action.ExecReply // without its duration
	}{
		{"round-trip", action.ExecRequest{Command: "echo ok", TimeoutSeconds: 30}, action.ExecReply{Stdout: "ok\n"}},
		{"both-streams", action.ExecRequest{Command: "echo a; echo b >&2"}, action.ExecReply{Stdout: "a\n", Stderr: "b\n"}},
		{"exit-code", action.ExecRequest{Command: "exit 3"}, action.ExecReply{ExitCode: 3}},
		{"signal", action.ExecRequest{Command: "kill -TERM $$"}, action.ExecReply{ExitCode: 143}},
		{"not-found", action.ExecRequest{Command: "exec 2>/dev/null; no-such-program"}, action.ExecReply{ExitCode: 127}},
		{"where", action.ExecRequest{Command: "pwd"}, action.ExecReply{Stdout: w.dir + "\n"}},
		{"elsewhere", action.ExecRequest{Command: "pwd", CWD: "/usr"}, action.ExecReply{Stdout: "/usr\n"}},
		{"env", action.ExecRequest{Command: "echo $A", Env: map[string]string{"A": "b c"}}, action.ExecReply{Stdout: "b c\n"}},
		{"user", action.ExecRequest{Command: "id -u"}, action.ExecReply{Stdout: "1000\n"}},
		{"no-input", action.ExecRequest{Command: "cat; echo end"}, action.ExecReply{Stdout: "end\n"}},
		{"no-utf8", action.ExecRequest{Command: `printf 'a\377\300b'`}, action.ExecReply{Stdout: "a\uFFFD\uFFFDb"}},
		{
			"timeout",
			action.ExecRequest{Command: "printf started; sleep 1000 & sleep 1000", TimeoutSeconds: 1},
			action.ExecReply{Stdout: "started", Stderr: "carboy: the command was ended after 1s, with all that it had started\n", ExitCode: 124},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := must[action.ExecReply](w, tt.req)
			if got.DurationMS < 0 || (tt.name == "timeout" && got.DurationMS < 1000) {
				t.Errorf("it took %d ms", got.DurationMS)
			}
			if got.DurationMS = 0; *got != tt.want {
				t.Errorf("got %+v, want %+v", *got, tt.want)
			}
		})
	}
	for _, tt := range []struct {
		name, words string
		req         action.ExecRequest
	}{
		{"empty", "the command is empty", action.ExecRequest{}},
		{"negative-timeout", "timeout_seconds", action.ExecRequest{Command: "a", TimeoutSeconds: -1}},
		{"long-timeout", "timeout_seconds", action.ExecRequest{Command: "a", TimeoutSeconds: 1 << 30}},
		{"no-directory", "/nowhere", action.ExecRequest{Command: "a", CWD: "/nowhere"}},
		{"zero-byte", "zero byte", action.ExecRequest{Command: "a\x00b"}},
		{"name-of-variable", "environment", action.ExecRequest{Command: "a", Env: map[string]string{"A=B": "c"}}},
		{"too-long", "the kernel takes at most", action.ExecRequest{Command: strings.Repeat("x", 200<<10)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ask[action.ExecReply](w, tt.req)
			refused(t, err, tt.words)
		})
	}
}

// What does not fit is said, in the reply and to who reads stderr alone.
func TestExecTruncates(t *testing.T) {
	w := open(t)
	for _, tt := range []struct {
		name, command string
		kept          int // of stdout
		said          string
	}{
		{"fits", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", server.MaxBoth), server.MaxBoth, ""},
		{
			"one-byte-more", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", server.MaxBoth+1), server.MaxBoth + len(excerpt.Note(1)),
			fmt.Sprintf("carboy: stdout had %d bytes, of which %d are here: its beginning and its end\n", server.MaxBoth+1, server.MaxBoth),
		},
		{
			"both-full", "head -c 9000000 /dev/zero | tr '\\0' '\\001'; head -c 9000000 /dev/zero | tr '\\0' '\\001' >&2",
			server.MaxBoth + len(excerpt.Note(9_000_000-server.MaxBoth)),
			fmt.Sprintf("carboy: stderr had 9000000 bytes, of which %d are here: its beginning and its end\n", server.MaxBoth),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := must[action.ExecReply](w, action.ExecRequest{Command: tt.command})
			if len(got.Stdout) != tt.kept || got.Truncated != (tt.said != "") || !strings.HasSuffix(got.Stderr, tt.said) || got.ExitCode != 0 {
				t.Errorf("%d bytes, truncated %v, %.200q, %d", len(got.Stdout), got.Truncated, got.Stderr[max(0, len(got.Stderr)-200):], got.ExitCode)
			}
		})
	}
}

// How a command began and how it ended are both there, however much lies between.
func TestExecKeepsBothEnds(t *testing.T) {
	w := open(t)
	got := must[action.ExecReply](w, action.ExecRequest{Command: "seq 400000; echo FATAL; exit 3"})
	if !strings.HasPrefix(got.Stdout, "1\n2\n") || !strings.HasSuffix(got.Stdout, "\n400000\nFATAL\n") || got.ExitCode != 3 ||
		!strings.Contains(got.Stdout, excerpt.Note(2_688_901-int64(server.MaxBoth))) {
		t.Errorf("%d bytes, ending in %q, %d, %q", len(got.Stdout), got.Stdout[max(0, len(got.Stdout)-40):], got.ExitCode, got.Stderr)
	}
}

// A timeout ends what the command has started, too.
func TestExecTimeoutEndsAll(t *testing.T) {
	w := open(t)
	file := filepath.Join(w.dir, "alive")
	_, err := ask[action.ExecReply](w, action.ExecRequest{Command: "setsid sh -c 'sleep 2; touch alive' & sleep 1000", TimeoutSeconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	must[action.ExecReply](w, action.ExecRequest{Command: "sleep 2"})
	if _, err := os.Stat(file); err == nil {
		t.Error("what the command had started went on")
	}
	// The control: without a timeout it does.
	must[action.ExecReply](w, action.ExecRequest{Command: "setsid sh -c 'touch alive' & sleep 0.1"})
	until(t, file, func() bool { _, err := os.Stat(file); return err == nil })
}

// Who leaves makes room for others, and the command goes on. Who has only ended the request
// has its reply.
func TestExecAndItsCaller(t *testing.T) {
	w := open(t)
	for range server.MaxAtOnce {
		c, served := w.connect(t.Context())
		fmt.Fprintf(c, `{"command":"sleep 3; echo on >>lines","timeout_seconds":1000}`)
		t.Cleanup(func() { <-served })
		_ = c.Close()
	}
	until(t, "room", func() bool {
		got, err := ask[action.ExecReply](w, action.ExecRequest{Command: "echo room"})
		return err == nil && got.Stdout == "room\n"
	})
	got, err := reply[action.ExecReply](w, w.send([]byte(`{"command":"sleep 2; echo late"}`), true))
	if err != nil || got.Stdout != "late\n" {
		t.Errorf("got %+v, %v", got, err)
	}
	until(t, "all lines", func() bool {
		text, err := os.ReadFile(filepath.Join(w.dir, "lines"))
		return err == nil && strings.Count(string(text), "on\n") >= server.MaxAtOnce-1 // one may have come after who asks for room
	})
}
