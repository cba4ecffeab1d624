package session_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
)

// Exec runs a command, whatever it does to its sandbox.
func (m *model) Exec(t *rapid.T) {
	spec := m.drawSpec(t, rapid.SampledFrom([]string{"echo x", "touch", "look", "look", "exit 3", "sleep 50", "die", "dieoom"}).Draw(t, "cmd"))
	reset := rapid.Bool().Draw(t, "reset")
	if spec.TimeoutSec = 5; reset {
		spec.OnTimeout = sessions.OnTimeoutReset
	}
	class := m.acquire(spec)
	k := m.is[spec.SessionID]
	if class == "" && spec.Cmd == "die" {
		class = langbot.ClassError
	}
	res, err := m.d.Exec(context.Background(), ws, spec)
	if !wants(t, "Exec "+spec.Cmd, err, class) && spec.Cmd != "die" || class != "" && class != langbot.ClassError {
		return
	}
	switch spec.Cmd {
	case "touch":
		k.files = true
	case "look":
		if has := *res.ExitCode == 0; has != k.files {
			t.Fatalf("session %s has its file: %v, want %v", spec.SessionID, has, k.files)
		}
	case "sleep 50":
		if res.Status != sessions.StatusTimedOut {
			t.Fatalf("Exec = %+v", res)
		}
		if reset {
			delete(m.is, spec.SessionID)
		}
	case "die", "dieoom":
		m.dies(k)
	}
}

// dies is what becomes of a session whose sandbox does.
func (m *model) dies(k *holding) {
	k.dead = true
	clear(k.running)
	pass(5 * time.Second) // by then its processes know
}

// Create makes a session, or takes it into use for a while.
func (m *model) Create(t *rapid.T) {
	spec := m.drawSpec(t, "")
	class := m.acquire(spec)
	u, err := m.d.Use(context.Background(), ws, spec)
	if !wants(t, "Use", err, class) {
		return
	}
	if !rapid.Bool().Draw(t, "hold") {
		u.Release()
		return
	}
	k := m.is[spec.SessionID]
	k.held++
	m.uses = append(m.uses, heldUse{k, u})
}

// Release ends a Use.
func (m *model) Release(t *rapid.T) {
	if len(m.uses) == 0 {
		t.Skip("nothing is held")
	}
	h := m.uses[0]
	m.uses = m.uses[1:]
	h.use.Release()
	h.of.held--
}

// Borrow takes a session into use that is there.
func (m *model) Borrow(t *rapid.T) {
	m.borrow(t, rapid.SampledFrom(modelKeys).Draw(t, "key"))
}

func (m *model) borrow(t *rapid.T, key string) {
	class := m.existing(key)
	u, err := m.d.Borrow(context.Background(), ws, key, session.Job{Action: "tool:read"})
	if wants(t, "Borrow", err, class) {
		u.Finish("ok", nil)
	}
}

// Delete ends a session.
func (m *model) Delete(t *rapid.T) {
	key := rapid.SampledFrom(modelKeys).Draw(t, "key")
	class := ""
	if m.is[key] == nil {
		class = langbot.ClassSessionNotFound
	}
	delete(m.is, key)
	wants(t, "Delete", m.d.Delete(context.Background(), ws, key), class)
}

// StartProcess starts a managed process, in place of one that runs.
func (m *model) StartProcess(t *rapid.T) {
	key, pid := rapid.SampledFrom(modelKeys).Draw(t, "key"), rapid.SampledFrom(modelPids).Draw(t, "pid")
	class := m.existing(key)
	k := m.is[key]
	if class == "" {
		delete(k.running, pid) // which is ended first
		if m.processes() >= modelProcesses {
			class = langbot.ClassCapacity
		} else {
			k.running[pid] = true
		}
	}
	_, err := m.d.StartProcess(context.Background(), ws, key, sessions.ProcessSpec{ProcessID: pid, Command: "serve"})
	wants(t, "StartProcess", err, class)
}

// StopProcess ends one. One that has ended may be known still, or not.
func (m *model) StopProcess(t *rapid.T) {
	key, pid := rapid.SampledFrom(modelKeys).Draw(t, "key"), rapid.SampledFrom(modelPids).Draw(t, "pid")
	k := m.is[key]
	err := m.d.StopProcess(context.Background(), ws, key, pid)
	switch {
	case k == nil:
		wants(t, "StopProcess", err, langbot.ClassSessionNotFound)
	case k.running[pid] || err == nil:
		wants(t, "StopProcess", err, "")
		delete(k.running, pid)
	default:
		wants(t, "StopProcess", err, langbot.ClassProcessNotFound)
	}
}

// Attach reads a process, and leaves it.
func (m *model) Attach(t *rapid.T) {
	key, pid := rapid.SampledFrom(modelKeys).Draw(t, "key"), rapid.SampledFrom(modelPids).Draw(t, "pid")
	a, err := m.d.Attach(context.Background(), ws, key, pid)
	switch k := m.is[key]; {
	case k == nil:
		wants(t, "Attach", err, langbot.ClassSessionNotFound)
	case k.running[pid]:
		if wants(t, "Attach", err, "") {
			a.Close()
		}
	case err == nil: // it has ended, and what it wrote can be read
		a.Close()
	}
}

// sandboxOf is the ID of a session's sandbox.
func (m *model) sandboxOf(t *rapid.T, key string) string {
	info, err := m.d.Get(context.Background(), ws, key)
	if err != nil {
		t.Fatalf("Get %s: %v", key, err)
	}
	return info.BackendSessionID
}

// pick is a session that is awake, and whose sandbox is there.
func (m *model) pick(t *rapid.T) (string, *holding) {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(m.is)) {
		if k := m.is[key]; !k.removed {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		t.Skip("there is none")
	}
	key := rapid.SampledFrom(keys).Draw(t, "of")
	return key, m.is[key]
}

// BoxDies ends a sandbox as if by itself.
func (m *model) BoxDies(t *rapid.T) {
	key, k := m.pick(t)
	if k.asleep || k.dead {
		t.Skip("it does not run")
	}
	m.w.fake.Die(m.sandboxOf(t, key), sandbox.EndCrashed)
	if rapid.Bool().Draw(t, "used at once") {
		synctest.Wait()
		k.dead = true
		m.borrow(t, key)
		return
	}
	m.dies(k)
}

// BoxRemoved has the owner remove a sandbox as one of his own.
func (m *model) BoxRemoved(t *rapid.T) {
	key, k := m.pick(t)
	if err := m.d.manager.Remove(context.Background(), ws, m.sandboxOf(t, key), true); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	k.removed = true
	clear(k.running)
	pass(5 * time.Second)
}

// BoxStopped has the owner stop one.
func (m *model) BoxStopped(t *rapid.T) {
	key, k := m.pick(t)
	if _, err := m.d.manager.Stop(context.Background(), ws, m.sandboxOf(t, key)); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if !k.asleep {
		m.dies(k)
	}
}

// TimePasses is what Run does.
func (m *model) TimePasses(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{5 * time.Second, ttl + time.Minute, 3 * time.Hour}).Draw(t, "time")
	m.observe(t)
	pass(d)
	for key, k := range m.is {
		info, err := m.d.Get(context.Background(), ws, key)
		if m.goes(k, time.Now(), err == nil, info.Asleep) {
			delete(m.is, key)
		}
	}
}

// goes reports whether a session is to be gone by now, and has it fall asleep
// meanwhile. Where it may be so or otherwise, what it is decides.
func (m *model) goes(k *holding, now time.Time, there, sleeps bool) bool {
	if idle := now.Sub(k.used); !k.asleep && len(k.running) == 0 && k.held == 0 && idle >= ttl {
		early := idle < ttl+modelSlack
		switch worth := (k.files || k.dead) && !k.removed; {
		case !worth && early:
			return !there
		case !worth:
			return true
		case !early || sleeps:
			k.asleep, k.slept = true, [2]time.Time{k.used.Add(ttl), k.used.Add(ttl + modelSlack)}
		}
	}
	switch {
	case !k.asleep || now.Sub(k.slept[0]) < modelKeep:
		return false
	case now.Sub(k.slept[1]) < modelKeep+modelSlack:
		return !there
	}
	return true
}

// Restart ends the daemon in good order, and begins the next.
func (m *model) Restart(*rapid.T) {
	m.d.shutdown()
	for _, h := range m.uses {
		h.use.Release()
		h.of.held--
	}
	m.uses = nil
	m.d = m.w.boot(panicker{}, modelConfig(m.root))
}

// panicker fails by a panic, as rapid does, from any goroutine.
type panicker struct{}

func (panicker) Helper()                           {}
func (panicker) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (panicker) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
