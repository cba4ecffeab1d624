package session_test

import (
	"context"
	"maps"
	"time"

	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Burst has several callers at once, and maybe the end of the daemon. Whoever
// wins, what was there of files is there, unless somebody asked otherwise.
func (m *model) Burst(t *rapid.T) {
	for len(m.uses) > 0 {
		m.Release(t)
	}
	m.observe(t)
	had, asked := map[string]string{}, map[string]bool{}
	for key, k := range m.is {
		if k.files && !k.removed {
			had[key] = m.sandboxOf(t, key)
		}
	}
	var calls []func(*daemon)
	for range rapid.IntRange(2, 6).Draw(t, "callers") {
		calls = append(calls, m.drawCall(t, asked))
	}
	restart := rapid.IntRange(0, 5).Draw(t, "restart") // 4 and more: no
	done := make(chan struct{}, len(calls))
	d := m.d
	for _, call := range calls {
		go func() { call(d); done <- struct{}{} }()
	}
	if restart < 4 {
		time.Sleep(time.Duration(restart) * time.Second)
		m.Restart(t)
	}
	for range calls {
		<-done
	}
	pass(time.Minute)
	m.adopt(t)
	for key, id := range had {
		if k := m.is[key]; !asked[key] && (k == nil || !k.files || m.sandboxOf(t, key) != id) {
			t.Fatalf("session %s has lost its files: %+v", key, k)
		}
	}
}

// drawCall is one call of a Burst; asked are the keys of whose files nothing is
// expected by it.
func (m *model) drawCall(t *rapid.T, asked map[string]bool) func(*daemon) {
	key, pid := rapid.SampledFrom(modelKeys).Draw(t, "key"), rapid.SampledFrom(modelPids).Draw(t, "pid")
	cmd := rapid.SampledFrom([]string{"echo x", "touch", "sleep 2", "die"}).Draw(t, "cmd")
	begin := time.Duration(rapid.IntRange(0, 3).Draw(t, "begin")) * time.Second
	patience := time.Duration(rapid.SampledFrom([]int{1, 1500, 60_000}).Draw(t, "patience")) * time.Millisecond
	spec := m.spec(key, cmd, 1, false)
	if k := m.is[key]; k != nil {
		spec = m.spec(key, cmd, k.cpus, k.mounts)
	}
	kind := rapid.SampledFrom([]string{"exec", "exec", "create", "delete", "start", "stop", "remount"}).Draw(t, "kind")
	asked[key] = asked[key] || kind == "delete" || kind == "remount"
	if kind == "remount" {
		spec = m.spec(key, cmd, spec.CPUs, len(spec.ExtraMounts) == 0)
	}
	return func(d *daemon) {
		time.Sleep(begin)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		switch kind {
		case "exec", "remount":
			_, _ = d.Exec(ctx, ws, spec)
		case "create":
			_, _ = d.Create(ctx, ws, spec)
		case "delete":
			_ = d.Delete(ctx, ws, key)
		case "start":
			_, _ = d.StartProcess(ctx, ws, key, sessions.ProcessSpec{ProcessID: pid, Command: "serve"})
		case "stop":
			_ = d.StopProcess(ctx, ws, key, pid)
		}
	}
}

// adopt takes over what a Burst has left.
func (m *model) adopt(t *rapid.T) {
	list, err := m.d.List(context.Background(), ws)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	records, _ := m.w.store.Sessions(context.Background())
	was := m.is
	m.is = map[string]*holding{}
	for _, info := range list {
		k := &holding{asleep: info.Asleep, cpus: info.CPUs, running: map[string]bool{}, files: m.w.guests.hasFile(info.BackendSessionID)}
		for _, r := range records {
			k.mounts = k.mounts || r.Key == info.SessionID && len(r.Spec.Mounts) > 0
		}
		for pid, p := range info.Processes {
			k.running[pid] = p.Status == sessions.ProcessRunning
		}
		maps.DeleteFunc(k.running, func(_ string, runs bool) bool { return !runs })
		sb, err := m.d.manager.Get(context.Background(), ws, info.BackendSessionID)
		k.removed = err != nil
		k.dead = err == nil && !k.asleep && sb.State != sandbox.StateRunning
		k.slept = [2]time.Time{time.Now().Add(-2 * time.Minute), time.Now()}
		if before := was[info.SessionID]; k.asleep && before != nil {
			k.slept[0], k.dead = before.slept[0], before.dead
			if !before.asleep {
				k.slept[0] = before.used.Add(ttl)
			}
		}
		m.is[info.SessionID] = k
	}
}
