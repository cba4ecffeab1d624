package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/ingress"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
)

const (
	// actionLimit bounds what an agent is asked, but for the time that a request gives it.
	actionLimit = 30 * time.Second
	// maxActionWait is the most that a request may give.
	maxActionWait = 10 * time.Minute
	// defaultReadChars and maxReadChars are how many characters of a shell are read at once.
	defaultReadChars = 1 << 16
	maxReadChars     = 1 << 20
	// maxTail is how many lines of a service are read at once.
	maxTail = 1 << 20
)

// actionAPI is what /v1/ has about shells and services of sandboxes: each request is one
// of the agent's action protocol.
type actionAPI struct {
	m ingress.Manager
}

func (s *Server) actionRoutes() []endpoint {
	a := actionAPI{s.o.Manager}
	return []endpoint{
		{"GET /v1/sandboxes/{id}/shells", key.Read, a.listShells},
		{"POST /v1/sandboxes/{id}/shells", key.Exec, a.openShell},
		{"GET /v1/sandboxes/{id}/shells/{shell}", key.Read, a.getShell},
		{"DELETE /v1/sandboxes/{id}/shells/{shell}", key.Exec, a.closeShell},
		{"GET /v1/sandboxes/{id}/shells/{shell}/output?", key.Exec, s.heavily(false, a.readShell)},
		{"POST /v1/sandboxes/{id}/shells/{shell}/input", key.Exec, a.writeShell},
		{"POST /v1/sandboxes/{id}/shells/{shell}/signal", key.Exec, a.signalShell},
		{"POST /v1/sandboxes/{id}/shells/{shell}/size", key.Exec, a.resizeShell},
		{"GET /v1/sandboxes/{id}/services", key.Read, a.listServices},
		{"POST /v1/sandboxes/{id}/services", key.Exec, a.startService},
		{"GET /v1/sandboxes/{id}/services/{service}", key.Read, a.getService},
		{"DELETE /v1/sandboxes/{id}/services/{service}", key.Exec, a.stopService},
		{"GET /v1/sandboxes/{id}/services/{service}/logs?", key.Exec, s.heavily(true, a.serviceLogs)},
	}
}

// asked is one request to a sandbox's agent.
type asked struct {
	request any
	wait    time.Duration // that the request gives the agent, on top of actionLimit
	starts  bool          // worth starting a sandbox for that ended by itself
	status  int           // of the answer; 0: 200
}

// act asks the agent of the sandbox in r's path what read makes of r, and answers with
// the reply, a T.
func act[T any](a actionAPI, w http.ResponseWriter, r *http.Request, read func() (asked, error)) {
	q, err := read()
	reply := new(T)
	if err == nil {
		err = a.ask(r, q, reply)
	}
	if q.status == 0 {
		q.status = http.StatusOK
	}
	answer(w, q.status, reply, err)
}

func (a actionAPI) ask(r *http.Request, q asked, reply any) error {
	caller := auth.Of(r).Caller
	sb, err := a.m.Get(r.Context(), caller, r.PathValue("id"))
	if err == nil && q.starts && sb.State != sandbox.StateRunning {
		sb, _, err = a.m.EnsureRunning(r.Context(), caller, sb.ID)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), actionLimit+q.wait,
		sandbox.Errorf(sandbox.Unavailable, "sandbox %s: its guest did not answer in time", sb.Spec.Name))
	defer cancel()
	g := agent.New(func(ctx context.Context) (net.Conn, error) {
		return a.m.Dial(ctx, caller, sb.ID, sandbox.GuestPort)
	})
	defer g.Close()
	err = g.Ask(ctx, q.request, reply)
	if errors.Is(err, agent.ErrBroken) {
		broken := sandbox.Errorf(sandbox.Unavailable, "sandbox %s: its guest broke off, or answers nonsense", sb.Spec.Name)
		broken.Err = err
		return broken
	}
	return err
}

// one reads a body, in which what the path names may be left out.
func one[T any](r *http.Request, name string, fields func(*T) (act, id *string)) (req T, err error) {
	if err := wire.Decode(r, &req, false); err != nil {
		return req, err
	}
	act, id := fields(&req)
	if *act != "" {
		return req, sandbox.Errorf(sandbox.Invalid, "body: there is no field %q", "action")
	}
	want := r.PathValue(name)
	if want != "" && *id != "" && *id != want {
		return req, sandbox.Errorf(sandbox.Invalid, "body: it is for %.80q, and the path for %.80q", *id, want)
	}
	if want != "" {
		*id = want
	}
	return req, nil
}

func (a actionAPI) listShells(w http.ResponseWriter, r *http.Request) {
	act[action.ListShellsReply](a, w, r, func() (asked, error) {
		return asked{request: action.ListRequest{Action: action.ListShells}}, nil
	})
}

func (a actionAPI) openShell(w http.ResponseWriter, r *http.Request) {
	act[action.Shell](a, w, r, func() (asked, error) {
		req, err := one(r, "", func(q *action.OpenShellRequest) (act, id *string) { return &q.Action, &q.ShellID })
		req.Action = action.OpenShell
		return asked{request: req, starts: true, status: http.StatusCreated}, err
	})
}

func (a actionAPI) getShell(w http.ResponseWriter, r *http.Request) {
	act[action.Shell](a, w, r, func() (asked, error) {
		return asked{request: action.ShellRequest{Action: action.StatusShell, ShellID: r.PathValue("shell")}}, nil
	})
}

func (a actionAPI) closeShell(w http.ResponseWriter, r *http.Request) {
	act[action.CloseShellReply](a, w, r, func() (asked, error) {
		return asked{request: action.ShellRequest{Action: action.CloseShell, ShellID: r.PathValue("shell")}}, nil
	})
}

func (a actionAPI) readShell(w http.ResponseWriter, r *http.Request) {
	act[action.ReadShellReply](a, w, r, func() (asked, error) {
		req, err := readRequest(r)
		return asked{request: req, wait: time.Duration(max(req.WaitForIdleMS, req.WaitMS)) * time.Millisecond}, err
	})
}

// readRequest is what the parameters of r ask of a shell's output.
func readRequest(r *http.Request) (req action.ReadShellRequest, err error) {
	q, err := query(r, "cursor", "max_chars", "plain", "wait_for_idle_ms", "wait_ms", "encoding")
	if err != nil {
		return req, err
	}
	req = action.ReadShellRequest{Action: action.ReadShell, ShellID: r.PathValue("shell"), MaxChars: defaultReadChars}
	for _, p := range []struct {
		name string
		most int64
		set  func(int64)
	}{
		{"cursor", 1 << 62, func(n int64) { req.Cursor = n }},
		{"max_chars", maxReadChars, func(n int64) { req.MaxChars = int(n) }},
		{"wait_for_idle_ms", maxActionWait.Milliseconds(), func(n int64) { req.WaitForIdleMS = int(n) }},
		{"wait_ms", maxActionWait.Milliseconds(), func(n int64) { req.WaitMS = int(n) }},
	} {
		if err := number(q, p.name, p.most, p.set); err != nil {
			return req, err
		}
	}
	if e := q["encoding"]; len(e) > 1 || len(e) == 1 && e[0] != "base64" {
		return req, sandbox.Errorf(sandbox.Invalid, "parameter encoding: base64, or leave it out")
	} else if len(e) == 1 {
		req.Encoding = e[0]
	}
	req.Plain, err = truth("plain", q["plain"])
	return req, err
}

func (a actionAPI) writeShell(w http.ResponseWriter, r *http.Request) {
	act[action.WriteShellReply](a, w, r, func() (asked, error) {
		req, err := one(r, "shell", func(q *action.WriteShellRequest) (act, id *string) { return &q.Action, &q.ShellID })
		req.Action = action.WriteShell
		return asked{request: req}, err
	})
}

func (a actionAPI) signalShell(w http.ResponseWriter, r *http.Request) {
	act[action.SignalShellReply](a, w, r, func() (asked, error) {
		req, err := one(r, "shell", func(q *action.SignalShellRequest) (act, id *string) { return &q.Action, &q.ShellID })
		req.Action = action.SignalShell
		return asked{request: req}, err
	})
}

func (a actionAPI) resizeShell(w http.ResponseWriter, r *http.Request) {
	act[action.Shell](a, w, r, func() (asked, error) {
		req, err := one(r, "shell", func(q *action.ResizeShellRequest) (act, id *string) { return &q.Action, &q.ShellID })
		req.Action = action.ResizeShell
		return asked{request: req}, err
	})
}

func (a actionAPI) listServices(w http.ResponseWriter, r *http.Request) {
	act[action.ListServicesReply](a, w, r, func() (asked, error) {
		return asked{request: action.ListRequest{Action: action.ListServices}}, nil
	})
}

func (a actionAPI) startService(w http.ResponseWriter, r *http.Request) {
	act[action.Service](a, w, r, func() (asked, error) {
		req, err := one(r, "", func(q *action.StartServiceRequest) (act, id *string) { return &q.Action, &q.ServiceName })
		req.Action = action.StartService
		wait := time.Duration(req.ReadyTimeoutSeconds) * time.Second
		if err == nil && (req.ReadyTimeoutSeconds < 0 || req.ReadyTimeoutSeconds > int(maxActionWait/time.Second)) {
			err = sandbox.Errorf(sandbox.Invalid, "ready_timeout_seconds %d: from 1 to %d", req.ReadyTimeoutSeconds, int(maxActionWait/time.Second))
		}
		if wait == 0 {
			wait = actionLimit // the agent's default
		}
		return asked{request: req, wait: wait, starts: true, status: http.StatusCreated}, err
	})
}

func (a actionAPI) getService(w http.ResponseWriter, r *http.Request) {
	act[action.Service](a, w, r, func() (asked, error) {
		return asked{request: action.ServiceRequest{Action: action.StatusService, ServiceName: r.PathValue("service")}}, nil
	})
}

func (a actionAPI) stopService(w http.ResponseWriter, r *http.Request) {
	act[action.Service](a, w, r, func() (asked, error) {
		return asked{request: action.ServiceRequest{Action: action.StopService, ServiceName: r.PathValue("service")}}, nil
	})
}

func (a actionAPI) serviceLogs(w http.ResponseWriter, r *http.Request) {
	act[action.LogsServiceReply](a, w, r, func() (asked, error) {
		q, err := query(r, "tail")
		if err != nil {
			return asked{}, err
		}
		req := action.LogsServiceRequest{Action: action.LogsService, ServiceName: r.PathValue("service")}
		err = number(q, "tail", maxTail, func(n int64) { req.TailLines = int(n) })
		return asked{request: req}, err
	})
}

// number reads a parameter that is a whole number from 0 to most, where it is there.
func number(q url.Values, name string, most int64, set func(int64)) error {
	values := q[name]
	if len(values) == 0 {
		return nil
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || len(values) > 1 || n < 0 || n > most {
		return sandbox.Errorf(sandbox.Invalid, "parameter %s: a whole number from 0 to %d", name, most)
	}
	set(n)
	return nil
}
