package cli_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// set does as the daemon does: limits change at once but for the disk, and a network
// comes with the next start.
func (d *fakeDaemon) set(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	var req api.ChangeRequest
	if err := dec.Decode(&req); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var out api.ChangeResult
	add := func(what, from, to, when, note string) {
		out.Changes = append(out.Changes, api.Setting{What: what, From: from, To: to, When: when, Note: note})
		if when != "now" {
			b.Next = append(b.Next, api.Pending{What: what, To: to, Why: note})
		}
	}
	gib := func(n int64) string { return strconv.FormatInt(n>>30, 10) + "g" }
	if req.Limits.Memory != 0 {
		add("memory", "2g", gib(req.Limits.Memory), "now", "")
	}
	if req.Limits.PIDs != 0 {
		add("pids", "1024", strconv.FormatInt(req.Limits.PIDs, 10), "now", "")
	}
	if req.Limits.Disk != 0 {
		add("disk", "8g", gib(req.Limits.Disk), "next start", "it is grown while nothing has it mounted")
	}
	if req.Policy != nil {
		p := *req.Policy
		if req.Add {
			var err error
			if p, err = addTo(b.net.policy, p); err != nil {
				return err
			}
		}
		b.net.policy = p
		add("network", "off", "policy, 1 rule", "next start", "it was started without a network")
	}
	out.Sandbox = b.Sandbox
	return answer(w, out)
}

func (d *fakeDaemon) processes(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	if b.Labels["idle"] != "" {
		return answer(w, api.Processes{Processes: []api.Process{}})
	}
	return answer(w, api.Processes{Total: 3, Processes: []api.Process{
		{PID: 7, User: "user", StartedAt: created, CPUMillis: 1500, RSS: 2 << 20, Threads: 1, Command: "evil\x1b[31m name"},
		{PID: 9, User: "0", CPUMillis: 10, RSS: 4 << 10, Threads: 2, Command: "[init]"},
	}})
}

// usage counts half a processor between any two calls.
func (d *fakeDaemon) usage(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return answer(w, api.Usage{
		Name: b.Name, ID: b.ID, Time: created.Add(time.Duration(d.asked) * time.Second), CPUMillis: int64(500 * d.asked), CPUs: 2,
		Memory: 64 << 20, MemoryMax: 2 << 30, MemoryCache: 16 << 20, PIDs: 3, PIDsMax: 1024, Disk: 1 << 20, DiskMax: 8 << 30, Sent: 10, Received: 2048,
	})
}

func (d *fakeDaemon) held(w http.ResponseWriter, r *http.Request) error {
	if _, err := d.box(r); err != nil {
		return err
	}
	return answer(w, api.Held{Bytes: 3 << 20})
}

// lock does as the daemon does: a box of the name busy has a file open, until that is ended.
func (d *fakeDaemon) lock(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	var req api.LockRequest
	if err := dec.Decode(&req); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var out api.LockResult
	if b.Name == "busy" {
		if !req.EndWriters {
			return sandbox.Errorf(sandbox.Conflict, "sandbox busy: its workspace is in use: by vim (pid 7), which has /workspace/a open for writing").
				WithHint("end that first, or have it ended: carboy workspace lock --end-writers busy")
		}
		out.Ended = []api.Writer{{PID: 7, Program: "vim", Path: "/workspace/a", How: "writes"}}
	}
	b.Locked = changeLocked(b.Locked, req.Paths, true)
	out.Sandbox = b.Sandbox
	return answer(w, out)
}

func (d *fakeDaemon) unlock(w http.ResponseWriter, r *http.Request) error {
	b, err := d.box(r)
	if err != nil {
		return err
	}
	var req api.UnlockRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b.Locked = changeLocked(b.Locked, req.Paths, false)
	return answer(w, api.LockResult{Sandbox: b.Sandbox})
}

// changeLocked is a lock or an unlock, of all where no paths are named.
func changeLocked(was []api.Access, paths []string, readOnly bool) (is []api.Access) {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	var list sandbox.AccessList
	for _, a := range was {
		list = append(list, sandbox.Access(a))
	}
	for _, p := range paths {
		list = list.With(p, readOnly)
	}
	for _, a := range list {
		is = append(is, api.Access(a))
	}
	return is
}
