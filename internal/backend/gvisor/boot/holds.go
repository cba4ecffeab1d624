package boot

import (
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"

	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

// agentPID is the agent's process, which gVisor starts first.
const agentPID = 1

// holds are the threads that the agent holds still. A kernel that goes on from memory holds none.
type holds struct {
	mu   sync.Mutex
	held map[*kernel.Task]struct{}
}

// holdCommands has the agent hold what it and its commands started still by a call of ours: see control.PrctlHold.
func holdCommands() {
	h := &holds{held: make(map[*kernel.Task]struct{})}
	wrapCalls(h.Prctl, "prctl")
}

// Prctl wraps prctl. For all but the agent the option is one that there is not.
func (h *holds) Prctl(fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		all := t.Kernel().RootPIDNamespace()
		if args[0].Int() != control.PrctlHold || all.IDOfThreadGroup(t.ThreadGroup()) != agentPID {
			return fn(t, sysno, args)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		var other *kernel.ThreadGroup
		if pid := kernel.ThreadID(args[2].Int()); pid != 0 {
			if other = all.ThreadGroupWithID(pid); other == nil {
				return 0, nil, linuxerr.ESRCH
			}
		}
		switch control.HoldCall(args[1].Uint()) {
		case control.HoldCount:
			return h.look(t, other, false), nil, nil
		case control.HoldStop:
			return h.look(t, other, true), nil, nil
		case control.HoldFree:
			h.free(other)
			return 0, nil, nil
		}
		return 0, nil, linuxerr.EINVAL
	}
}

// look counts the threads that run, and stops them if it is to. The agent is not among them, nor spared. A process that
// one of those two has just begun has their memory until it executes its program, and they wait for that: it runs on.
func (h *holds) look(agent *kernel.Task, spared *kernel.ThreadGroup, stop bool) (running uintptr) {
	memory := []*mm.MemoryManager{memoryOf(agent)}
	if spared != nil {
		memory = append(memory, memoryOf(spared.Leader()))
	}
	for _, t := range agent.Kernel().RootPIDNamespace().Tasks() {
		switch tg := t.ThreadGroup(); {
		case tg == agent.ThreadGroup() || tg == spared || t.ExitState() >= kernel.TaskExitZombie:
			continue
		case slices.Contains(memory, memoryOf(t)):
			running++
			continue
		}
		if t.TaskGoroutineState() != kernel.TaskGoroutineStopped {
			running++
		}
		if _, ok := h.held[t]; !ok && stop {
			t.BeginExternalStop()
			h.held[t] = struct{}{}
		}
	}
	return running
}

func memoryOf(t *kernel.Task) (m *mm.MemoryManager) {
	t.WithMuLocked(func(t *kernel.Task) { m = t.MemoryManager() })
	return m
}

// free lets go on what is held: all, or one thread group.
func (h *holds) free(only *kernel.ThreadGroup) {
	for t := range h.held {
		if only == nil || t.ThreadGroup() == only {
			delete(h.held, t)
			t.EndExternalStop()
		}
	}
}
