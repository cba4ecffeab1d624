package server

import (
	"net/http"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// processes lists what runs inside a sandbox.
func (a *sandboxAPI) processes(w http.ResponseWriter, r *http.Request) {
	list, err := a.m.Processes(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	out := api.Processes{Processes: make([]api.Process, 0, len(list.List)), Total: list.Total}
	for _, p := range list.List {
		one := api.Process{
			PID: p.PID, Parent: p.Parent, User: p.User, State: p.State, CPUMillis: p.CPUMillis,
			RSS: p.RSS, Threads: p.Threads, Command: p.Command,
		}
		if p.Started > 0 {
			one.StartedAt = time.Unix(p.Started, 0).UTC()
		}
		out.Processes = append(out.Processes, one)
	}
	answer(w, http.StatusOK, out, err)
}

// usage says what a sandbox uses: the host's own figures, but for the number of its
// processes.
func (a *sandboxAPI) usage(w http.ResponseWriter, r *http.Request) {
	caller := auth.Of(r).Caller
	sb, u, err := a.m.Usage(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := api.Usage{
		Name: sb.Spec.Name, ID: sb.ID, Time: time.Now().UTC(), CPUMillis: -1, CPULoad: u.Load, CPUs: sb.Spec.Limits.CPUs,
		Memory: u.Memory, MemoryMax: sb.Spec.Limits.Memory, MemoryCache: u.Cache, PIDs: -1, PIDsMax: sb.Spec.Limits.PIDs,
		Disk: u.Disk, DiskMax: sb.Spec.Limits.Disk,
	}
	if u.CPU >= 0 {
		out.CPUMillis, out.CPULoad = u.CPU.Milliseconds(), 0
	}
	held := func(promise string) bool {
		return slices.ContainsFunc(sb.Enforced, func(e sandbox.Enforcement) bool { return e.Promise == promise && e.Enforced })
	}
	if !held(sandbox.LimitDisk) { // it is the machine's, with others' files on it
		out.Disk, out.DiskMax = u.Disk, u.DiskTotal
	}
	if !held(sandbox.LimitMemory) && sb.Backend == sandbox.WallProcess { // what it tells is the machine's
		out.Memory, out.MemoryCache, out.CPUMillis, out.CPULoad = -1, -1, -1, -1
	}
	if list, err := a.m.Processes(r.Context(), caller, sb.ID); err == nil {
		out.PIDs = list.Threads
	}
	if net, err := a.m.NetUse(r.Context(), caller, sb.ID); err == nil {
		out.Connections = net.Connections
		for _, c := range net.Counters {
			out.Sent += c.Sent
			out.Received += c.Received
		}
	}
	wire.JSON(w, http.StatusOK, out)
}

// held says how much of the host's disk a sandbox takes.
func (a *sandboxAPI) held(w http.ResponseWriter, r *http.Request) {
	n, err := a.m.Held(r.Context(), auth.Of(r).Caller, r.PathValue("id"))
	answer(w, http.StatusOK, api.Held{Bytes: n}, err)
}
