package cli_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// fakeActions are shells, which are the host's own on real terminals, and services, of
// which none runs.
type fakeActions struct {
	actionsMu sync.Mutex
	shells    []*fakeShell
	services  []action.Service
}

type fakeShell struct {
	action.Shell
	tty *os.File
	cmd *exec.Cmd

	mu   sync.Mutex
	out  []byte
	wake chan struct{} // closed and replaced when there is more, or it has ended
}

func (d *fakeDaemon) actionRoutes() map[string]func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/sandboxes/{id}/shells": func(w http.ResponseWriter, _ *http.Request) error {
			list := action.ListShellsReply{Shells: []action.Shell{}}
			d.actionsMu.Lock()
			defer d.actionsMu.Unlock()
			for _, s := range d.shells {
				list.Shells = append(list.Shells, s.state())
			}
			return answer(w, list)
		},
		"POST /v1/sandboxes/{id}/shells":                 d.openShell,
		"DELETE /v1/sandboxes/{id}/shells/{shell}":       d.closeShell,
		"GET /v1/sandboxes/{id}/shells/{shell}/output":   d.onShell(readShell),
		"POST /v1/sandboxes/{id}/shells/{shell}/input":   d.onShell(writeShell),
		"POST /v1/sandboxes/{id}/shells/{shell}/signal":  d.onShell(signalShell),
		"POST /v1/sandboxes/{id}/shells/{shell}/size":    d.onShell(resizeShell),
		"POST /v1/sandboxes/{id}/services":               d.startService,
		"GET /v1/sandboxes/{id}/services":                d.listServices,
		"GET /v1/sandboxes/{id}/services/{service}":      d.onService(func(s *action.Service, _ *http.Request) any { return s }),
		"GET /v1/sandboxes/{id}/services/{service}/logs": d.onService(serviceLogs),
		"DELETE /v1/sandboxes/{id}/services/{service}":   d.onService(stopService),
	}
}

func (d *fakeDaemon) openShell(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	var req action.OpenShellRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	d.actionsMu.Lock()
	defer d.actionsMu.Unlock()
	for _, s := range d.shells {
		if s.ShellID == req.ShellID {
			return sandbox.Errorf(sandbox.Conflict, "shell %s: it is there already", s.ShellID)
		}
	}
	if req.Cols == 0 {
		req.Cols, req.Rows = 120, 30
	}
	s := &fakeShell{wake: make(chan struct{}), cmd: exec.Command("sh")}
	s.Shell = action.Shell{ShellID: req.ShellID, CWD: "/workspace", Cols: req.Cols, Rows: req.Rows, State: action.Running, StartedAt: float64(created.Unix())}
	s.cmd.Dir, s.cmd.Env = b.dir, []string{"PS1=$ ", "PATH=" + os.Getenv("PATH")}
	for k, v := range req.Env {
		s.cmd.Env = append(s.cmd.Env, k+"="+v)
	}
	if s.tty, err = pty.StartWithSize(s.cmd, &pty.Winsize{Cols: uint16(req.Cols), Rows: uint16(req.Rows)}); err != nil {
		return err
	}
	d.shells = append(d.shells, s)
	d.end.Go(s.copy)
	return answer(w, s.Shell)
}

// copy keeps what the shell writes, until it has ended.
func (s *fakeShell) copy() {
	buf := make([]byte, 4096)
	for {
		n, err := s.tty.Read(buf)
		s.mu.Lock()
		s.out = append(s.out, buf[:n]...)
		if err != nil {
			_ = s.cmd.Wait()
			code := s.cmd.ProcessState.ExitCode()
			if ws, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				code = 128 + int(ws.Signal())
			}
			ended := float64(created.Unix() + 1)
			s.State, s.ExitCode, s.EndedAt = action.Stopped, &code, &ended
		}
		close(s.wake)
		s.wake = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *fakeShell) state() action.Shell {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Shell
}

// onShell answers for the shell of a path.
func (d *fakeDaemon) onShell(do func(s *fakeShell, r *http.Request) (any, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		d.actionsMu.Lock()
		shells := slices.Clone(d.shells)
		d.actionsMu.Unlock()
		for _, s := range shells {
			if s.ShellID == r.PathValue("shell") {
				v, err := do(s, r)
				if err != nil {
					return err
				}
				return answer(w, v)
			}
		}
		return sandbox.Errorf(sandbox.NotFound, "shell %s: not found", r.PathValue("shell"))
	}
}

func readShell(s *fakeShell, r *http.Request) (any, error) {
	q := r.URL.Query()
	cursor, _ := strconv.Atoi(q.Get("cursor"))
	wait, _ := strconv.Atoi(q.Get("wait_ms"))
	most, err := strconv.Atoi(q.Get("max_chars"))
	if err != nil {
		most = 1 << 16
	}
	late := time.After(time.Duration(wait) * time.Millisecond)
	for {
		s.mu.Lock()
		part, wake, st := s.out[cursor:], s.wake, s.Shell
		s.mu.Unlock()
		if idle := q.Get("wait_for_idle_ms"); idle != "" && st.State == action.Running && !strings.Contains(string(part), "\nidle\r\n") {
			<-wake // the scripts have it say so
			continue
		}
		if len(part) == 0 && st.State == action.Running && wait > 0 {
			select {
			case <-wake:
				continue
			case <-late:
			case <-r.Context().Done():
			}
		}
		reply := action.ReadShellReply{Shell: st, Cursor: int64(cursor), Truncated: len(part) > most}
		part = part[:min(most, len(part))]
		reply.NextCursor, reply.Output = int64(cursor+len(part)), string(part)
		if reply.Encoding = q.Get("encoding"); reply.Encoding != "" {
			reply.Output = base64.StdEncoding.EncodeToString(part)
		}
		if q.Get("plain") == "1" {
			reply.Output = strings.ReplaceAll(reply.Output, "\r\n", "\n")
		}
		return reply, nil
	}
}

func writeShell(s *fakeShell, r *http.Request) (any, error) {
	var req action.WriteShellRequest
	err := json.NewDecoder(r.Body).Decode(&req)
	if req.AppendNewline {
		req.Input += "\n"
	}
	if err == nil {
		_, err = s.tty.WriteString(req.Input)
	}
	return action.WriteShellReply{Shell: s.state(), InputLength: len(strings.TrimSuffix(req.Input, "\n")), AppendNewline: req.AppendNewline}, err
}

func signalShell(s *fakeShell, r *http.Request) (any, error) {
	var req action.SignalShellRequest
	err := json.NewDecoder(r.Body).Decode(&req)
	n, known := map[string]syscall.Signal{"INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP}[req.Signal]
	if err == nil && !known {
		err = sandbox.Errorf(sandbox.Invalid, "signal %s: not one that a shell can be sent", req.Signal)
	}
	if err == nil {
		err = s.cmd.Process.Signal(n)
	}
	return action.SignalShellReply{Shell: s.state(), Signal: req.Signal}, err
}

func resizeShell(s *fakeShell, r *http.Request) (any, error) {
	var req action.ResizeShellRequest
	err := json.NewDecoder(r.Body).Decode(&req)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.State == action.Stopped {
		return nil, sandbox.Errorf(sandbox.Conflict, "shell %s: it has ended", s.ShellID)
	}
	s.Cols, s.Rows = req.Cols, req.Rows
	return s.Shell, errors.Join(err, pty.Setsize(s.tty, &pty.Winsize{Cols: uint16(req.Cols), Rows: uint16(req.Rows)}))
}

func (d *fakeDaemon) closeShell(w http.ResponseWriter, r *http.Request) error {
	if err := d.onShell(closeShell)(w, r); err != nil {
		return err
	}
	d.actionsMu.Lock()
	defer d.actionsMu.Unlock()
	d.shells = slices.DeleteFunc(d.shells, func(s *fakeShell) bool { return s.ShellID == r.PathValue("shell") })
	return nil
}

func closeShell(s *fakeShell, _ *http.Request) (any, error) {
	_ = s.cmd.Process.Kill()
	for {
		s.mu.Lock()
		wake, st := s.wake, s.Shell
		s.mu.Unlock()
		if st.State == action.Stopped {
			return action.CloseShellReply{Shell: st, Closed: true}, nil
		}
		<-wake
	}
}

func (d *fakeDaemon) startService(w http.ResponseWriter, r *http.Request) error {
	if _, err := d.box(r); err != nil {
		return err
	}
	var req action.StartServiceRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	s := action.Service{ServiceName: req.ServiceName, Command: req.Command, CWD: "/workspace", State: action.Running, Ready: true, StartedAt: float64(created.Unix())}
	if ready, err := json.Marshal(req.Readiness); err == nil && req.Readiness != nil { // shown by the scripts
		s.Command += " " + string(ready) + " " + strconv.Itoa(req.ReadyTimeoutSeconds) + " " + strconv.Itoa(req.ReadyIntervalMS) + " " + req.Restart
	}
	if req.Command == "false" {
		return sandbox.Errorf(sandbox.Unavailable, "service %s has failed: it ended with 1 before it was ready", req.ServiceName)
	}
	d.actionsMu.Lock()
	defer d.actionsMu.Unlock()
	d.services = append(d.services, s)
	return answer(w, s)
}

func (d *fakeDaemon) listServices(w http.ResponseWriter, _ *http.Request) error {
	d.actionsMu.Lock()
	defer d.actionsMu.Unlock()
	return answer(w, action.ListServicesReply{Services: d.services})
}

// onService answers for the service of a path.
func (d *fakeDaemon) onService(do func(s *action.Service, r *http.Request) any) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		d.actionsMu.Lock()
		defer d.actionsMu.Unlock()
		for i := range d.services {
			if d.services[i].ServiceName == r.PathValue("service") {
				return answer(w, do(&d.services[i], r))
			}
		}
		return sandbox.Errorf(sandbox.NotFound, "service %s: not found", r.PathValue("service"))
	}
}

func serviceLogs(s *action.Service, r *http.Request) any {
	tail, _ := strconv.Atoi(r.URL.Query().Get("tail"))
	reply := action.LogsServiceReply{Service: *s, Stdout: "one\ntwo\x1b[0m\n", Stderr: "three\n", TailLines: tail, Truncated: true}
	if tail == 1 {
		reply.Stdout = "two\n"
	}
	return reply
}

func stopService(s *action.Service, _ *http.Request) any {
	why, code := "it was stopped", 143
	s.State, s.Ready, s.StopReason, s.ExitCode = action.Stopped, false, &why, &code
	return s
}

// endShells ends the shells that run.
func (d *fakeActions) endShells() {
	d.actionsMu.Lock()
	defer d.actionsMu.Unlock()
	for _, s := range d.shells {
		_ = s.cmd.Process.Kill()
		_ = s.tty.Close()
	}
}
