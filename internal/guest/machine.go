package guest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	api "github.com/carboy-sandbox/carboy/api/guest"
	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/internal/guest/control"
	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/internal/guest/machine"
	"github.com/carboy-sandbox/carboy/internal/guest/process"
	"github.com/carboy-sandbox/carboy/internal/weak"
)

const (
	// ownDir is where the agent keeps what commands don't see.
	ownDir = "/run/carboy"

	// maxMachine bounds the body of a change of what commands are shown, in bytes.
	maxMachine = 64 << 10
)

// groupOptions are those of the commands' control groups.
func groupOptions(cfg control.Config, log *slog.Logger) cgroup.Options {
	o := cgroup.Options{PIDs: cfg.PIDs, Root: cfg.CgroupRoot, OOMFile: cfg.OOMFile, PIDsFile: cfg.PIDsFile, Log: log}
	if m := cfg.Machine; m != nil {
		o.CPUs, o.Memory, o.Namespace = m.CPUs, m.Memory, !cfg.Strict
	}
	return o
}

// look makes what commands are shown of their limits. Without it they see what the kernel
// has to show, and are held to the limits all the same.
func (a *agent) look(ctx context.Context, cfg *jail.Config) (stop func()) {
	if a.cfg.Machine == nil || weak.On(weak.ControlShown) || weak.On(weak.HostSys) {
		return func() {}
	}
	const dir = ownDir + "/machine"
	v, err := machine.Open(machine.Options{
		Machine: *a.cfg.Machine, Dir: dir, Native: a.cfg.Strict,
		Controllers: a.cfg.Controllers, Groups: a.cgroups, Log: a.log,
	})
	if err != nil {
		a.log.Warn("show commands their limits", "err", err)
		a.status.lack("limits are not shown to commands: " + err.Error())
		return func() {}
	}
	a.view = v
	for _, p := range v.Places() {
		cfg.Places = append(cfg.Places, jail.Place(p))
	}
	// Or runtimes would find the groups at this place, which is listed first, and hidden.
	cfg.Unmount = []string{dir}
	cfg.Processors = v.Processors()
	if !slices.Contains(cfg.Hide, ownDir) {
		cfg.Hide = append(slices.Clone(cfg.Hide), ownDir)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		v.Run(ctx, func() bool { return a.cgroups == nil || a.cgroups.Busy() })
	}()
	return func() {
		cancel()
		<-done
		if err := v.Close(); err != nil {
			a.log.Info("take away what commands were shown", "err", err)
		}
	}
}

// spawner starts commands that see what is so now.
type spawner struct {
	*jail.Jail
	view *machine.View
}

// Spawn is that of the jail.
func (s spawner) Spawn(c jail.Command) (*jail.Process, jail.Mark, error) {
	s.view.Begin()
	return s.Jail.Spawn(c)
}

func (a *agent) spawner() process.Spawner {
	if a.view == nil {
		return a.jail
	}
	return spawner{Jail: a.jail, view: a.view}
}

// showMachine changes what commands are shown of their limits.
func (a *agent) showMachine(w http.ResponseWriter, r *http.Request) {
	var req api.Machine
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMachine))
	dec.DisallowUnknownFields()
	err := dec.Decode(&req)
	if err = errors.Join(err, control.CheckMachine(&req)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if a.view == nil {
		http.Error(w, "commands are shown no limits", http.StatusConflict)
		return
	}
	now, before, err := a.view.Set(req)
	if err == nil && !slices.Equal(now, before) {
		err = a.jail.SetProcessors(now)
	}
	if err != nil {
		a.log.Warn("show commands their limits", "err", err)
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
