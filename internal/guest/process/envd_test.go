package process_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	envd "github.com/carboy-sandbox/carboy/api/envd/process"
	"github.com/carboy-sandbox/carboy/api/envd/process/processconnect"
	"github.com/carboy-sandbox/carboy/test/patience"
)

func (w *world) envd() processconnect.ProcessClient {
	return processconnect.NewProcessClient(http.DefaultClient, w.url)
}

// events are an envd stream's.
type events struct {
	pid                 uint32
	stdout, stderr, pty string
	keepalives          int
	end                 *envd.ProcessEvent_EndEvent
}

func (e *events) add(ev *envd.ProcessEvent) {
	switch ev := ev.GetEvent().(type) {
	case *envd.ProcessEvent_Start:
		e.pid = ev.Start.GetPid()
	case *envd.ProcessEvent_Data:
		e.stdout += string(ev.Data.GetStdout())
		e.stderr += string(ev.Data.GetStderr())
		e.pty += string(ev.Data.GetPty())
	case *envd.ProcessEvent_Keepalive:
		e.keepalives++
	case *envd.ProcessEvent_End:
		e.end = ev.End
	}
}

func user(name string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"))
}

func bash(script string) *envd.ProcessConfig {
	return &envd.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", script}}
}

// envdStart starts a command and reads it until enough says so, or to its end.
func (w *world) envdStart(req *connect.Request[envd.StartRequest], enough func(*events) bool) (*events, error) {
	w.t.Helper()
	stream, err := w.envd().Start(w.t.Context(), req)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	e := &events{}
	for stream.Receive() {
		e.add(stream.Msg().GetEvent())
		if enough != nil && enough(e) {
			return e, nil
		}
	}
	return e, stream.Err()
}

func TestEnvdStart(t *testing.T) {
	w := open(t, setup{cgroups: true})
	req := connect.NewRequest(&envd.StartRequest{Process: bash("echo $$; echo err >&2; id -un 2>/dev/null || id -u; exit 3")})
	req.Header().Set("Authorization", user("root"))
	e, err := w.envdStart(req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d\nroot\n", e.pid); e.stdout != want || e.stderr != "err\n" {
		t.Errorf("got %q and %q, want %q", e.stdout, e.stderr, want)
	}
	if e.end.GetExitCode() != 3 || !e.end.GetExited() || e.end.GetStatus() != "exit status 3" || e.end.GetError() != "exit status 3" {
		t.Errorf("end %v", e.end)
	}
	e, err = w.envdStart(connect.NewRequest(&envd.StartRequest{Process: bash("kill -9 $$")}), nil)
	if err != nil || e.end.GetExitCode() != -1 || e.end.GetExited() || e.end.GetStatus() != "signal: killed" || e.end.GetError() != "signal: killed" {
		t.Errorf("killed: %v, %v", e.end, err)
	}
	e, err = w.envdStart(connect.NewRequest(&envd.StartRequest{Process: bash("true")}), nil)
	if err != nil || e.end.GetExitCode() != 0 || e.end.Error != nil || e.end.GetStatus() != "exit status 0" {
		t.Errorf("success: %v, %v", e.end, err)
	}
	e, err = w.envdStart(connect.NewRequest(&envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "no-such-tool"}}), nil)
	if err != nil || e.end.GetExitCode() != 127 || !strings.Contains(e.stderr, "not found") {
		t.Errorf("not found: %v, %q, %v", e.end, e.stderr, err)
	}
}

func TestEnvdRefused(t *testing.T) {
	w := open(t, setup{cgroups: true})
	cwd := "/no/such"
	tests := []struct {
		name, auth string
		timeout    string
		req        *envd.StartRequest
		want       connect.Code
	}{
		{"no-process", "", "", &envd.StartRequest{}, connect.CodeInvalidArgument},
		{"no-directory", "", "", &envd.StartRequest{Process: &envd.ProcessConfig{Cmd: "true", Cwd: &cwd}}, connect.CodeInvalidArgument},
		{"unknown-user", user("who"), "", &envd.StartRequest{Process: bash("true")}, connect.CodeUnauthenticated},
		{"bad-header", "Basic %%%", "", &envd.StartRequest{Process: bash("true")}, connect.CodeUnauthenticated},
		{"huge-terminal", "", "", &envd.StartRequest{Process: bash("true"), Pty: &envd.PTY{Size: &envd.PTY_Size{Cols: 1 << 17}}}, connect.CodeInvalidArgument},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := connect.NewRequest(tt.req)
			if tt.auth != "" {
				req.Header().Set("Authorization", tt.auth)
			}
			if _, err := w.envdStart(req, nil); connect.CodeOf(err) != tt.want {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func pid(n uint32) *envd.ProcessSelector {
	return &envd.ProcessSelector{Selector: &envd.ProcessSelector_Pid{Pid: n}}
}

func tag(s string) *envd.ProcessSelector {
	return &envd.ProcessSelector{Selector: &envd.ProcessSelector_Tag{Tag: s}}
}

func stdin(s string) *envd.ProcessInput {
	return &envd.ProcessInput{Input: &envd.ProcessInput_Stdin{Stdin: []byte(s)}}
}

// A command goes on without its stream, takes input, and can be connected to.
func TestEnvdConnect(t *testing.T) {
	w := open(t, setup{cgroups: true})
	name := "tagged"
	e, err := w.envdStart(connect.NewRequest(&envd.StartRequest{Process: bash("echo up; while read x; do echo \"<$x>\"; done; exit 4"), Tag: &name}),
		func(e *events) bool { return e.stdout != "" })
	if err != nil {
		t.Fatal(err)
	}
	list, err := w.envd().List(t.Context(), connect.NewRequest(&envd.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 1 || list.Msg.GetProcesses()[0].GetPid() != e.pid || list.Msg.GetProcesses()[0].GetTag() != name {
		t.Fatalf("List = %v, %v", list, err)
	}
	stream, err := w.envd().Connect(t.Context(), connect.NewRequest(&envd.ConnectRequest{Process: tag(name)}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetEvent().GetStart().GetPid() != e.pid {
		t.Fatalf("first event %v, %v", stream.Msg(), stream.Err())
	}
	if _, err := w.envd().SendInput(t.Context(), connect.NewRequest(&envd.SendInputRequest{Process: pid(e.pid), Input: stdin("one\n")})); err != nil {
		t.Fatal(err)
	}
	in := w.envd().StreamInput(t.Context())
	for _, m := range []*envd.StreamInputRequest{
		{Event: &envd.StreamInputRequest_Start{Start: &envd.StreamInputRequest_StartEvent{Process: tag(name)}}},
		{Event: &envd.StreamInputRequest_Data{Data: &envd.StreamInputRequest_DataEvent{Input: stdin("two\n")}}},
		{Event: &envd.StreamInputRequest_Keepalive{Keepalive: &envd.StreamInputRequest_KeepAlive{}}},
		{Event: &envd.StreamInputRequest_Data{Data: &envd.StreamInputRequest_DataEvent{Input: stdin("three\n")}}},
	} {
		if err := in.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.envd().CloseStdin(t.Context(), connect.NewRequest(&envd.CloseStdinRequest{Process: pid(e.pid)})); err != nil {
		t.Fatal(err)
	}
	got := &events{}
	for stream.Receive() {
		got.add(stream.Msg().GetEvent())
	}
	if got.stdout != "<one>\n<two>\n<three>\n" || got.end.GetExitCode() != 4 || stream.Err() != nil {
		t.Errorf("got %q, %v, %v", got.stdout, got.end, stream.Err())
	}
	// For a while after, its end is still told.
	late, err := w.envd().Connect(t.Context(), connect.NewRequest(&envd.ConnectRequest{Process: pid(e.pid)}))
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	got = &events{}
	for late.Receive() {
		got.add(late.Msg().GetEvent())
	}
	if got.pid != e.pid || got.stdout != "" || got.end.GetExitCode() != 4 {
		t.Errorf("late: %+v", got)
	}
}

func TestEnvdNotFound(t *testing.T) {
	w := open(t, setup{cgroups: true})
	c := w.envd()
	for _, sel := range []*envd.ProcessSelector{pid(0), pid(999_999), tag("nope")} {
		if _, err := c.SendInput(t.Context(), connect.NewRequest(&envd.SendInputRequest{Process: sel, Input: stdin("x")})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%v: SendInput: %v", sel, err)
		}
		if _, err := c.SendSignal(t.Context(), connect.NewRequest(&envd.SendSignalRequest{Process: sel, Signal: envd.Signal_SIGNAL_SIGKILL})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%v: SendSignal: %v", sel, err)
		}
		stream, err := c.Connect(t.Context(), connect.NewRequest(&envd.ConnectRequest{Process: sel}))
		if err == nil {
			stream.Receive()
			err = stream.Err()
		}
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%v: Connect: %v", sel, err)
		}
	}
}

func TestEnvdSignal(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			sig    envd.Signal
			status string
		}{{envd.Signal_SIGNAL_SIGKILL, "signal: killed"}, {envd.Signal_SIGNAL_SIGTERM, "signal: terminated"}} {
			sent := false
			e, err := w.envdStart(connect.NewRequest(&envd.StartRequest{Process: bash("echo up; exec sleep 1000")}), func(e *events) bool {
				if e.stdout != "" && !sent {
					sent = true
					if _, err := w.envd().SendSignal(t.Context(), connect.NewRequest(&envd.SendSignalRequest{Process: pid(e.pid), Signal: tt.sig})); err != nil {
						t.Error(err)
					}
				}
				return false
			})
			if err != nil || e.end.GetStatus() != tt.status {
				t.Errorf("%v: %v, %v", tt.sig, e.end, err)
			}
		}
	})
}

func TestEnvdTerminal(t *testing.T) {
	w := open(t, setup{cgroups: true})
	step := 0
	req := connect.NewRequest(&envd.StartRequest{
		Process: &envd.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-i"}, Envs: map[string]string{"PS1": "", "TERM": "dumb"}},
		Pty:     &envd.PTY{Size: &envd.PTY_Size{Cols: 80, Rows: 24}},
	})
	send := func(e *events, s string) {
		_, err := w.envd().SendInput(t.Context(), connect.NewRequest(&envd.SendInputRequest{
			Process: pid(e.pid), Input: &envd.ProcessInput{Input: &envd.ProcessInput_Pty{Pty: []byte(s)}},
		}))
		if err != nil {
			t.Error(err)
		}
	}
	e, err := w.envdStart(req, func(e *events) bool {
		switch {
		case step == 0 && e.pid != 0:
			step++
			send(e, "stty size\n")
		case step == 1 && strings.Contains(e.pty, "24 80"):
			step++
			if _, err := w.envd().Update(t.Context(), connect.NewRequest(&envd.UpdateRequest{
				Process: pid(e.pid), Pty: &envd.PTY{Size: &envd.PTY_Size{Cols: 33, Rows: 22}},
			})); err != nil {
				t.Error(err)
			}
			if _, err := w.envd().CloseStdin(t.Context(), connect.NewRequest(&envd.CloseStdinRequest{Process: pid(e.pid)})); err == nil {
				t.Error("a terminal's input was closed")
			}
			send(e, "stty size; exit 9\n")
		}
		return false
	})
	if err != nil || !strings.Contains(e.pty, "22 33") || e.end.GetExitCode() != 9 {
		t.Errorf("%q, %v, %v", e.pty, e.end, err)
	}
}

// The request's own timeout ends the command, not only the stream.
func TestEnvdTimeout(t *testing.T) {
	w := open(t, setup{cgroups: true})
	req := connect.NewRequest(&envd.StartRequest{Process: bash("echo up; sleep 1000")})
	req.Header().Set("Connect-Timeout-Ms", "400")
	e, err := w.envdStart(req, nil)
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded && e.end.GetStatus() != "signal: killed" {
		t.Errorf("%v, %v", e.end, err)
	}
	eventually(t, "the command lives on", func() bool {
		list, err := w.envd().List(t.Context(), connect.NewRequest(&envd.ListRequest{}))
		return err == nil && len(list.Msg.GetProcesses()) == 0
	})
}

func TestEnvdKeepalive(t *testing.T) {
	w := open(t, setup{cgroups: true})
	req := connect.NewRequest(&envd.StartRequest{Process: bash("sleep 1000")})
	req.Header().Set("Keepalive-Ping-Interval", "1")
	began := time.Now()
	e, err := w.envdStart(req, func(e *events) bool { return e.keepalives > 0 })
	if err != nil || time.Since(began) > patience.For(20*time.Second) {
		t.Errorf("%+v, %v after %v", e, err, time.Since(began))
	}
}
