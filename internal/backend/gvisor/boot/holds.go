package boot

import (
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/syserr"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/carboy-sandbox/carboy/internal/guest/control"
)

// agentPID is the agent's process, which gVisor starts first.
const agentPID = 1

// holds are the threads that the agent holds still. A kernel that goes on from memory holds none.
type holds struct {
	mu   sync.Mutex
	held map[*kernel.Task]struct{}
}

// holdCommands lets the agent hold commands still, by an option of prctl: see control.PrctlHold.
func holdCommands() {
	h := &holds{held: make(map[*kernel.Task]struct{})}
	wrapCalls(h.Prctl, "prctl")
}

// Prctl wraps prctl. To all but the agent the option is unknown.
func (h *holds) Prctl(fn kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		all := t.Kernel().RootPIDNamespace()
		if args[0].Int() != control.PrctlHold || all.IDOfThreadGroup(t.ThreadGroup()) != agentPID {
			return fn(t, sysno, args)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		pid := kernel.ThreadID(args[2].Int())
		other := all.ThreadGroupWithID(pid) // nil: it is gone, or none was named
		switch control.HoldCall(args[1].Uint()) {
		case control.HoldCount:
			return h.look(t, other, false), nil, nil
		case control.HoldStop:
			return h.look(t, other, true), nil, nil
		case control.HoldFree:
			if pid != 0 && other == nil {
				return 0, nil, linuxerr.ESRCH
			}
			h.free(other)
			return 0, nil, nil
		case control.HoldPassed:
			if other == nil {
				return 0, nil, linuxerr.ESRCH
			}
			if passed(t, other) {
				return 1, nil, nil
			}
			return 0, nil, nil
		}
		return 0, nil, linuxerr.EINVAL
	}
}

// look counts the threads that run, but for the agent's and those of spared, and stops them if stop says so. A process that one
// of those two has just begun has their memory until it executes its program, and they wait for that: it is not stopped.
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

// passed reports whether something waits in a unix socket of a process, or somebody to be connected. Whatever is on its way
// is in such a socket, or in one that is itself on its way.
func passed(ctx *kernel.Task, tg *kernel.ThreadGroup) bool {
	for _, t := range ctx.Kernel().RootPIDNamespace().Tasks() {
		if t.ThreadGroup() != tg {
			continue
		}
		var sockets []transport.Endpoint
		t.WithMuLocked(func(t *kernel.Task) {
			if t.FDTable() == nil {
				return // it has ended
			}
			t.FDTable().ForEach(ctx, func(_ int32, file *vfs.FileDescription, _ kernel.FDFlags) bool {
				if s, ok := file.Impl().(*unix.Socket); ok {
					sockets = append(sockets, s.Endpoint())
				}
				return true
			})
		})
		if slices.ContainsFunc(sockets, func(e transport.Endpoint) bool { return waits(ctx, e) }) {
			return true
		}
	}
	return false
}

// waits looks at the first message of a socket, and takes nothing.
func waits(ctx *kernel.Task, e transport.Endpoint) bool {
	out, notify, err := e.RecvMsg(ctx, nil, transport.RecvArgs{Peek: true})
	switch err {
	case nil:
		out.Control.Release(ctx)
		if notify != nil {
			notify()
		}
		return true
	case syserr.ErrNotConnected: // it may listen
		return e.Readiness(waiter.EventIn)&waiter.EventIn != 0
	}
	return false
}
