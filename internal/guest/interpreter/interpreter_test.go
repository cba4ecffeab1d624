package interpreter_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/interpreter"
	"github.com/carboy-sandbox/carboy/test/long"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// rig is a server with a kernel of this machine's Python.
type rig struct {
	t   *testing.T
	url string
	s   *interpreter.Server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir, home := t.TempDir(), t.TempDir()
	if err := exec.Command("/usr/bin/python3", "-c", "import ipykernel").Run(); err != nil {
		t.Fatal("this machine's python3 has no ipykernel: make deps")
	}
	// A path of a socket is short.
	short, err := os.MkdirTemp("", "ci")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	s, err := interpreter.New(interpreter.Options{
		Dir: short, Cwd: home,
		Env: []string{"PATH=/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + dir, "GLOBAL=all", "MPLCONFIGDIR=" + dir},
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		srv.Close()
	})
	return &rig{t: t, url: srv.URL, s: s}
}

// event is any of a cell's.
type event struct {
	Type, Text, Name, Value, Traceback string
	Count                              int  `json:"execution_count"`
	Main                               bool `json:"is_main_result"`
	HTML, PNG                          string
	JSON, Data, Chart                  any
}

func (r *rig) call(ctx context.Context, method, path string, body any) *http.Response {
	r.t.Helper()
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			r.t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, &b)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// run runs a cell to its end and returns its events but keepalives.
func (r *rig) run(body map[string]any) (events []event) {
	r.t.Helper()
	resp := r.call(r.t.Context(), "POST", "/execute", body)
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("execute %v = %d %s", body, resp.StatusCode, b)
	}
	last := ""
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.t.Fatal(err)
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		if i := bytes.IndexFunc(line, func(c rune) bool { return c > 126 }); i >= 0 {
			r.t.Errorf("%q is not ASCII", line)
		}
		last = e.Type
		if e.Type != "keepalive" && e.Type != "end_of_execution" {
			events = append(events, e)
		}
	}
	if last != "end_of_execution" {
		r.t.Errorf("the last event is %q", last)
	}
	return events
}

// code runs code in the default context and returns its main result's text,
// its output and its error's name.
func (r *rig) code(code string, more ...any) (text, out, failed string) {
	r.t.Helper()
	body := map[string]any{"code": code}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	for _, e := range r.run(body) {
		switch {
		case e.Type == "result" && e.Main:
			text = e.Text
		case e.Type == "stdout", e.Type == "stderr":
			out += e.Type[3:4] + e.Text // o or e
		case e.Type == "error":
			failed = e.Name + ": " + e.Value
		}
	}
	return text, out, failed
}

func TestCells(t *testing.T) {
	r := newRig(t)
	if err := r.s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, code, text, out, failed string }{
		{"value", "x = 20\nx + 1", "21", "", ""},
		{"state", "x * 2", "40", "", ""},
		{"a-string-has-no-quotes", "'it' + ' is'", "it is", "", ""},
		{"unicode", "'héllo 😀'", "héllo 😀", "", ""},
		{"output", "import sys\nprint(1)\nprint(2, file=sys.stderr)", "", "o1\ne2\n", ""},
		{"indented", "\n    y = 3\n    y\n    ", "3", "", ""},
		{"exception", "1/0", "", "", "ZeroDivisionError: division by zero"},
		{"goes-on-after-it", "x", "20", "", ""},
		{"syntax", "x =", "", "", "SyntaxError: invalid syntax (" + "{ANY})"},
		{"await", "import asyncio\nawait asyncio.sleep(0, 'woke')", "woke", "", ""},
		{"shell", "!echo from the shell", "", "ofrom the shell\r\n", ""},
		{"magic", "%env GLOBAL", "all", "", ""},
		{"input", "input()", "", "", "StdinNotImplementedError: raw_input was called, but this frontend does not support input requests."},
		{"empty", "", "", "", ""},
		{"jedi-can-be-imported", "import sys\n'jedi' in sys.modules, 'debugpy' in sys.modules", "(False, False)", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, out, failed := r.code(tt.code)
			if before, _, ok := strings.Cut(tt.failed, "{ANY}"); ok && strings.HasPrefix(failed, before) {
				failed = tt.failed
			}
			if text != tt.text || strings.ReplaceAll(out, "\r", "") != strings.ReplaceAll(tt.out, "\r", "") || failed != tt.failed {
				t.Errorf("%q = %q, %q, %q; want %q, %q, %q", tt.code, text, out, failed, tt.text, tt.out, tt.failed)
			}
		})
	}
}

// What a process below a cell writes is read by a thread of the kernel's, which a cell that is
// over does not wait for: it comes with that cell or with a later one, once.
func TestOutputFromBelow(t *testing.T) {
	r := newRig(t)
	_, out, failed := r.code("import os\n_ = os.system('echo below')")
	for out == "" && failed == "" && t.Context().Err() == nil {
		_, out, failed = r.code("")
	}
	if _, more, _ := r.code(""); out != "obelow\n" || more != "" || failed != "" {
		t.Errorf("it wrote %q, then %q; %s", out, more, failed)
	}
}

func TestTracebackAndCount(t *testing.T) {
	r := newRig(t)
	for i := range 2 {
		events := r.run(map[string]any{"code": "def f():\n  raise KeyError('k')\nf()"})
		if len(events) != 2 || events[0].Type != "number_of_executions" || events[0].Count != i+1 {
			t.Fatalf("events = %+v", events)
		}
		if e := events[1]; e.Name != "KeyError" || !strings.Contains(e.Traceback, "in f()") || strings.Contains(e.Traceback, "\x1b") {
			t.Errorf("error = %+v", e)
		}
	}
}

func TestVariables(t *testing.T) {
	r := newRig(t)
	get := "import os; (os.getenv('GLOBAL'), os.getenv('ONE'))"
	for _, tt := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "('all', None)"},
		{map[string]string{"ONE": "a'\"\\\n\u2028😀", "GLOBAL": "mine"}, `('mine', 'a\'"\\\n\u2028😀')`},
		{nil, "('all', None)"},
	} {
		if got, _, failed := r.code(get, "env_vars", tt.env); got != tt.want || failed != "" {
			t.Errorf("with %q: %s %s, want %s", tt.env, got, failed, tt.want)
		}
	}
	for name, env := range map[string]map[string]string{"name": {"A B": "x"}, "injection": {"A']=1;x['": "x"}, "zero": {"A": "\x00"}} {
		if resp := r.call(t.Context(), "POST", "/execute", map[string]any{"code": "1", "env_vars": env}); resp.StatusCode != 400 {
			t.Errorf("%s: status %d, want 400", name, resp.StatusCode)
		}
	}
	if events := r.run(map[string]any{"code": "1", "env_vars": map[string]string{"A": "b"}}); events[0].Count != 4 {
		t.Errorf("setting variables counts as a cell: %+v", events)
	}
}

func TestContexts(t *testing.T) {
	r := newRig(t)
	cwd := t.TempDir()
	var c struct{ ID, Language, Cwd string }
	if err := json.NewDecoder(r.call(t.Context(), "POST", "/contexts", map[string]any{"cwd": cwd}).Body).Decode(&c); err != nil {
		t.Fatal(err)
	}
	if c.ID == "" || c.Language != "python" || c.Cwd != cwd {
		t.Fatalf("context = %+v", c)
	}
	in := func(code string) string {
		text, _, failed := r.code(code, "context_id", c.ID)
		return text + failed
	}
	if got := in("x = 1\n__import__('os').getcwd()"); got != cwd {
		t.Errorf("it starts in %s, want %s", got, cwd)
	}
	if _, _, failed := r.code("x"); failed != "NameError: name 'x' is not defined" {
		t.Errorf("another context sees its state: %s", failed)
	}
	if got := in("x"); got != "1" {
		t.Errorf("x = %s", got)
	}
	if resp := r.call(t.Context(), "POST", "/contexts/"+c.ID+"/restart", nil); resp.StatusCode != 200 {
		t.Fatalf("restart = %d", resp.StatusCode)
	}
	if got := in("x"); got != "NameError: name 'x' is not defined" {
		t.Errorf("after a restart: %s", got)
	}
	if resp := r.call(t.Context(), "DELETE", "/contexts/"+c.ID, nil); resp.StatusCode != 200 {
		t.Errorf("delete = %d", resp.StatusCode)
	}
	for path, body := range map[string]any{"/execute": map[string]any{"code": "1", "context_id": c.ID}, "/contexts/" + c.ID + "/restart": nil} {
		resp := r.call(t.Context(), "POST", path, body)
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 404 || !strings.Contains(string(b), c.ID) {
			t.Errorf("%s of a context that is gone = %d %s", path, resp.StatusCode, b)
		}
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name, path string
		body       map[string]any
		status     int
		want       string
	}{
		{"language", "/execute", map[string]any{"code": "1", "language": "cobol"}, 404, "there is: python"},
		{"context-of-language", "/contexts", map[string]any{"language": "r"}, 404, "r-cran-irkernel"},
		{"both", "/execute", map[string]any{"code": "1", "language": "python", "context_id": "x"}, 400, "only one"},
		{"no-code", "/execute", map[string]any{}, 400, "code"},
		{"unknown-field", "/execute", map[string]any{"code": "1", "rights": "all"}, 400, "rights"},
		{"cwd", "/contexts", map[string]any{"cwd": "/nowhere"}, 400, "cwd: stat /nowhere"},
		{"path", "/nope", nil, 404, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp := r.call(t.Context(), "POST", tt.path, tt.body)
			if b, _ := io.ReadAll(resp.Body); resp.StatusCode != tt.status || !strings.Contains(string(b), tt.want) {
				t.Errorf("%d %s, want %d %q", resp.StatusCode, b, tt.status, tt.want)
			}
		})
	}
}

// The client goes away while a cell runs, even one that will not be
// interrupted the first time: the next one runs, in the same state.
func TestInterrupt(t *testing.T) {
	r := newRig(t)
	r.code("x = 7")
	ctx, cancel := context.WithCancel(t.Context())
	resp := r.call(ctx, "POST", "/execute", map[string]any{"code": `
import time
try:
    print("running", flush=True)
    time.sleep(300)
except KeyboardInterrupt:
    x += 1
time.sleep(300)`})
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), "running") {
			break
		}
	}
	cancel()
	if text, _, failed := r.code("x"); text != "8" {
		t.Errorf("x = %s %s, want 8", text, failed)
	}
}

func TestKernelThatDies(t *testing.T) {
	r := newRig(t)
	r.code("x = 1")
	if _, _, failed := r.code("import os\nos._exit(3)"); failed != "ContextRestarting: Context was restarted" {
		t.Errorf("error = %q", failed)
	}
	if text, _, failed := r.code("'x' in globals()"); text != "False" {
		t.Errorf("the next cell: %s %s", text, failed)
	}
}

func TestRestartEndsACell(t *testing.T) {
	r := newRig(t)
	r.code("1")
	var list []struct{ ID string }
	if err := json.NewDecoder(r.call(t.Context(), "GET", "/contexts", nil).Body).Decode(&list); err != nil || len(list) != 1 {
		t.Fatalf("contexts = %+v, %v", list, err)
	}
	resp := r.call(t.Context(), "POST", "/execute", map[string]any{"code": "print('on', flush=True)\nimport time\ntime.sleep(300)"})
	restarted := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.Contains(lines.Text(), `"on`) {
			r.call(t.Context(), "POST", "/contexts/"+list[0].ID+"/restart", nil)
		}
		restarted = restarted || strings.Contains(lines.Text(), "ContextRestarting")
	}
	if !restarted {
		t.Error("the cell was not told")
	}
}

func TestOutputIsBounded(t *testing.T) {
	most := long.Rounds[int64](8<<20, 64<<20)
	t.Cleanup(interpreter.OutputForTest(most)) // after the rig's end
	r := newRig(t)
	events := r.run(map[string]any{"code": "x = 3\nwhile True: print('y' * 1000)"})
	size := int64(0)
	var last event
	for _, e := range events {
		size += int64(len(e.Text))
		if e.Type == "error" {
			last = e
		}
	}
	if last.Name != "OutputLimitExceeded" || size > most {
		t.Errorf("%d bytes, then %+v", size, last)
	}
	// A kernel that was interrupted in the middle of its own printing has been
	// seen to hang: then it is replaced, and the next cell says what is lost.
	text, _, failed := r.code("x")
	for n := 0; n < 10 && strings.HasPrefix(failed, "OutputLost"); n++ { // it still throws away what was printed
		text, _, failed = r.code("x")
	}
	if text != "3" && !strings.HasPrefix(failed, "NameError") {
		t.Errorf("x = %q, %q", text, failed)
	}
}

// What a value looks like, beside its text.
func TestResults(t *testing.T) {
	r := newRig(t)
	one := func(code string) event {
		t.Helper()
		var found []event
		for _, e := range r.run(map[string]any{"code": code}) {
			if e.Type == "error" {
				t.Fatalf("%s: %s", e.Value, e.Traceback)
			}
			if e.Type == "result" {
				found = append(found, e)
			}
		}
		if len(found) != 1 {
			t.Fatalf("%q has %d results", code, len(found))
		}
		return found[0]
	}
	if e := one("{'a': [1, float('nan')], 2: None}"); !e.Main || mustJSON(t, e.JSON) != `{"2":null,"a":[1,null]}` {
		t.Errorf("json = %s", mustJSON(t, e.JSON))
	}
	e := one("import pandas as pd\npd.DataFrame({'a': [1, None], 'b': [pd.Timestamp('2024-01-02'), pd.NaT], 'c': ['x', {1}]})")
	if got := mustJSON(t, e.Data); got != `{"a":[1,null],"b":["2024-01-02T00:00:00",null],"c":["x","{1}"]}` || !strings.Contains(e.HTML, "<table") {
		t.Errorf("data = %s, html = %.40s", got, e.HTML)
	}
	e = one("import matplotlib.pyplot as plt\nplt.plot([1,2],[3,4])\nplt.title('T')\nplt.show()")
	if chart, ok := e.Chart.(map[string]any); e.Main || !ok || chart["type"] != "line" || chart["title"] != "T" || !strings.HasPrefix(e.PNG, "iVBORw0KGgo") {
		t.Errorf("chart = %v, png = %.20s", e.Chart, e.PNG)
	}
	if e := one("from PIL import Image\nImage.new('RGB', (2, 2)).save('a.png')"); e.Main || e.PNG == "" {
		t.Errorf("a saved image = %+v", e)
	}
	if e := one("class C:\n  def _repr_e2b_data_(self): return {'own': 1}\nC()"); mustJSON(t, e.Data) != `{"own":1}` {
		t.Errorf("own data = %v", e.Data)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Cells of one context wait for each other; those of two do not.
func TestCellsWait(t *testing.T) {
	r := newRig(t)
	r.code("n = []")
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(map[string]any{"code": "n.append(1)\nimport time\ntime.sleep(0.2)\nn.append(2)"})
	}()
	text := ""
	if !patience.Until(20*time.Second, func() bool { text, _, _ = r.code("n"); return text != "[]" }) || text != "[1, 2]" {
		t.Fatalf("n = %s", text)
	}
	<-done
}

func TestPython(t *testing.T) {
	cmd := exec.Command("/usr/bin/python3", "-m", "unittest", "discover", "-s", "python")
	cmd.Env = append(os.Environ(), "MPLCONFIGDIR="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
