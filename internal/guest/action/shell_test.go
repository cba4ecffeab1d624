package action_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	server "github.com/carboy-sandbox/carboy/internal/guest/action"
)

// shell is one in a world.
type shell struct {
	*world
	id     string
	cursor int64
}

// openShell opens a shell without a prompt or echo, so that what it writes is known.
func (w *world) openShell(id string) *shell {
	w.t.Helper()
	must[action.Shell](w, action.OpenShellRequest{Action: action.OpenShell, ShellID: id, Env: map[string]string{"PS1": "", "PS2": ""}})
	sh := &shell{world: w, id: id}
	sh.write("stty -echo -onlcr; echo begun")
	sh.until("begun\n")
	return sh
}

func (sh *shell) write(line string) {
	sh.t.Helper()
	must[action.WriteShellReply](sh.world, action.WriteShellRequest{Action: action.WriteShell, ShellID: sh.id, Input: line, AppendNewline: true})
}

func (sh *shell) read(q action.ReadShellRequest) (*action.ReadShellReply, error) {
	sh.t.Helper()
	q.Action, q.ShellID = action.ReadShell, sh.id
	return ask[action.ReadShellReply](sh.world, q)
}

// until reads on until what was read has an end, and returns it.
func (sh *shell) until(end string) string {
	sh.t.Helper()
	var all strings.Builder
	until(sh.t, fmt.Sprintf("%q", end), func() bool {
		r, err := sh.read(action.ReadShellRequest{Cursor: sh.cursor, WaitMS: 5000})
		if err != nil {
			sh.t.Fatal(err)
		}
		all.WriteString(r.Output)
		sh.cursor = r.NextCursor
		return strings.HasSuffix(all.String(), end)
	})
	return all.String()
}

func TestShell(t *testing.T) {
	w := open(t)
	before := float64(time.Now().Add(-time.Second).Unix())
	got := must[action.Shell](w, action.OpenShellRequest{Action: action.OpenShell, ShellID: "shell-1", CWD: "/usr", Cols: 100, Rows: 20, Env: map[string]string{"PS1": "$ "}})
	if got.ShellID != "shell-1" || got.CWD != "/usr" || got.Cols != 100 || got.Rows != 20 || got.State != action.Running || got.StartedAt < before || got.EndedAt != nil || got.ExitCode != nil {
		t.Errorf("opened %+v", got)
	}
	sh := &shell{world: w, id: "shell-1"}
	wrote := must[action.WriteShellReply](w, action.WriteShellRequest{Action: action.WriteShell, ShellID: "shell-1", Input: "pwd", AppendNewline: true})
	if wrote.InputLength != 3 || !wrote.AppendNewline {
		t.Errorf("wrote %+v", wrote)
	}
	if text := sh.until("/usr\r\n$ "); !strings.Contains(text, "pwd\r\n") {
		t.Errorf("it shows %q", text)
	}
	if got := must[action.Shell](w, action.ResizeShellRequest{Action: action.ResizeShell, ShellID: "shell-1", Cols: 70, Rows: 10}); got.Cols != 70 || got.Rows != 10 {
		t.Errorf("resized %+v", got)
	}
	sh.write("stty size; tty >/dev/null && echo ${TERM}")
	sh.until("10 70\r\nxterm-256color\r\n$ ")
	sh.write("exit 3")
	until(t, "its end", func() bool {
		got = must[action.Shell](w, action.ShellRequest{Action: action.StatusShell, ShellID: "shell-1"})
		return got.State == action.Stopped
	})
	if got.ExitCode == nil || *got.ExitCode != 3 || got.EndedAt == nil || *got.EndedAt < got.StartedAt {
		t.Errorf("ended %+v", got)
	}
	// What it wrote is there after its end, and nobody waits for more.
	if r, err := sh.read(action.ReadShellRequest{WaitMS: 20000, WaitForIdleMS: 20000}); err != nil || !strings.Contains(r.Output, "/usr") || r.State != action.Stopped || r.Truncated {
		t.Errorf("read %+v, %v", r, err)
	}
	closed := must[action.CloseShellReply](w, action.ShellRequest{Action: action.CloseShell, ShellID: "shell-1"})
	if !closed.Closed || closed.State != action.Stopped || *closed.ExitCode != 3 {
		t.Errorf("closed %+v", closed)
	}
	_, err := sh.read(action.ReadShellRequest{})
	refused(t, err, `no shell "shell-1"`)
}

func TestShellErrors(t *testing.T) {
	w := open(t)
	w.openShell("here")
	for _, tt := range []struct {
		name, words string
		request     any
	}{
		{"no-id", "shell_id has to be", action.OpenShellRequest{Action: action.OpenShell}},
		{"path-as-id", "shell_id has to be", action.OpenShellRequest{Action: action.OpenShell, ShellID: "../x"}},
		{"dots-as-id", "shell_id has to be", action.OpenShellRequest{Action: action.OpenShell, ShellID: ".."}},
		{"long-id", "shell_id has to be", action.OpenShellRequest{Action: action.OpenShell, ShellID: strings.Repeat("x", 65)}},
		{"open-again", "is open: close it first", action.OpenShellRequest{Action: action.OpenShell, ShellID: "here"}},
		{"columns", "from 1 to 1000", action.OpenShellRequest{Action: action.OpenShell, ShellID: "b", Cols: 1001}},
		{"no-directory", "/nowhere", action.OpenShellRequest{Action: action.OpenShell, ShellID: "b", CWD: "/nowhere"}},
		{"variable", "environment", action.OpenShellRequest{Action: action.OpenShell, ShellID: "b", Env: map[string]string{"": "x"}}},
		{"unknown", `no shell "b"`, action.WriteShellRequest{Action: action.WriteShell, ShellID: "b"}},
		{"signal", `signal "STOP"`, action.SignalShellRequest{Action: action.SignalShell, ShellID: "here", Signal: "STOP"}},
		{"signal-number", `signal "9"`, action.SignalShellRequest{Action: action.SignalShell, ShellID: "here", Signal: "9"}},
		{"cursor-negative", "cursor is negative", action.ReadShellRequest{Action: action.ReadShell, ShellID: "here", Cursor: -1}},
		{"cursor-beyond", "it is of another shell", action.ReadShellRequest{Action: action.ReadShell, ShellID: "here", Cursor: 1 << 40}},
		{"chars", "max_chars", action.ReadShellRequest{Action: action.ReadShell, ShellID: "here", MaxChars: server.MaxChars + 1}},
		{"chars-negative", "max_chars", action.ReadShellRequest{Action: action.ReadShell, ShellID: "here", MaxChars: -1}},
		{"wait", "from 0 to 20000", action.ReadShellRequest{Action: action.ReadShell, ShellID: "here", WaitForIdleMS: 20001}},
		{"wait-negative", "from 0 to 20000", action.ReadShellRequest{Action: action.ReadShell, ShellID: "here", WaitMS: -1}},
		{"encoding", "has to be base64", action.ReadShellRequest{Action: action.ReadShell, ShellID: "here", Encoding: "hex"}},
		{"plain-base64", "never in base64", action.ReadShellRequest{Action: action.ReadShell, ShellID: "here", Encoding: "base64", Plain: true}},
		{"size", "from 1 to 1000", action.ResizeShellRequest{Action: action.ResizeShell, ShellID: "here", Cols: -1, Rows: 5}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ask[map[string]any](w, tt.request)
			refused(t, err, tt.words)
		})
	}
	if got := must[action.ListShellsReply](w, action.ListRequest{Action: action.ListShells}); len(got.Shells) != 1 {
		t.Errorf("failed ones left %+v", got.Shells)
	}
}

// Characters are whole; cursors are offsets in bytes, whatever was made of them.
func TestShellCharacters(t *testing.T) {
	w := open(t)
	sh := w.openShell("a")
	at := sh.cursor
	sh.write(`printf 'h\303\244\342\202\254\360\237\230\200!\377\300x\n\303'`)
	sh.until("x\n")
	for _, tt := range []struct {
		from  int64
		chars int
		want  string
		next  int64
		more  bool
	}{
		{0, 1, "h", 1, true},
		{0, 2, "hä", 3, true},
		{1, 1, "ä", 3, true},
		{2, 1, "\uFFFD", 3, true}, // from within a character
		{0, 4, "hä€😀", 10, true},
		{10, 3, "!\uFFFD\uFFFD", 13, true},
		{0, 100, "hä€😀!\uFFFD\uFFFDx\n", 15, false}, // the half of a character stays
		{15, 100, "", 15, false},
	} {
		r, err := sh.read(action.ReadShellRequest{Cursor: at + tt.from, MaxChars: tt.chars, WaitMS: 1})
		if err != nil || r.Output != tt.want || r.Cursor != at+tt.from || r.NextCursor != at+tt.next || r.Truncated != tt.more {
			t.Errorf("%d characters from %d: %+v, %v; want %q and %d", tt.chars, tt.from, r, err, tt.want, at+tt.next)
		}
	}
	sh.write(`printf '\244.'`)
	if got := sh.until("ä."); got != "ä." {
		t.Errorf("the rest: %q", got)
	}
	r, err := sh.read(action.ReadShellRequest{Cursor: at, MaxChars: 3, Encoding: "base64"})
	if raw, derr := base64.StdEncoding.DecodeString(r.Output); err != nil || derr != nil || string(raw) != "h\xc3\xa4" || r.NextCursor != at+3 || !r.Truncated || r.Encoding != "base64" {
		t.Errorf("as bytes: %+v, %v, %v", r, err, derr)
	}
	// After the end nothing is left for later.
	sh.write(`printf '\303'; exit`)
	until(t, "its end", func() bool {
		r, err = sh.read(action.ReadShellRequest{Cursor: sh.cursor, WaitMS: 1000})
		return err != nil || r.State == action.Stopped && r.Output != ""
	})
	if err != nil || r.Output != "\uFFFD" || r.NextCursor != sh.cursor+1 {
		t.Errorf("at the end: %+v, %v", r, err)
	}
}

func TestShellPlain(t *testing.T) {
	w := open(t)
	sh := w.openShell("a")
	at := sh.cursor
	sh.write(`printf '\033[1mbold\033[0m 10%%\r\033[Kdone\n\033]0;title\007abx\bc\n\033[3'`)
	sh.until("\x1b[3")
	r, err := sh.read(action.ReadShellRequest{Cursor: at, Plain: true})
	if err != nil || r.Output != "done\nabc\n" || r.Truncated || r.NextCursor != sh.cursor-3 || r.Cursor != at {
		t.Fatalf("plain: %+v, %v; want all but three bytes of %d", r, err, sh.cursor)
	}
	sh.write(`printf '1mred'`)
	sh.until("red")
	if r, err = sh.read(action.ReadShellRequest{Cursor: r.NextCursor, Plain: true}); err != nil || r.Output != "red" || r.NextCursor != sh.cursor {
		t.Errorf("the rest: %+v, %v", r, err)
	}
}

// The oldest that nobody has read is dropped, and the reader is told so.
func TestShellDropsTheOldest(t *testing.T) {
	w := open(t)
	sh := w.openShell("a")
	at := sh.cursor
	sh.write("seq 400000; echo end")
	until(t, "the end", func() bool {
		r, err := sh.read(action.ReadShellRequest{Cursor: sh.cursor, WaitMS: 1000})
		if err != nil {
			t.Fatal(err)
		}
		sh.cursor = r.NextCursor
		return strings.HasSuffix(r.Output, "end\n")
	})
	r, err := sh.read(action.ReadShellRequest{Cursor: at, MaxChars: 10})
	const kept = 1 << 20
	if err != nil || r.Cursor != sh.cursor-kept || r.NextCursor != r.Cursor+10 || !r.Truncated {
		t.Errorf("from %d of %d: %+v, %v", at, sh.cursor, r, err)
	}
	// The control: of what is there nothing is left out.
	next := r.Cursor
	var all strings.Builder
	for next < sh.cursor {
		r, err := sh.read(action.ReadShellRequest{Cursor: next, MaxChars: 100_000})
		if err != nil || r.Cursor != next || r.Truncated != (r.NextCursor < sh.cursor) {
			t.Fatalf("from %d: %v, cursor %d, next %d, truncated %v", next, err, r.Cursor, r.NextCursor, r.Truncated)
		}
		all.WriteString(r.Output)
		next = r.NextCursor
	}
	if text := all.String(); len(text) != kept || !strings.HasSuffix(text, "399999\n400000\nend\n") {
		t.Errorf("%d bytes, ending in %q", len(text), text[max(0, len(text)-40):])
	}
}

func TestShellSignals(t *testing.T) {
	w := open(t)
	sh := w.openShell("a")
	for signal, code := range map[string]int{"INT": 130, "TERM": 143, "HUP": 129, "QUIT": 131, "KILL": 137} {
		sh.write("sh -c 'echo go; exec sleep 1000'")
		sh.until("go\n")
		got := must[action.SignalShellReply](w, action.SignalShellRequest{Action: action.SignalShell, ShellID: "a", Signal: signal})
		if got.Signal != signal || got.State != action.Running {
			t.Errorf("signalled %+v", got)
		}
		sh.write("echo after $?")
		sh.until(fmt.Sprintf("after %d\n", code))
	}
	// Without anything in front of it, the shell itself is meant.
	must[action.SignalShellReply](w, action.SignalShellRequest{Action: action.SignalShell, ShellID: "a", Signal: "KILL"})
	until(t, "its end", func() bool {
		got := must[action.Shell](w, action.ShellRequest{Action: action.StatusShell, ShellID: "a"})
		return got.State == action.Stopped && *got.ExitCode == 137
	})
	_, err := ask[map[string]any](w, action.SignalShellRequest{Action: action.SignalShell, ShellID: "a", Signal: "INT"})
	refused(t, err, "shell a has ended")
	_, err = ask[map[string]any](w, action.WriteShellRequest{Action: action.WriteShell, ShellID: "a", Input: "x"})
	refused(t, err, "shell a has ended")
	_, err = ask[map[string]any](w, action.ResizeShellRequest{Action: action.ResizeShell, ShellID: "a", Cols: 5, Rows: 5})
	refused(t, err, "shell a has ended")
}

// Closing ends what runs in the background and in sessions of its own, too.
func TestShellCloseEndsAll(t *testing.T) {
	w := open(t)
	sh := w.openShell("a")
	// In a shell of their own, or this one tells when setsid is done with each.
	sh.write("(setsid sh -c 'while sleep 0.1; do date >>alive; done' & setsid sleep 1001 &); echo on")
	sh.until("on\n")
	alive := filepath.Join(w.dir, "alive")
	until(t, alive, func() bool { _, err := os.Stat(alive); return err == nil })
	got := must[action.CloseShellReply](w, action.ShellRequest{Action: action.CloseShell, ShellID: "a"})
	if got.State != action.Stopped || got.ExitCode == nil || *got.ExitCode != 137 {
		t.Errorf("closed %+v", got)
	}
	if out := must[action.ExecReply](w, action.ExecRequest{Command: "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"}); strings.Contains(out.Stdout, "sleep 1001") {
		t.Errorf("there is still %q", out.Stdout)
	}
	w.openShell("a") // the id is free
}

func TestShellWaits(t *testing.T) {
	w := open(t)
	sh := w.openShell("a")
	// Nothing comes: the wait has its length, and no more.
	began := time.Now()
	if r, err := sh.read(action.ReadShellRequest{Cursor: sh.cursor, WaitMS: 200}); err != nil || r.Output != "" || r.NextCursor != sh.cursor || time.Since(began) < 200*time.Millisecond {
		t.Errorf("after %v: %+v, %v", time.Since(began), r, err)
	}
	// Something comes: the wait ends with it, and that for quiet later.
	sh.write("sleep 0.1; echo one; sleep 0.1; echo two; sleep 1000")
	if r, err := sh.read(action.ReadShellRequest{Cursor: sh.cursor, WaitMS: 20000, WaitForIdleMS: 1500}); err != nil || r.Output != "one\ntwo\n" {
		t.Errorf("got %+v, %v", r, err)
	}
	// Who leaves is not waited for.
	ctx, cancel := context.WithCancel(t.Context())
	c, served := w.connect(ctx)
	defer c.Close()
	fmt.Fprintf(c, `{"action":"read_shell","shell_id":"a","cursor":%d,"wait_ms":20000}`, sh.cursor+8)
	cancel()
	<-served
	if raw, _ := io.ReadAll(c); len(raw) != 0 {
		t.Errorf("a connection that was cut is answered by %q", raw)
	}
}

// A terminal that is not read takes no more than it has room for, and says so.
func TestShellInputIsBounded(t *testing.T) {
	w := open(t)
	sh := w.openShell("a")
	sh.write("stty raw; echo raw; sleep 1000")
	sh.until("raw\n")
	_, err := ask[action.WriteShellReply](w, action.WriteShellRequest{Action: action.WriteShell, ShellID: "a", Input: strings.Repeat("x", 500_000)})
	refused(t, err, "not all of the input was taken within")
	must[action.SignalShellReply](w, action.SignalShellRequest{Action: action.SignalShell, ShellID: "a", Signal: "KILL"})
}

func TestManyShells(t *testing.T) {
	w := open(t)
	openOne := func(id string) error {
		_, err := ask[action.Shell](w, action.OpenShellRequest{Action: action.OpenShell, ShellID: id})
		return err
	}
	for i := range server.MaxShells {
		if err := openOne(fmt.Sprint("s", i)); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, openOne("more"), "64 shells are open")
	// One that has ended makes room.
	must[action.WriteShellReply](w, action.WriteShellRequest{Action: action.WriteShell, ShellID: "s5", Input: "exit 7", AppendNewline: true})
	until(t, "its end", func() bool {
		return must[action.Shell](w, action.ShellRequest{Action: action.StatusShell, ShellID: "s5"}).State == action.Stopped
	})
	if err := openOne("more"); err != nil {
		t.Error(err)
	}
	_, err := ask[action.Shell](w, action.ShellRequest{Action: action.StatusShell, ShellID: "s5"})
	refused(t, err, "no shell")
	if got := must[action.ListShellsReply](w, action.ListRequest{Action: action.ListShells}); len(got.Shells) != server.MaxShells || got.Shells[0].ShellID != "more" {
		t.Errorf("%d shells, the first is %+v", len(got.Shells), got.Shells[0])
	}
	// An id of one that has ended is another's at once.
	must[action.WriteShellReply](w, action.WriteShellRequest{Action: action.WriteShell, ShellID: "s6", Input: "exit 7", AppendNewline: true})
	until(t, "its end", func() bool { return openOne("s6") == nil })
}
