package server

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/pod/service"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// Pods are agents that sandboxes have spawned. *service.Service is one, and documents each method.
type Pods interface {
	Spawn(ctx context.Context, c sandbox.Caller, q service.Spawn) (p service.Pod, ended []string, err error)
	List(ctx context.Context, c sandbox.Caller) ([]service.Pod, error)
	Get(ctx context.Context, c sandbox.Caller, name string) (service.Pod, error)
	Send(ctx context.Context, c sandbox.Caller, name, message string) error
	Output(ctx context.Context, c sandbox.Caller, name string, from int, wait bool) (service.Output, error)
	Connect(ctx context.Context, c sandbox.Caller, name string) (net.Conn, error)
	Stop(ctx context.Context, c sandbox.Caller, name string) (reclaimed []scope.Rule, err error)
}

var _ Pods = (*service.Service)(nil)

// podAPI is what /v1/ has about pods.
type podAPI struct {
	all Pods // nil: there are none
	// become makes a request's connection another one.
	become func(w http.ResponseWriter, r *http.Request, id, protocol string, dial func(context.Context) (net.Conn, error))
}

// handle lets f answer, where there are pods.
func (a podAPI) handle(f func(w http.ResponseWriter, r *http.Request, c sandbox.Caller) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := error(sandbox.Errorf(sandbox.Unsupported, "pods: this daemon keeps no volumes, which they share"))
		if a.all != nil {
			err = f(w, r, auth.Of(r).Caller)
		}
		if err != nil {
			wire.Error(w, err)
		}
	}
}

func (a podAPI) list(w http.ResponseWriter, r *http.Request, c sandbox.Caller) error {
	list, err := a.all.List(r.Context(), c)
	if err != nil {
		return err
	}
	out := make([]api.Pod, len(list))
	for i := range list {
		out[i] = service.View(&list[i])
	}
	wire.JSON(w, http.StatusOK, out)
	return nil
}

func (a podAPI) get(w http.ResponseWriter, r *http.Request, c sandbox.Caller) error {
	p, err := a.all.Get(r.Context(), c, r.PathValue("name"))
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusOK, service.View(&p))
	return nil
}

func (a podAPI) spawn(w http.ResponseWriter, r *http.Request, c sandbox.Caller) error {
	if err := mayRun(auth.Of(r)); err != nil {
		return err
	}
	var req api.PodRequest
	if err := wire.Decode(r, &req, false); err != nil {
		return err
	}
	if most := int64(sandbox.MaxTTL / time.Second); req.TTLSeconds < 0 || req.TTLSeconds > most {
		return sandbox.Errorf(sandbox.Invalid, "ttl_seconds: from 0 to %d", most)
	}
	q := service.Spawn{
		Parent: req.Parent, Name: req.Name, Task: req.Task, Command: req.Command, Cwd: req.Cwd, Env: req.Env, Isolation: req.Isolation, Native: req.Protocol,
		TTL: time.Duration(req.TTLSeconds) * time.Second, EndHolders: req.EndWriters,
	}
	q.Policy, q.Secrets = req.Policy, req.Secrets
	switch req.Network {
	case "", sandbox.NetworkOff:
	case "parent":
		q.Network = true
	default:
		return sandbox.Errorf(sandbox.Invalid, "network %.40q: no such choice", req.Network).WithHint("off, or parent")
	}
	if req.Limits != nil {
		q.Limits = *req.Limits
	}
	if req.Budget != nil {
		q.Budget = scope.Budget(*req.Budget)
	}
	if q.MaySpawn = req.MaySpawn != 0; q.MaySpawn {
		if q.Budget.Pods != 0 {
			return sandbox.Errorf(sandbox.Invalid, "may_spawn is the budget of pods, too").WithHint("leave one of them out")
		}
		q.Budget.Pods = req.MaySpawn
	}
	for _, rule := range req.Scope {
		one := scope.Rule{Target: rule.Target, Recursive: rule.Recursive == nil || *rule.Recursive}
		if err := one.Permission.UnmarshalText([]byte(rule.Permission)); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "scope: %v", err)
		}
		q.Scope = append(q.Scope, one)
	}
	p, ended, err := a.all.Spawn(r.Context(), c, q)
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusCreated, api.PodSpawned{Pod: service.View(&p), Ended: ended})
	return nil
}

func (a podAPI) send(w http.ResponseWriter, r *http.Request, c sandbox.Caller) error {
	var req api.PodMessage
	if err := wire.Decode(r, &req, false); err != nil {
		return err
	}
	if err := a.all.Send(r.Context(), c, r.PathValue("name"), req.Message); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a podAPI) output(w http.ResponseWriter, r *http.Request, c sandbox.Caller) error {
	q, err := query(r, "from", "wait")
	if err != nil {
		return err
	}
	from := service.Unread
	if v := q["from"]; len(v) > 0 {
		if from, err = strconv.Atoi(v[0]); err != nil || from < 0 {
			return sandbox.Errorf(sandbox.Invalid, "parameter from: %.40q is no number of an entry", v[0])
		}
	}
	wait, err := truth("wait", q["wait"])
	if err != nil {
		return err
	}
	o, err := a.all.Output(r.Context(), c, r.PathValue("name"), from, wait)
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusOK, api.PodOutput(o))
	return nil
}

// podProtocol is what a connection becomes on which a pod is spoken to.
const podProtocol = "carboy-pod"

// attach makes a request's connection one to a pod, in the pod's own protocol.
func (a podAPI) attach(w http.ResponseWriter, r *http.Request, c sandbox.Caller) error {
	p, err := a.all.Get(r.Context(), c, r.PathValue("name"))
	if err != nil {
		return err
	}
	a.become(w, r, p.Sandbox, podProtocol, func(ctx context.Context) (net.Conn, error) { return a.all.Connect(ctx, c, p.Name) })
	return nil
}

func (a podAPI) stop(w http.ResponseWriter, r *http.Request, c sandbox.Caller) error {
	name := r.PathValue("name")
	rules, err := a.all.Stop(r.Context(), c, name)
	if err != nil {
		return err
	}
	wire.JSON(w, http.StatusOK, api.PodStopped{Name: name, Reclaimed: service.ViewRules(rules), Summary: service.Summary(name, rules)})
	return nil
}
