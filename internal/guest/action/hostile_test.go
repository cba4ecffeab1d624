package action_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	server "github.com/carboy-sandbox/carboy/internal/guest/action"
	"github.com/carboy-sandbox/carboy/test/long"
)

func TestHostileRequests(t *testing.T) {
	w := open(t)
	long := strings.Repeat("x", action.MaxHeader)
	tests := []struct{ name, request, words string }{
		{"nothing", "", "before a request came"},
		{"blanks", " \n\t\r\n", "in its middle"},
		{"array", "[]", "has to be a JSON object"},
		{"text", "GET / HTTP/1.1\r\n\r\n", "has to be a JSON object"},
		{"string", `"exec"`, "has to be a JSON object"},
		{"null", "null", "has to be a JSON object"},
		{"number", "12", "has to be a JSON object"},
		{"empty-object", "{}", "neither an action nor a command"},
		{"cut", `{"action":"list_shells"`, "in its middle"},
		{"not-json", `{action:1}`, "not JSON, at byte"},
		{"control-in-string", "{\"command\":\"a\x01\"}", "not JSON, at byte"},
		{"unknown-action", `{"action":"exec_stream"}`, `no action "exec_stream"`},
		{"empty-action", `{"action":""}`, `no action ""`},
		{"action-number", `{"action":5}`, "action has to be a string"},
		{"action-in-capitals", `{"Action":"list_shells"}`, "neither an action nor a command"},
		{"action-twice", `{"action":"list_shells","action":"list_shells"}`, "there twice"},
		{"unknown-field", `{"action":"list_shells","deep":true}`, `no field "deep"`},
		{"field-in-capitals", `{"Command":"a","command":"echo"}`, `no field "Command"`},
		{"command-list", `{"command":["echo"]}`, "can't be a JSON array"},
		{"command-null", `{"command":null}`, "neither an action nor a command"},
		{"fraction", `{"command":"a","timeout_seconds":1.5}`, "timeout_seconds\" has to be a whole number"},
		{"number-too-large", `{"command":"a","timeout_seconds":99999999999999999999}`, "has to be a whole number"},
		{"deep", `{"command":"a","env":` + strings.Repeat(`{"a":`, 20000) + `1` + strings.Repeat("}", 20000) + `}`, "deep"},
		{"deep-open", `{"command":` + strings.Repeat("[", 100_000), "deep"},
		{"no-utf8", "{\"command\":\"\xff\"}", "no UTF-8"},
		{"endless", `{"command":"` + long, "longer than 1048576 bytes"},
		{"endless-blanks", strings.Repeat(" ", action.MaxHeader+2), "longer than 1048576 bytes"},
		{"one-byte-too-long", `{"command":"` + long[:action.MaxHeader-13] + `"}`, "longer than 1048576 bytes"},
		{"just-so-long", `{"command":"` + long[:action.MaxHeader-14] + `"}`, "the kernel takes at most"},
		{"two-requests", `{"action":"list_shells"}{"action":"list_shells"}`, "something follows it"},
		{"secrets", `{"action":"install_secrets","secrets":{"A":"b"}}`, "the gate keeps them"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := reply[map[string]any](w, w.send([]byte(tt.request), true))
			refused(t, err, tt.words)
		})
	}
	// The controls: what is well is answered, however its end comes.
	for name, request := range map[string]string{
		"line": "{\"action\":\"list_shells\"}\n", "blanks-before": "\n {\"action\":\"list_shells\"}", "no-line": `{"action":"list_shells"}`,
	} {
		for _, half := range []bool{false, true} {
			if got := string(w.send([]byte(request), half)); got != "{\"shells\":[]}\n" {
				t.Errorf("%s, ended %v: %q", name, half, got)
			}
		}
	}
}

// A request that is cut is never taken for a whole one, at whatever byte.
func TestCutRequests(t *testing.T) {
	w := open(t)
	for _, request := range []string{
		`{"command": "touch cut-$$", "timeout_seconds": 30}`,
		`{"action": "write_workspace_file", "path": "cut", "text": "\u00e4\"}"}`,
		`{"action": "open_shell", "shell_id": "cut", "cols": 12, "rows": 3}`,
	} {
		for n := range len(request) {
			_, err := reply[map[string]any](w, w.send([]byte(request[:n]), true))
			if err == nil {
				t.Errorf("%q was taken for a request", request[:n])
			}
		}
	}
	if got := must[action.ListFilesReply](w, action.ListFilesRequest{Action: action.ListFiles}); len(got.Entries) != 0 {
		t.Errorf("cut requests left %+v", got.Entries)
	}
	if got := must[action.ListShellsReply](w, action.ListRequest{Action: action.ListShells}); len(got.Shells) != 0 {
		t.Errorf("cut requests left %+v", got.Shells)
	}
}

// Who sends nothing, or a byte now and then, is told so, and keeps nobody out for long.
func TestSlowRequests(t *testing.T) {
	w := open(t)
	var all sync.WaitGroup
	begun := make(chan struct{}, server.MaxAtOnce)
	for i := range server.MaxAtOnce {
		c, _ := w.connect(t.Context())
		all.Go(func() {
			defer c.Close()
			if i%2 == 0 {
				_, _ = io.WriteString(c, `{"command"`)
			}
			begun <- struct{}{}
			raw, err := io.ReadAll(c)
			if want := `{"error":"no whole request came in time","kind":"invalid"}` + "\n"; string(raw) != want && !bytes.Contains(raw, []byte("already")) {
				t.Errorf("%q, %v", raw, err)
			}
		})
	}
	for range server.MaxAtOnce {
		<-begun
	}
	// One more is told that there are too many, or the first have gone.
	raw := w.send([]byte(`{"action":"list_shells"}`), true)
	if !bytes.Contains(raw, []byte("64 requests are being answered already")) && !bytes.Contains(raw, []byte("shells")) {
		t.Errorf("one more: %q", raw)
	}
	all.Wait()
	if raw := w.send([]byte(`{"action":"list_shells"}`), true); !bytes.Contains(raw, []byte("shells")) {
		t.Errorf("after them: %q", raw)
	}
}

// random is a request such as a caller gone wrong, or a hostile one, might send.
func random(r *rand.Rand) []byte {
	names := []string{
		action.Exec, action.ExtractArchive, action.ExportArchive, action.OpenShell, action.ReadShell, action.WriteShell, action.SignalShell, action.CloseShell,
		action.StatusShell, action.ResizeShell, action.ListShells, action.StartService, action.StatusService, action.LogsService, action.StopService,
		action.ListServices, action.ListFiles, action.ReadFile, action.WriteFile, action.InstallSecrets, "", "reboot",
	}
	values := []any{
		nil, true, -1, 0, 1, 3, 1 << 40, 1.5, "", "a", "web", "../..", "/proc/self/mem", "/etc/passwd", "\x00", "\u2028", strings.Repeat("y", 5000),
		[]any{},
		map[string]any{"A": "b"},
		map[string]any{"type": "tcp", "address": "1"},
		map[string]any{"type": "file", "path": "x"},
		"true", "INT", "base64",
	}
	fields := []string{
		"shell_id", "service_name", "cwd", "cols", "rows", "env", "cursor", "max_chars", "plain", "wait_ms", "input", "append_newline", "signal", "timeout_seconds",
		"readiness", "ready_timeout_seconds", "restart", "tail_lines", "path", "recursive", "max_bytes", "text", "destination", "archive_size", "encoding", "x",
	}
	q := map[string]any{}
	if r.IntN(8) > 0 {
		q["action"] = names[r.IntN(len(names))]
	}
	for range r.IntN(5) {
		q[fields[r.IntN(len(fields))]] = values[r.IntN(len(values))]
	}
	if r.IntN(16) == 0 {
		q["command"] = "true"
	}
	raw, _ := json.Marshal(q)
	switch r.IntN(6) {
	case 0:
		raw = raw[:r.IntN(len(raw))]
	case 1:
		raw[r.IntN(len(raw))] = byte(r.IntN(256))
	case 2:
		raw = append(raw, make([]byte, r.IntN(2000))...)
	}
	return raw
}

func TestManyRandomRequests(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // what is garbage hardly counts, whenever it is collected
	w := open(t)
	count := long.Rounds(1000, 10_000)
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, goroutines := live(), runtime.NumGoroutine()
	var peak uint64
	started := time.Now()
	var all sync.WaitGroup
	todo := make(chan int)
	for worker := range 8 {
		r := rand.New(rand.NewPCG(16, uint64(worker)))
		all.Go(func() {
			for range todo {
				raw := random(r)
				if got := w.send(raw, true); !json.Valid(got[:bytes.IndexByte(got, '\n')+1]) {
					t.Errorf("%.300q is answered by %.300q", raw, got)
				}
			}
		})
	}
	for i := range count {
		if todo <- i; i%1000 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
	}
	close(todo)
	all.Wait()
	if got := must[action.ExecReply](w, action.ExecRequest{Command: "echo alive"}); got.Stdout != "alive\n" {
		t.Errorf("after them: %+v", got)
	}
	after := live()
	t.Logf("%d requests in %v: heap %d KiB before, at most %d KiB seen, %d KiB after; %d goroutines before, %d after",
		count, time.Since(started).Round(time.Millisecond), before>>10, peak>>10, after>>10, goroutines, runtime.NumGoroutine())
	if after > before+64<<20 || peak > 256<<20 {
		t.Errorf("memory has grown: %s", fmt.Sprint(before, peak, after))
	}
}

// Many commands, each with about all the output that is kept, of bytes that take six in
// JSON, are more than once what is made of two of them.
func TestMemoryIsBounded(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // what is garbage hardly counts, whenever it is collected
	w := open(t)
	const commands = 12
	var all sync.WaitGroup
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-stop:
				peak <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	for range commands {
		all.Go(func() {
			c, served := w.connect(t.Context())
			_, _ = io.WriteString(c, `{"command":"head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2","timeout_seconds":600}`)
			if n, err := io.Copy(io.Discard, c); n < 12_000_000 || err != nil {
				t.Errorf("a reply of %d bytes, %v", n, err)
			}
			c.Close()
			<-served
		})
	}
	all.Wait()
	close(stop)
	most := <-peak
	t.Logf("%d commands with 2 MB of output each, 12 MB in JSON: heap at most %d MiB", commands, most>>20)
	if most > 200<<20 { // the engine keeps as much of what runs as is kept here
		t.Errorf("%d MiB", most>>20)
	}
}

func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{"command": "echo ok"}`, "{\"action\":\"extract_archive\",\"destination\":\"/workspace\",\"archive_size\":3}\nabc",
		`{"action":"open_shell","shell_id":"shell-1","cwd":"/workspace","cols":120,"rows":30}`, `{"action":"list_shells"} x`,
		`{"action":"start_service","service_name":"a","command":"b","readiness":{"type":"tcp","address":"1"}}`,
		"[]", "{", "", " {}", `{"action":"exec","command":"\ud800"}`, "{\"a\":\"}\"}}", `{"action":"read_shell","cursor":1e3}`,
	} {
		f.Add([]byte(s), 1)
	}
	f.Fuzz(func(t *testing.T, raw []byte, piece int) {
		whole, _, rest, err := server.ReadHeader(bytes.NewReader(raw))
		small, _, also, serr := server.ReadHeader(&pieces{raw, min(max(piece, 1), 64)})
		if (err == nil) != (serr == nil) || !bytes.Equal(whole, small) {
			t.Fatalf("in one piece %q, %v; in many %q, %v", whole, err, small, serr)
		}
		if err != nil {
			return
		}
		if !json.Valid(whole) || whole[0] != '{' || len(whole) > action.MaxHeader {
			t.Errorf("%q was taken for an object", whole)
		}
		behind, err := io.ReadAll(rest)
		if others, oerr := io.ReadAll(also); err != nil || oerr != nil || !bytes.Equal(behind, others) ||
			!bytes.HasSuffix(raw, append(bytes.Clone(whole), behind...)) {
			t.Errorf("behind %q there is %q, or %q", whole, behind, others)
		}
		if err := server.Parse(whole, nil); err == nil { // then what was left out is not in it either
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(whole, &fields); err != nil || fields["action"] == nil && fields["command"] == nil {
				t.Errorf("%q is a request", whole)
			}
		}
	})
}

// pieces is read a few bytes at a time.
type pieces struct {
	b    []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(len(p.b), p.size)])
	p.b = p.b[n:]
	return n, nil
}
