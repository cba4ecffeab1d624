package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/client/guest"
	"github.com/carboy-sandbox/carboy/test/patience"
)

var echo = action.ExecRequest{Command: "echo ok", TimeoutSeconds: 30}

// A reply that is cut anywhere is an error.
func TestCutReplies(t *testing.T) {
	const whole = `{` + shell + `,"cursor":0,"next_cursor":12,"output":"a\"}\n","truncated":false}`
	for n := range len(whole) {
		_, c, _ := answering(t, whole[:n])
		if got, err := c.ReadShell(t.Context(), machine, action.ReadShellRequest{ShellID: "s", MaxChars: 1}); !errors.Is(err, guest.ErrReply) {
			t.Errorf("cut after %d bytes: %+v, %v", n, got, err)
		}
	}
	const head = `{"path":"/x","artifact_type":"file","archive_size":5,"entry_count":1,"bytes_written":3}` + "\n"
	for n := range len(head + "12345") {
		_, c, _ := answering(t, (head + "12345")[:n])
		if got, err := c.ExportArchive(t.Context(), machine, "/x", io.Discard, time.Minute); err == nil {
			t.Errorf("an export cut after %d bytes: %+v", n, got)
		}
	}
}

func TestReplies(t *testing.T) {
	const good = `"stdout":"","stderr":"","exit_code":0,"duration_ms":5`
	for _, test := range []struct{ name, reply, want string }{
		{"nothing", "", "JSON object"},
		{"null", "null", "JSON object"},
		{"text", "ready", "JSON object"},
		{"two", "{" + good + "}{" + good + "}", "JSON object"},
		{"lacks a field", `{"stdout":"","stderr":"","duration_ms":5}`, "exit_code"},
		{"another type", `{"stdout":1,"stderr":"","exit_code":0,"duration_ms":5}`, "stdout"},
		{"an error that is no text", `{"error":{}}`, "error"},
		{"an error and more", `{"error":"no",` + good + `}`, "no"},
		{"endless", `{"stdout":"` + strings.Repeat("x", action.MaxReply) + `"`, "longer"},
	} {
		_, c, conns := answering(t, test.reply)
		if got, err := c.Exec(t.Context(), machine, echo); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %.200v", test.name, got, err)
		}
		if !conns[0].closed {
			t.Errorf("%s: not closed", test.name)
		}
	}
	_, c, _ := answering(t, "{"+good+`,"later":true}`+"\n")
	if _, err := c.Exec(t.Context(), machine, echo); err != nil {
		t.Errorf("a reply with more fields: %v", err)
	}
}

// What a sandbox's guest has besides the seed's calls.
func TestMoreOfShellsAndServices(t *testing.T) {
	const service = `"service_name":"web","command":"x","cwd":"/","state":"running","ready":true,"restarts":2,"started_at":1,"ended_at":null,"exit_code":null,"stop_reason":null`
	for name, test := range map[string]struct {
		reply, sent string
		call        func(*guest.Client) (any, error)
		want        any
	}{
		"status": {
			`{` + shell + `}`, `{"action": "status_shell", "shell_id": "shell-1"}`,
			func(c *guest.Client) (any, error) { return c.ShellStatus(t.Context(), machine, "shell-1") },
			&action.Shell{ShellID: "shell-1", CWD: "/workspace", Cols: 120, Rows: 30, State: action.Running, StartedAt: 1},
		},
		"resize": {
			`{` + shell + `}`, `{"action": "resize_shell", "shell_id": "shell-1", "cols": 120, "rows": 30}`,
			func(c *guest.Client) (any, error) { return c.ResizeShell(t.Context(), machine, "shell-1", 120, 30) },
			&action.Shell{ShellID: "shell-1", CWD: "/workspace", Cols: 120, Rows: 30, State: action.Running, StartedAt: 1},
		},
		"shells": {
			`{"shells":[{` + shell + `}]}`, `{"action": "list_shells"}`,
			func(c *guest.Client) (any, error) { return c.ListShells(t.Context(), machine) },
			&action.ListShellsReply{Shells: []action.Shell{{ShellID: "shell-1", CWD: "/workspace", Cols: 120, Rows: 30, State: action.Running, StartedAt: 1}}},
		},
		"services": {
			`{"services":[{` + service + `}]}`, `{"action": "list_services"}`,
			func(c *guest.Client) (any, error) { return c.ListServices(t.Context(), machine) },
			&action.ListServicesReply{Services: []action.Service{{ServiceName: "web", Command: "x", CWD: "/", State: action.Running, Ready: true, Restarts: 2, StartedAt: 1}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, c, conns := answering(t, test.reply)
			got, err := test.call(c)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, %v", got, err)
			}
			if sent := conns[0].sent.String(); sent != test.sent+"\n" {
				t.Errorf("sent %q", sent)
			}
			_, c, _ = answering(t, "{}")
			if _, err := test.call(c); !errors.Is(err, guest.ErrReply) {
				t.Errorf("an empty reply: %v", err)
			}
		})
	}
}

func TestHandshake(t *testing.T) {
	const reply = `{"stdout":"","stderr":"","exit_code":0,"duration_ms":5}`
	at := guest.Address{Port: 7, Socket: "s"} // without a context id AF_VSOCK is not tried
	for answer, good := range map[string]bool{
		"OK 1\n" + reply: true, "OK 4294967295\n" + reply: true,
		"": false, "OK 1": false, "OK\n": false, "OK x\n" + reply: false, "OK -1\n" + reply: false, "ok 1\n" + reply: false, "KO 1\n": false,
		strings.Repeat("O", 1000): false, "\n" + reply: false, "OK 1 \n" + reply: false,
	} {
		h, c, _ := answering(t, answer)
		_, err := c.Exec(t.Context(), at, echo)
		if (err == nil) != good || len(h.vsock) != 0 {
			t.Errorf("%.40q: %v", answer, err)
		}
	}
}

// A failed connection is not an address family that is missing: nothing else is tried.
func TestFailedVsock(t *testing.T) {
	refused := fmt.Errorf("connect: %w", unix.ECONNRESET)
	_, err := guest.New(failing{refused}).Exec(t.Context(), guest.Address{CID: 3, Port: 5005, Socket: "s"}, echo)
	if !errors.Is(err, unix.ECONNRESET) || errors.Is(err, guest.ErrNotSupported) {
		t.Errorf("the error is %v", err)
	}
}

type failing struct{ err error }

func (f failing) DialVsock(context.Context, uint32, uint32) (guest.Conn, error) { return nil, f.err }

func (f failing) DialUnix(context.Context, string) (guest.Conn, error) {
	return nil, errors.New("the unix socket was tried")
}

// This kernel either has no way to a machine that is not there, or says so.
func TestSystemVsock(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(20*time.Second))
	defer cancel()
	if c, err := (guest.System{}).DialVsock(ctx, 1<<30, 5005); err == nil {
		c.Close()
		t.Error("a machine that is not there answered")
	}
}

func TestArchiveLength(t *testing.T) {
	for said, want := range map[int64]string{4: "longer", 6: "early"} {
		_, c, _ := answering(t, `{"error":"never read"}`)
		if _, err := c.UploadArchive(t.Context(), machine, strings.NewReader("12345"), said, "/", time.Minute); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("5 bytes said to be %d: %v", said, err)
		}
	}
	_, c, _ := answering(t, `{"path":"/x","artifact_type":"file","archive_size":2,"entry_count":1,"bytes_written":3}`+"\n123")
	if _, err := c.ExportArchive(t.Context(), machine, "/x", io.Discard, time.Minute); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("an export that is longer than was said: %v", err)
	}
}

// Each request is JSON as Python writes it, whatever is in it.
func TestRequestLine(t *testing.T) {
	_, c, conns := answering(t, `{"error":"no"}`)
	_, _ = c.Exec(t.Context(), machine, action.ExecRequest{Command: `a:b,"c\"{\\":,` + "\n", TimeoutSeconds: 1, Env: map[string]string{"A": ":", "B": ","}})
	want := `{"command": "a:b,\"c\\\"{\\\\\":,\n", "timeout_seconds": 1, "env": {"A": ":", "B": ","}}` + "\n"
	if got := conns[0].sent.String(); got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	_, err := c.WriteFile(t.Context(), machine, "/f", strings.Repeat("x", action.MaxHeader))
	if err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("a request that no guest reads: %v", err)
	}
}

// Over a real socket: a guest that never answers is left when the time is over, and one that
// refuses an archive before it has read it is heard.
func TestSilentGuest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at, c := guest.Address{Port: 5005, Socket: path}, guest.New(guest.System{})
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 100))
			cancel(enough)
			_, _ = conn.Read(make([]byte, 1))
		}
	}()
	if _, err := c.Exec(ctx, at, echo); !errors.Is(err, enough) {
		t.Errorf("a guest that is silent: %v", err)
	}
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
			_, _ = io.ReadFull(conn, make([]byte, len("CONNECT 5005\n")))
			_, _ = io.WriteString(conn, "OK 1\n")
			_, _ = conn.Read(make([]byte, 100))
			_, _ = io.WriteString(conn, `{"error":"too large"}`)
		}
	}()
	big := bytes.Repeat([]byte("x"), 8<<20)
	_, err = c.UploadArchive(t.Context(), at, bytes.NewReader(big), int64(len(big)), "/", time.Minute)
	if e, ok := errors.AsType[*guest.AgentError](err); !ok || e.Message != "too large" {
		t.Errorf("a guest that refuses: %v", err)
	}
}

func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"stdout":"","stderr":"","exit_code":0,"duration_ms":5}`))
	f.Add([]byte(`{"error":"no"}`))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := &fakeHost{t: t, conns: []*fakeConn{{parts: [][]byte{raw}}}}
		if len(raw) == 0 {
			h.conns[0].parts = nil
		}
		got, err := guest.New(h).Exec(t.Context(), machine, echo)
		if (got == nil) == (err == nil) {
			t.Errorf("%+v and %v", got, err)
		}
	})
}
